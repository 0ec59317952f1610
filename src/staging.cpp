// SPDX-License-Identifier: Apache-2.0
#include "staging.hpp"

#include "check.hpp"
#include "device_table.hpp"
#include "parse_size.hpp"
#include "process.hpp"
#include "relax.hpp"
#include "streaming_copy.hpp"

#include <runnel/detail/driver.hpp>
#include <runnel/staging.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
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
constexpr std::size_t value_distance = 64 / sizeof(std::uint32_t);  // a cache line each: workers and devices write them side by side

/// Pinned memory that one stream uses at a time, in turn.
struct Ring {
  Ring(unsigned char* slots, std::uint32_t* numbers, std::size_t slot) noexcept : data{slots}, values{numbers}, slot_bytes{slot} {}

  unsigned char* const data;
  std::uint32_t* const values;
  const std::size_t slot_bytes;

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
  /// The stream has passed the job with that number: it reads and writes nothing here any more.
  [[nodiscard]] Value passed() const noexcept { return Value{values + value_distance * (2 + 2 * slots_per_ring)}; }
  [[nodiscard]] bool unused() const noexcept { return active.load(std::memory_order_acquire) == 0 && passed().reached(jobs); }
  static constexpr std::size_t values_bytes = sizeof(std::uint32_t) * value_distance * (3 + 2 * slots_per_ring);
  /// What the values of a slot say of its n-th use.
  [[nodiscard]] static std::uint32_t use_of(std::uint64_t piece) noexcept { return static_cast<std::uint32_t>(piece / slots_per_ring + 1); }
};

/// Rows, or a part of one row where a row is larger than a slot.
struct Piece {
  std::size_t row, rows, column, bytes;  // `bytes` of each row
};

struct Job {
  Job(Side towards, const Transfer& what, Ring& through);

  const Side side;
  const Transfer transfer;
  Ring& ring;
  std::size_t rows_per_piece = 1;
  std::size_t pieces_per_row = 1;  // more than 1 where a row is cut
  std::uint32_t count = 0;
  std::uint32_t number = 0;  // within its ring, as is:
  std::uint64_t first_piece = 0;

  std::atomic<std::uint32_t> enqueued{0};  // pieces that the stream knows of: workers go no further
  std::uint32_t claimed = 0;               // the first piece with parts that nobody has claimed; guarded by Staging::mutex_,
  std::uint32_t claimed_parts = 0;         // and how many of its parts are claimed
  std::atomic<std::uint32_t> open{1};      // pieces not yet moved, and 1 for the enqueueing thread
  std::atomic<bool> cancelled{false};      // a call failed: user memory must not be touched any more
  std::atomic<int> moving{0};              // parts that are being moved
  bool finishes = true;                    // whether the stream may wait for this job's end; false once cancelled before that

  [[nodiscard]] Piece piece(std::uint32_t index) const noexcept {
    if (pieces_per_row > 1) {
      const std::size_t column = index % pieces_per_row * ring.slot_bytes;
      return {index / pieces_per_row, 1, column, std::min(ring.slot_bytes, transfer.width - column)};
    }
    const std::size_t row = index * rows_per_piece;
    return {row, std::min(rows_per_piece, transfer.height - row), 0, transfer.width};
  }
  /// Whether a worker can move a part of the next piece now. Staging::mutex_ is held.
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

Job::Job(Side towards, const Transfer& what, Ring& through) : side{towards}, transfer{what}, ring{through} {
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

void move(const Job& job, Part part) noexcept {
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
  if (job.side == Side::to_host && piece.rows == 1 && job.transfer.width * job.transfer.height >= streaming_from)
    copy_streaming(destination_place(job, piece), slot, piece.bytes);
  else if (job.side == Side::to_device)
    move_rows({slot, piece.bytes, source_place(job, piece), job.transfer.from_pitch, piece.bytes, piece.rows});
  else
    move_rows({destination_place(job, piece), job.transfer.to_pitch, slot, piece.bytes, piece.bytes, piece.rows});
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
  void work();
  [[nodiscard]] JobPtr claim(Part& part);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<int> sleepers_{0};
  std::atomic<std::uint32_t> signal_{0};  // changes when there may be something to do
  bool watched_ = false;                  // one worker looks for what devices change
  std::optional<StagingOptions> options_;
  bool started_ = false;
  std::deque<JobPtr> jobs_;  // in the order of submission
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
    if (ring->given_up.load(std::memory_order_acquire)) continue;
    const bool idle = ring->active.load(std::memory_order_acquire) == 0;
    if (ring->owner == owner && (!idle || ring->slot_bytes >= slot_bytes)) return ring.get();  // one ring a stream while it is in use
    if (idle && ring->slot_bytes >= slot_bytes && (best == nullptr || ring->slot_bytes < best->slot_bytes)) best = ring.get();
  }
  return best;
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
  if (ring == nullptr) {
    void* data = nullptr;
    void* values = nullptr;
    check(driver::malloc_host(data, slot_bytes * slots_per_ring), operation);
    if (const driver::status s = driver::malloc_host(values, Ring::values_bytes); s != driver::ok) {
      static_cast<void>(driver::free_host(data));
      throw_status(s, operation);
    }
    std::memset(values, 0, Ring::values_bytes);
    pinned_ += slot_bytes * slots_per_ring;
    ring = rings_.emplace_back(std::make_unique<Ring>(static_cast<unsigned char*>(data), static_cast<std::uint32_t*>(values), slot_bytes))
               .get();
  }
  ring->owner = id;
  ring->active.fetch_add(1, std::memory_order_acq_rel);
  return *ring;
}

void Staging::trim() {
  std::vector<std::unique_ptr<Ring>> idle;
  {
    const std::lock_guard lock{mutex_};
    const auto first = std::partition(rings_.begin(), rings_.end(), [](const auto& ring) { return !ring->unused(); });
    for (auto ring = first; ring != rings_.end(); ++ring) {
      pinned_ -= (*ring)->slot_bytes * slots_per_ring;
      idle.push_back(std::move(*ring));
    }
    rings_.erase(first, rings_.end());
  }
  for (const auto& ring : idle)
    for (void* const block : {static_cast<void*>(ring->data), static_cast<void*>(ring->values)})
      if (const driver::status s = driver::free_host(block); s != driver::ok) driver::forget_error(s);
}

void Staging::add(const JobPtr& job) {
  const std::lock_guard lock{mutex_};
  jobs_.push_back(job);
}

/// The first part, in the order of submission, that can be moved now. The mutex is held.
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
  if (job->finishes) job->ring.finished().set(job->number);
  {
    const std::lock_guard lock{mutex_};
    jobs_.erase(std::find(jobs_.begin(), jobs_.end(), job));
  }
  release(job->ring);
}

void Staging::rouse() {
  signal_.fetch_add(1, std::memory_order_release);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) wake_.notify_one();
}

void Staging::work() {
  using Clock = std::chrono::steady_clock;
  std::unique_lock lock{mutex_};
  auto last_seen = Clock::now();  // when there was something to do
  for (;;) {
    Part part{};
    if (const JobPtr job = claim(part)) {
      rouse();  // somebody else is to look for the next part
      lock.unlock();
      move_unless_cancelled(*job, part);
      const std::uint64_t piece = job->first_piece + part.piece;
      if (job->ring.parts_left[piece % slots_per_ring].fetch_sub(1, std::memory_order_acq_rel) == 1) {
        (job->side == Side::to_device ? job->ring.filled(piece) : job->ring.emptied(piece)).set(Ring::use_of(piece));
        count_down(job);
      }
      lock.lock();
      last_seen = Clock::now();
      continue;
    }
    const auto unsuccessful = Clock::now() - last_seen;
    if (!jobs_.empty() && !watched_) {
      // Devices change values without a word, so one worker keeps looking; ever 50 us when a stream is held up for long.
      watched_ = true;
      lock.unlock();
      if (unsuccessful < 2ms)
        for (int i = 0; i < 16; ++i) relax();
      else
        std::this_thread::sleep_for(50us);
      lock.lock();
      watched_ = false;
    } else if (unsuccessful < 200us) {
      // The others stay awake for a while, since a sleeper takes longer to wake than a part to move; but away from the lock.
      const std::uint32_t seen = signal_.load(std::memory_order_acquire);
      lock.unlock();
      for (int i = 0; i < 500 && signal_.load(std::memory_order_acquire) == seen; ++i) relax();
      lock.lock();
    } else {
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      wake_.wait(lock);
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
      last_seen = Clock::now();
    }
  }
}

/// With values that streams wait for and write: workers move the bytes.
void stage_with_values(const JobPtr& job, native::stream stream, bool idle, const char* operation) {
  Ring& ring = job->ring;
  const bool to_device = job->side == Side::to_device;
  staging().add(job);
  std::uint32_t index = 0;
  driver::status s = driver::ok;
  const auto all_well = [&](driver::status result) { return (s = result) == driver::ok; };
  // All jobs that used the ring before are over, so that the host may write the number as well.
  if (to_device && idle) ring.started().set(job->number);
  if (!to_device || idle || all_well(driver::stream_write_value(stream, ring.started().place(), job->number))) {
    for (; index < job->count; ++index) {
      const std::uint64_t piece = job->first_piece + index;
      const std::uint32_t use = Ring::use_of(piece);
      const Value before = to_device ? ring.filled(piece) : ring.emptied(piece);
      const Value after = to_device ? ring.emptied(piece) : ring.filled(piece);
      const std::uint32_t awaited = to_device ? use : use - 1;
      if (!(before.reached(awaited) || all_well(driver::stream_wait_value(stream, before.place(), awaited))) ||
          !all_well(copy_piece(*job, index, stream)) || !all_well(driver::stream_write_value(stream, after.place(), use)))
        break;
      job->enqueued.store(index + 1, std::memory_order_release);
      staging().rouse();
    }
    if (s == driver::ok && !to_device) s = driver::stream_wait_value(stream, ring.finished().place(), job->number);
    if (s == driver::ok) s = driver::stream_write_value(stream, ring.passed().place(), job->number);
  }
  if (s != driver::ok) {
    // The stream may already wait for the bytes of this piece: workers let it go on, in their turn, without moving any. For the end it
    // can only wait when everything before was enqueued.
    if (to_device && index < job->count) job->enqueued.store(++index, std::memory_order_release);
    job->finishes = !to_device && index == job->count;
    ring.given_up.store(true, std::memory_order_release);
    ring.active.fetch_add(1, std::memory_order_relaxed);
    job->open.fetch_sub(job->count - index, std::memory_order_acq_rel);
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
    step->job->ring.passed().set(step->job->number);
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

/// Rows that lie end to end on both sides are one row.
[[nodiscard]] Transfer flattened(Transfer t) noexcept {
  if (t.to_pitch == t.width && t.from_pitch == t.width) {
    t.width *= t.height;
    t.to_pitch = t.from_pitch = t.width;
    t.height = 1;
  }
  return t;
}

}  // namespace

void move_rows(const Transfer& t) noexcept {
  const Transfer rows = flattened(t);
  for (std::size_t row = 0; row < rows.height; ++row)
    std::memcpy(rows.to + row * rows.to_pitch, rows.from + row * rows.from_pitch, rows.width);
}

void stage(Slot& slot, const Transfer& transfer, Side side, bool idle, const char* operation) {
  const bool with_values = has_stream_values(slot.device);  // asked first: from the numbering on, nothing may fail unseen
  for (;;) {
    Ring& ring = staging().ring_for(slot, transfer.width * transfer.height, operation);
    const std::lock_guard in_order{ring.mutex};
    if (ring.given_up.load(std::memory_order_acquire)) {  // by another thread, while this one waited for its turn
      Staging::release(ring);
      continue;
    }
    const auto job = std::make_shared<Job>(side, flattened(transfer), ring);
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
