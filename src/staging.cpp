// SPDX-License-Identifier: Apache-2.0
#include "staging.hpp"

#include "check.hpp"
#include "device_table.hpp"
#include "parse_size.hpp"
#include "process.hpp"
#include "relax.hpp"
#include "relaxed_capture.hpp"
#include "spin_lock.hpp"
#include "streaming_copy.hpp"

#include <runnel/detail/driver.hpp>
#include <runnel/staging.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace runnel::inline RUNNEL_ABI {
namespace detail {
namespace {

using namespace std::chrono_literals;

/// A number in pinned memory that a stream and the workers read and write. It only grows; comparisons are cyclic, as the devices' are.
class Value {
 public:
  explicit Value(std::uint32_t* place) noexcept : place_{place} {}
  [[nodiscard]] bool reached(std::uint32_t number) const noexcept {
    return static_cast<std::int32_t>(std::atomic_ref{*place_}.load(std::memory_order_acquire) - number) >= 0;
  }
  void set(std::uint32_t number) const noexcept { std::atomic_ref{*place_}.store(number, std::memory_order_release); }
  [[nodiscard]] std::uint32_t* place() const noexcept { return place_; }

 private:
  std::uint32_t* place_;
};

// A piece costs the stream about 10 us beside its copy (a wait, a write, and the gap around them), so that small pieces are slow; but
// a large one would be long in the filling. So pieces are large, and several workers move the parts of one.
constexpr std::size_t smallest_slot = std::size_t{512} << 10;
constexpr std::size_t slots_per_ring = 8;
constexpr std::size_t parts_per_slot = 16;
constexpr std::size_t smallest_part = std::size_t{64} << 10;
constexpr std::size_t streaming_from = std::size_t{8} << 20;        // copies to the host that no cache would keep for its reader
constexpr std::size_t streaming_up_to = std::size_t{32} << 20;      // copies to the device whose source a cache may still have
constexpr std::size_t value_distance = 64 / sizeof(std::uint32_t);  // a cache line each: workers and devices write them side by side

/// Pinned memory that one stream uses at a time, in turn. The values stay for good: a stream may wait for one that is long reached.
struct Ring {
  explicit Ring(std::uint32_t* numbers) noexcept : values{numbers} {}

  std::uint32_t* const values;
  unsigned char* data = nullptr;  // of the slots; null: trimmed away. Guarded by Staging::mutex_ while nobody uses the ring, as is:
  std::size_t slot_bytes = 0;

  std::mutex mutex;                   // held while a copy is enqueued: its pieces follow each other in the stream
  std::uint64_t owner = 0;            // the id of the stream that uses it; guarded by Staging::mutex_
  std::uint32_t jobs = 0;             // enqueued so far; guarded by mutex
  std::uint64_t pieces = 0;           // likewise
  std::atomic<int> active{0};         // jobs whose memory, slots or values somebody may still touch
  std::atomic<bool> given_up{false};  // a call failed half way: what the stream was told of slots and values is not known
  std::array<std::atomic<std::uint32_t>, slots_per_ring> parts_left{};  // of the piece in each slot

  [[nodiscard]] unsigned char* slot(std::uint64_t piece) const noexcept { return data + piece % slots_per_ring * slot_bytes; }
  /// The stream has come to the job with that number.
  [[nodiscard]] Value started() const noexcept { return Value{values}; }
  /// The job with that number has all its bytes in user memory.
  [[nodiscard]] Value finished() const noexcept { return Value{values + value_distance}; }
  /// The piece's bytes are in its slot.
  [[nodiscard]] Value filled(std::uint64_t piece) const noexcept { return Value{values + value_distance * (2 + piece % slots_per_ring)}; }
  /// The piece's bytes have left its slot.
  [[nodiscard]] Value emptied(std::uint64_t piece) const noexcept {
    return Value{values + value_distance * (2 + slots_per_ring + piece % slots_per_ring)};
  }
  /// Whether all bytes have left the slots, and nobody is about to bring more.
  [[nodiscard]] bool unused() const noexcept {
    if (active.load(std::memory_order_acquire) > 0) return false;
    for (std::uint64_t last = pieces; last > 0 && pieces - last < slots_per_ring; --last)
      if (!emptied(last - 1).reached(use_of(last - 1))) return false;
    return true;
  }
  static constexpr std::size_t values_bytes = sizeof(std::uint32_t) * value_distance * (2 + 2 * slots_per_ring);
  /// What the values of a slot say of its n-th use.
  [[nodiscard]] static std::uint32_t use_of(std::uint64_t piece) noexcept { return static_cast<std::uint32_t>(piece / slots_per_ring + 1); }
};

/// Rows, or a part of one row where a row is larger than a slot.
struct Piece {
  std::size_t row, rows, column, bytes;  // `bytes` of each row
};

struct Job {
  Job(Slot& of, Side towards, const Transfer& what, Ring& through);

  Slot& stream;
  const std::uint64_t stream_id;
  const Side side;
  const Transfer transfer;
  Ring& ring;
  std::size_t rows_per_piece = 1;
  std::size_t pieces_per_row = 1;  // more than 1 where a row is cut
  std::uint32_t count = 0;
  std::uint32_t number = 0;  // within its ring, as is:
  std::uint64_t first_piece = 0;

  std::atomic<std::uint32_t> enqueued{0};  // pieces that the stream knows of: workers go no further
  std::uint32_t claimed = 0;               // the first piece with parts that nobody has claimed; guarded by Staging::jobs_lock_,
  std::uint32_t claimed_parts = 0;         // and how many of its parts are claimed
  std::atomic<std::uint32_t> open{1};      // pieces not yet moved, and 1 for the enqueueing thread
  std::atomic<bool> cancelled{false};      // a call failed: user memory must not be touched any more
  std::atomic<int> moving{0};              // parts that are being moved
  bool finishes = true;                    // for the host: whether the stream may wait for the end; false once cancelled before that
  enum class Memory { unseen, plain, doubtful };
  std::atomic<Memory> memory{Memory::unseen};  // of the user's: doubtful is looked at again before each part

  [[nodiscard]] Piece piece(std::uint32_t index) const noexcept {
    if (pieces_per_row > 1) {
      const std::size_t column = index % pieces_per_row * ring.slot_bytes;
      return {index / pieces_per_row, 1, column, std::min(ring.slot_bytes, transfer.width - column)};
    }
    const std::size_t row = index * rows_per_piece;
    return {row, std::min(rows_per_piece, transfer.height - row), 0, transfer.width};
  }
  /// Whether a worker can move a part of the next piece now. Staging::jobs_lock_ is held.
  [[nodiscard]] bool claimable() const noexcept {
    if (claimed >= enqueued.load(std::memory_order_acquire)) return false;
    const std::uint64_t piece = first_piece + claimed;
    if (side == Side::to_host) return ring.filled(piece).reached(Ring::use_of(piece));
    // A cancelled job may never be started, but the stream may wait for its bytes. The slot's earlier use comes first all the same.
    const bool started = ring.started().reached(number) || cancelled.load(std::memory_order_relaxed);
    return started && ring.emptied(piece).reached(Ring::use_of(piece) - 1);
  }
};
using JobPtr = std::shared_ptr<Job>;

Job::Job(Slot& of, Side towards, const Transfer& what, Ring& through)
    : stream{of}, stream_id{of.id.load(std::memory_order_relaxed)}, side{towards}, transfer{what}, ring{through} {
  if (transfer.width > ring.slot_bytes)
    pieces_per_row = (transfer.width + ring.slot_bytes - 1) / ring.slot_bytes;
  else
    rows_per_piece = std::min(ring.slot_bytes / transfer.width, transfer.height);
  count = static_cast<std::uint32_t>(pieces_per_row > 1 ? transfer.height * pieces_per_row
                                                        : (transfer.height + rows_per_piece - 1) / rows_per_piece);
  open.store(count + 1, std::memory_order_relaxed);
}

[[nodiscard]] unsigned char* destination_place(const Job& job, const Piece& piece) noexcept {
  return job.transfer.to + piece.row * job.transfer.to_pitch + piece.column;
}
[[nodiscard]] const unsigned char* source_place(const Job& job, const Piece& piece) noexcept {
  return job.transfer.from + piece.row * job.transfer.from_pitch + piece.column;
}

/// What a worker moves at a time: part `number` of a piece, between user memory and the piece's slot, where rows lie end to end.
struct Part {
  std::uint32_t piece;
  std::uint32_t number;
};

/// How many parts a piece has: of rows, or of the bytes of its only row.
[[nodiscard]] std::size_t part_size(const Job& job, const Piece& piece) noexcept {
  const std::size_t bytes = std::max(smallest_part, job.ring.slot_bytes / parts_per_slot);
  return piece.rows == 1 ? bytes : std::max<std::size_t>(1, bytes / piece.bytes);
}
[[nodiscard]] std::uint32_t part_count(const Job& job, const Piece& piece) noexcept {
  const std::size_t size = part_size(job, piece);
  return static_cast<std::uint32_t>(((piece.rows == 1 ? piece.bytes : piece.rows) + size - 1) / size);
}

/// The bytes of user memory that one row, or all rows, of a transfer span.
struct Span {
  const void* begin;
  std::size_t bytes;
};
[[nodiscard]] Span user_rows(const Transfer& t, Side side, std::size_t first, std::size_t count) noexcept {
  const unsigned char* const begin = side == Side::to_device ? t.from : t.to;
  const std::size_t pitch = side == Side::to_device ? t.from_pitch : t.to_pitch;
  return {begin + first * pitch, (count - 1) * pitch + t.width};
}

/// Whether these rows of user memory can be touched without the process being ended for it.
[[nodiscard]] bool can_touch(Job& job, const Transfer& rows) noexcept {
  using Memory = Job::Memory;
  const Purpose purpose = job.side == Side::to_device ? Purpose::reading : Purpose::writing;
  Memory memory = job.memory.load(std::memory_order_relaxed);
  if (memory == Memory::unseen) {
    const Span all = user_rows(job.transfer, job.side, 0, job.transfer.height);
    memory = surely_usable(all.begin, all.bytes, purpose) ? Memory::plain : Memory::doubtful;
    job.memory.store(memory, std::memory_order_relaxed);
  }
  for (std::size_t row = 0; memory == Memory::doubtful && row < rows.height; ++row) {
    const Span one = user_rows(rows, job.side, row, 1);
    if (!fetched(one.begin, one.bytes, purpose)) return false;
  }
  return true;
}

/// For the stream's next synchronize.
void keep_untouchable(const Job& job) noexcept {
  try {
    if (job.side == Side::to_device)
      throw_error(errc::unreadable_source, "copy", "a page of the source cannot be read: was its file truncated, or its permission taken?");
    throw_error(errc::unwritable_destination, "copy",
                "a page of the destination cannot be written: was its file truncated, or its permission taken?");
  } catch (...) {
    keep_failure(&job.stream, job.stream_id, std::current_exception(), 0);
  }
}

/// Whether to write past the caches. Measured on an H200's 16 cores with 8 workers: to user memory 89 instead of 48 GB/s; into slots from a
/// source that is in no cache 38 instead of 61, but a tenth to a third more from one that is, since devices read such a slot faster.
[[nodiscard]] bool past_caches(const Job& job) noexcept {
  const std::size_t bytes = job.transfer.width * job.transfer.height;
  return job.side == Side::to_host ? bytes >= streaming_from : bytes <= streaming_up_to;
}

void move(Job& job, Part part) noexcept {
  Piece piece = job.piece(part.piece);
  const std::size_t start = part_size(job, piece) * part.number;
  unsigned char* slot = job.ring.slot(job.first_piece + part.piece);
  if (piece.rows == 1) {
    slot += start;
    piece.column += start;
    piece.bytes = std::min(part_size(job, piece), piece.bytes - start);
  } else {
    slot += start * piece.bytes;
    piece.row += start;
    piece.rows = std::min(part_size(job, piece), piece.rows - start);
  }
  const Transfer rows = job.side == Side::to_device
                            ? Transfer{slot, piece.bytes, source_place(job, piece), job.transfer.from_pitch, piece.bytes, piece.rows}
                            : Transfer{destination_place(job, piece), job.transfer.to_pitch, slot, piece.bytes, piece.bytes, piece.rows};
  if (!can_touch(job, rows))
    keep_untouchable(job);
  else if (rows.height == 1 && past_caches(job))
    copy_streaming(rows.to, rows.from, rows.width);
  else
    move_rows(rows);
}

void move_unless_cancelled(Job& job, Part part) noexcept {
  job.moving.fetch_add(1, std::memory_order_seq_cst);
  if (!job.cancelled.load(std::memory_order_seq_cst)) move(job, part);
  job.moving.fetch_sub(1, std::memory_order_release);
}

/// On the return nobody touches user memory any more, which the caller's caller may free while he handles the exception.
void cancel(Job& job) noexcept {
  job.cancelled.store(true, std::memory_order_seq_cst);
  while (job.moving.load(std::memory_order_acquire) > 0) std::this_thread::yield();
}

/// The stream's part: between the device and the piece's slot.
[[nodiscard]] driver::status copy_piece(const Job& job, std::uint32_t index, native::stream stream) noexcept {
  const Piece piece = job.piece(index);
  unsigned char* const slot = job.ring.slot(job.first_piece + index);
  const bool to_device = job.side == Side::to_device;
  void* const to = to_device ? destination_place(job, piece) : slot;
  const void* const from = to_device ? slot : source_place(job, piece);
  if (piece.rows == 1) return driver::copy_async(to, from, piece.bytes, stream);
  return driver::copy_2d_async(to, to_device ? job.transfer.to_pitch : piece.bytes, from, to_device ? piece.bytes : job.transfer.from_pitch,
                               piece.bytes, piece.rows, stream);
}

[[nodiscard]] std::size_t from_environment(const char* name) noexcept {
  const char* const text = std::getenv(name);
  return text == nullptr ? 0 : parse_size(text).value_or(0);
}

class Staging {
 public:
  void configure(const StagingOptions& options);
  [[nodiscard]] StagingOptions options();
  [[nodiscard]] Ring& ring_for(const Slot& slot, std::size_t bytes, const char* operation);
  void add(const JobPtr& job);
  /// One of the job's pieces is moved, or its enqueueing is over; the last of all closes it.
  void count_down(const JobPtr& job);
  /// The same for a job that workers know nothing of.
  static void release(Ring& ring) noexcept { ring.active.fetch_sub(1, std::memory_order_acq_rel); }
  /// There may be something to do: one more worker looks.
  void rouse();
  /// Frees the rings that nobody uses.
  void trim();

 private:
  void fill_in_options();
  [[nodiscard]] Ring* find_ring(std::uint64_t owner, std::size_t slot_bytes);
  [[nodiscard]] Ring& make_ring(std::size_t slot_bytes, const char* operation);
  void work();
  [[nodiscard]] JobPtr claim(Part& part);

  SpinLock jobs_lock_;                    // held for some loads: workers must not sleep over it
  std::deque<JobPtr> jobs_;               // in the order of submission
  bool watched_ = false;                  // one worker looks for what devices change
  std::atomic<std::uint32_t> signal_{0};  // changes when there may be something to do
  std::atomic<int> sleepers_{0};

  std::mutex mutex_;  // guards the rest
  std::optional<StagingOptions> options_;
  bool started_ = false;
  std::vector<std::unique_ptr<Ring>> rings_;
  std::size_t pinned_ = 0;
};

// Never destroyed: workers are still there when statics die, and the process ends under them.
Staging& staging() {
  static Staging& instance = *new Staging;
  return instance;
}

void Staging::fill_in_options() {
  StagingOptions o = options_.value_or(StagingOptions{});
  if (o.workers == 0) o.workers = static_cast<int>(std::min<std::size_t>(from_environment("RUNNEL_STAGING_WORKERS"), 64));
  if (o.workers == 0) o.workers = std::clamp(static_cast<int>(std::thread::hardware_concurrency()) * 3 / 4, 1, 12);
  if (o.chunk == 0) o.chunk = from_environment("RUNNEL_STAGING_CHUNK");
  if (o.chunk == 0) o.chunk = std::size_t{8} << 20;
  o.chunk = std::clamp(o.chunk, smallest_slot, std::size_t{1} << 30);
  if (o.memory == 0) o.memory = from_environment("RUNNEL_STAGING_MEMORY");
  if (o.memory == 0) o.memory = std::size_t{512} << 20;
  options_ = o;
}

void Staging::configure(const StagingOptions& options) {
  constexpr const char* operation = "set staging options";
  if (options.workers < 0) throw_error(errc::invalid_argument, operation, "the number of workers is negative");
  const std::lock_guard lock{mutex_};
  if (started_) throw_error(errc::not_permitted, operation, "a copy has been staged already");
  options_ = options;
}

StagingOptions Staging::options() {
  const std::lock_guard lock{mutex_};
  if (!started_) {
    const std::optional<StagingOptions> set = options_;
    fill_in_options();
    return *std::exchange(options_, set);
  }
  return *options_;
}

/// The stream's own ring, or an idle one that is large enough.
Ring* Staging::find_ring(std::uint64_t owner, std::size_t slot_bytes) {
  Ring* best = nullptr;
  for (const auto& ring : rings_) {
    if (ring->data == nullptr || ring->given_up.load(std::memory_order_acquire)) continue;
    const bool idle = ring->active.load(std::memory_order_acquire) == 0;
    if (ring->owner == owner && (!idle || ring->slot_bytes >= slot_bytes)) return ring.get();  // one ring a stream while it is in use
    if (idle && ring->slot_bytes >= slot_bytes && (best == nullptr || ring->slot_bytes < best->slot_bytes)) best = ring.get();
  }
  return best;
}

Ring& Staging::make_ring(std::size_t slot_bytes, const char* operation) {
  const RelaxedCapture relaxed;
  const auto trimmed = std::find_if(rings_.begin(), rings_.end(), [](const auto& ring) { return ring->data == nullptr; });
  Ring* ring = trimmed != rings_.end() ? trimmed->get() : nullptr;
  if (ring == nullptr) {
    void* values = nullptr;
    check(driver::malloc_host(values, Ring::values_bytes), operation);
    std::memset(values, 0, Ring::values_bytes);
    ring = rings_.emplace_back(std::make_unique<Ring>(static_cast<std::uint32_t*>(values))).get();
  }
  void* data = nullptr;
  check(driver::malloc_host(data, slot_bytes * slots_per_ring), operation);
  ring->data = static_cast<unsigned char*>(data);
  ring->slot_bytes = slot_bytes;
  pinned_ += slot_bytes * slots_per_ring;
  return *ring;
}

Ring& Staging::ring_for(const Slot& slot, std::size_t bytes, const char* operation) {
  const std::uint64_t id = slot.id.load(std::memory_order_relaxed);
  const std::lock_guard lock{mutex_};
  if (!started_) {
    fill_in_options();
    for (int i = 0; i < options_->workers; ++i) std::thread{[this] { work(); }}.detach();
    started_ = true;
  }
  // A sixteenth of the copy, so that the device starts early; rounded to powers of 2, so that rings can serve many.
  std::size_t slot_bytes = smallest_slot;
  while (slot_bytes * 2 <= options_->chunk && slot_bytes * 16 < bytes) slot_bytes *= 2;

  Ring* ring = find_ring(id, slot_bytes);
  if (ring == nullptr && pinned_ + slot_bytes * slots_per_ring > options_->memory) {
    slot_bytes = smallest_slot;  // over the limit a stream gets the smallest ring: slower, but never stuck behind another stream
    ring = find_ring(id, slot_bytes);
  }
  if (ring == nullptr) ring = &make_ring(slot_bytes, operation);
  ring->owner = id;
  ring->active.fetch_add(1, std::memory_order_acq_rel);
  return *ring;
}

void Staging::trim() {
  std::vector<void*> unused;
  {
    const std::lock_guard lock{mutex_};
    for (const auto& ring : rings_) {
      if (ring->data == nullptr || !ring->unused()) continue;
      unused.push_back(std::exchange(ring->data, nullptr));
      pinned_ -= ring->slot_bytes * slots_per_ring;
    }
  }
  if (unused.empty()) return;
  const RelaxedCapture relaxed;
  for (void* const block : unused)
    if (const driver::status s = driver::free_host(block); s != driver::ok) driver::forget_error(s);
}

void Staging::add(const JobPtr& job) {
  const std::lock_guard lock{jobs_lock_};
  jobs_.push_back(job);
}

/// The first part, in the order of submission, that can be moved now. The jobs' lock is held.
JobPtr Staging::claim(Part& part) {
  const auto found = std::find_if(jobs_.begin(), jobs_.end(), [](const JobPtr& job) { return job->claimable(); });
  if (found == jobs_.end()) return nullptr;
  Job& job = **found;
  const std::uint32_t parts = part_count(job, job.piece(job.claimed));
  part = {job.claimed, job.claimed_parts++};
  if (part.number == 0) job.ring.parts_left[(job.first_piece + part.piece) % slots_per_ring].store(parts, std::memory_order_relaxed);
  if (job.claimed_parts == parts) {
    ++job.claimed;
    job.claimed_parts = 0;
  }
  return *found;
}

void Staging::count_down(const JobPtr& job) {
  if (job->open.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  // Only those that the stream waits for: a later job's number may be there already, and must not be taken back.
  if (job->side == Side::to_host && job->finishes) job->ring.finished().set(job->number);
  {
    const std::lock_guard lock{jobs_lock_};
    jobs_.erase(std::find(jobs_.begin(), jobs_.end(), job));
  }
  release(job->ring);
}

void Staging::rouse() {
  signal_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) signal_.notify_one();
}

void Staging::work() {
  using Clock = std::chrono::steady_clock;
  auto last_seen = Clock::now();  // when there was something to do
  for (;;) {
    const std::uint32_t seen = signal_.load(std::memory_order_seq_cst);
    Part part{};
    JobPtr job;
    bool watches = false;
    {
      const std::lock_guard lock{jobs_lock_};
      job = claim(part);
      // Devices change values without a word, so one worker keeps looking.
      if (job == nullptr && !jobs_.empty()) watches = !std::exchange(watched_, true);
    }
    if (job != nullptr) {
      rouse();  // somebody else is to look for the next part
      move_unless_cancelled(*job, part);
      const std::uint64_t piece = job->first_piece + part.piece;
      if (job->ring.parts_left[piece % slots_per_ring].fetch_sub(1, std::memory_order_acq_rel) == 1) {
        (job->side == Side::to_device ? job->ring.filled(piece) : job->ring.emptied(piece)).set(Ring::use_of(piece));
        count_down(job);
      }
      last_seen = Clock::now();
      continue;
    }
    const auto unsuccessful = Clock::now() - last_seen;
    if (watches) {
      if (unsuccessful < 2ms)
        for (int i = 0; i < 8; ++i) relax();
      else
        std::this_thread::sleep_for(50us);  // a stream is held up for long
      const std::lock_guard lock{jobs_lock_};
      watched_ = false;
    } else if (unsuccessful < 200us) {
      // The others stay awake for a while, since a sleeper takes longer to wake than a part to move.
      for (int i = 0; i < 500 && signal_.load(std::memory_order_acquire) == seen; ++i) relax();
    } else {
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      signal_.wait(seen, std::memory_order_seq_cst);
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
      last_seen = Clock::now();
    }
  }
}

/// With values that streams wait for and write: workers move the bytes.
/// A piece for the device is announced to the workers before the stream is told to wait for it, since what the stream is told next may
/// have to wait for room behind that very wait: streams share the device's channels, and those hold so many commands and no more.
void stage_with_values(const JobPtr& job, native::stream stream, bool idle, const char* operation) {
  Ring& ring = job->ring;
  const bool to_device = job->side == Side::to_device;
  staging().add(job);
  std::uint32_t announced = 0;
  driver::status s = driver::ok;
  const auto all_well = [&](driver::status result) { return (s = result) == driver::ok; };
  const auto announce = [&] {
    job->enqueued.store(++announced, std::memory_order_release);
    staging().rouse();
  };
  // All jobs that used the ring before are over, so that the host may write the number as well.
  if (to_device && idle) ring.started().set(job->number);
  if (!to_device || idle || all_well(driver::stream_write_value(stream, ring.started().place(), job->number))) {
    for (std::uint32_t index = 0; index < job->count; ++index) {
      const std::uint64_t piece = job->first_piece + index;
      const std::uint32_t use = Ring::use_of(piece);
      if (to_device) announce();
      const Value before = to_device ? ring.filled(piece) : ring.emptied(piece);
      const Value after = to_device ? ring.emptied(piece) : ring.filled(piece);
      const std::uint32_t awaited = to_device ? use : use - 1;
      if (!(before.reached(awaited) || all_well(driver::stream_wait_value(stream, before.place(), awaited))) ||
          !all_well(copy_piece(*job, index, stream)) || !all_well(driver::stream_write_value(stream, after.place(), use)))
        break;
      if (!to_device) announce();
    }
    if (s == driver::ok && !to_device) s = driver::stream_wait_value(stream, ring.finished().place(), job->number);
  }
  if (s != driver::ok) {
    // The stream may already wait for the bytes of the last piece: workers let it go on, in their turn, without moving any. For the end
    // it can only wait when everything before was enqueued.
    job->finishes = announced == job->count;
    ring.given_up.store(true, std::memory_order_release);
    ring.active.fetch_add(1, std::memory_order_relaxed);
    job->open.fetch_sub(job->count - announced, std::memory_order_acq_rel);
    cancel(*job);
    staging().rouse();
  }
  staging().count_down(job);
  check(s, operation);
}

/// Without such values: a host function a piece moves the bytes, in the stream's own order.
void stage_with_host_functions(const JobPtr& job, native::stream stream, const char* operation) {
  struct Step {
    JobPtr job;
    std::uint32_t index;
  };
  const auto enqueue = [&](std::uint32_t index, void (*function)(void*)) {
    auto step = std::make_unique<Step>(Step{job, index});
    check(driver::launch_host_func(stream, function, step.get()), operation);
    static_cast<void>(step.release());
  };
  const auto run_move = [](void* data) {
    const std::unique_ptr<Step> step{static_cast<Step*>(data)};
    Job& work = *step->job;
    for (std::uint32_t part = 0; part < part_count(work, work.piece(step->index)); ++part) move_unless_cancelled(work, {step->index, part});
  };
  const auto run_release = [](void* data) {
    const std::unique_ptr<Step> step{static_cast<Step*>(data)};
    const Job& done = *step->job;
    for (std::uint32_t index = 0; index < done.count; ++index)  // what a later copy of the same ring may ask
      done.ring.emptied(done.first_piece + index).set(Ring::use_of(done.first_piece + index));
    Staging::release(step->job->ring);
  };
  try {
    for (std::uint32_t index = 0; index < job->count; ++index) {
      if (job->side == Side::to_device) enqueue(index, run_move);
      check(copy_piece(*job, index, stream), operation);
      if (job->side == Side::to_host) enqueue(index, run_move);
    }
    enqueue(0, run_release);
  } catch (...) {
    cancel(*job);
    try {
      enqueue(0, run_release);
    } catch (...) {  // then the ring stays in use: its last copy may still be on its way
    }
    throw;
  }
}

}  // namespace

void stage(Slot& slot, const Transfer& transfer, Side side, bool idle, const char* operation) {
  const bool with_values = has_stream_values(slot.device);  // asked first: from the numbering on, nothing may fail unseen
  for (;;) {
    Ring& ring = staging().ring_for(slot, transfer.width * transfer.height, operation);
    const std::lock_guard in_order{ring.mutex};
    if (ring.given_up.load(std::memory_order_acquire)) {  // by another thread, while this one waited for its turn
      Staging::release(ring);
      continue;
    }
    const auto job = std::make_shared<Job>(slot, side, flattened(transfer), ring);
    job->number = ++ring.jobs;
    job->first_piece = std::exchange(ring.pieces, ring.pieces + job->count);
    if (with_values)
      stage_with_values(job, slot.handle, idle && ring.active.load(std::memory_order_acquire) == 1, operation);
    else
      stage_with_host_functions(job, slot.handle, operation);
    return;
  }
}

}  // namespace detail

void set_staging_options(const StagingOptions& options) { detail::staging().configure(options); }
StagingOptions staging_options() { return detail::staging().options(); }
void trim_staging() {
  detail::enter("trim staging memory");
  detail::staging().trim();
}

}  // namespace runnel::inline RUNNEL_ABI
