// SPDX-License-Identifier: Apache-2.0
/// Operations on memory of a GPU: from the device into pinned memory, through MPI, and back, in
/// pieces that follow each other through a ring.
///
/// The stream and a thread that calls MPI tell each other by two numbers in pinned memory how far
/// they are, and the calling thread waits for nothing. Only where streams cannot wait for numbers,
/// host functions do, which a runtime may run one at a time.
#include "comm/mpi_state.hpp"

#include "base/polling.hpp"
#include "stream/slots.hpp"

#include <runnel/copy.hpp>
#include <runnel/detail/access.hpp>
#include <runnel/error.hpp>
#include <runnel/memory.hpp>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <list>
#include <system_error>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

constexpr std::size_t slots = 4;
constexpr std::size_t slot_bytes = std::size_t{4} << 20;  // of an operation of all processes
// of a send or a receive: the same on both sides, whatever else is in a group
constexpr std::size_t message_bytes = std::size_t{1} << 19;

[[nodiscard]] bool has_reached(std::uint32_t number, std::uint32_t goal) noexcept {
  return static_cast<std::int32_t>(number - goal) >= 0;
}

/// A device or another process often answers within this time, and waking up takes longer.
constexpr std::chrono::microseconds awake_for{200};

/// How a step goes through a slot: `width` elements of each block at a time.
struct Route {
  Exchange step;
  Blocks blocks;
  std::size_t width;
  std::size_t in_at, out_at;  // where the piece lies in the slot, in bytes

  [[nodiscard]] std::size_t pieces() const noexcept {
    return std::max<std::size_t>(1, (blocks.count + width - 1) / width);
  }
  [[nodiscard]] bool has(std::size_t piece) const noexcept { return piece < pieces(); }
  [[nodiscard]] std::size_t columns(std::size_t piece) const noexcept {
    return std::min(width, blocks.count - piece * width);
  }

  /// What MPI does with a piece. Requires: has(piece).
  [[nodiscard]] Exchange in_slot(std::byte* slot, std::size_t piece) const noexcept {
    const std::size_t count = columns(piece);
    const bool reads = blocks.in > 0, writes = blocks.out > 0;
    Exchange made = step;
    made.in = reads ? slot + in_at : step.verb == Verb::broadcast ? slot + out_at : nullptr;
    made.out = writes ? slot + out_at : step.verb == Verb::broadcast ? slot + in_at : nullptr;
    made.in_count =
        count *
        (step.verb == Verb::reduce_scatter || step.verb == Verb::all_to_all ? blocks.in : 1);
    made.out_count =
        count * (step.verb == Verb::all_gather || step.verb == Verb::all_to_all ? blocks.out : 1);
    return made;
  }

  ///@{ Enqueue the copy of a piece into the slot, and from the slot. Require: has(piece).
  void copy_in(StreamRef stream, std::byte* slot, std::size_t piece) const {
    copy_rows(stream, slot + in_at, columns(piece), from_device(piece), blocks.count,
              columns(piece), blocks.in);
  }
  void copy_out(StreamRef stream, const std::byte* slot, std::size_t piece) const {
    copy_rows(stream, at(step.out, piece * width * step.element_size), blocks.count, slot + out_at,
              columns(piece), columns(piece), blocks.out);
  }
  ///@}

 private:
  [[nodiscard]] const void* from_device(std::size_t piece) const noexcept {
    return at(step.in, piece * width * step.element_size);
  }
  /// Pitches and width in elements.
  void copy_rows(StreamRef stream, void* to, std::size_t to_pitch, const void* from,
                 std::size_t from_pitch, std::size_t columns, std::size_t rows) const {
    const std::size_t unit = step.element_size;
    if (rows == 0 || columns == 0) return;
    if (rows == 1)
      copy_bytes(stream, to, from, columns * unit);
    else
      copy_2d(stream, to, to_pitch * unit, from, from_pitch * unit, columns * unit, rows);
  }
};

[[nodiscard]] Route route_of(const CommunicatorState& state, const Exchange& step,
                             std::size_t begin, std::size_t room) noexcept {
  const Blocks blocks = blocks_of(state, step);
  // A reduction of one block is made in place.
  const bool in_place =
      step.verb == Verb::all_reduce || (step.verb == Verb::reduce && blocks.out > 0);
  const std::size_t rows = in_place ? 1 : std::max<std::size_t>(1, blocks.in + blocks.out);
  const std::size_t width = std::max<std::size_t>(1, room / rows / step.element_size);
  const std::size_t out_at = in_place ? begin : begin + blocks.in * width * step.element_size;
  return {step, blocks, width, begin, out_at};
}

struct Job {
  std::shared_ptr<MpiState> state;
  std::shared_ptr<PinnedBuffer<std::byte>> ring;
  std::vector<Route> routes;
  std::size_t pieces;
  std::uint32_t first;  // number of the first piece
  StreamRef stream;
  std::uint64_t epoch;
  bool waits_for_numbers;  // else host functions wait
};

}  // namespace

/// What a communicator needs for such operations.
class Stager : public std::enable_shared_from_this<Stager> {
 public:
  Stager() : numbers_{64U} { std::fill(numbers_.begin(), numbers_.end(), 0U); }
  /// Requires: no other thread is in this function.
  void enqueue(const std::shared_ptr<MpiState>& state, StreamRef stream,
               std::span<const Exchange> steps);
  /// No more operations will follow.
  void close() noexcept;

 private:
  [[nodiscard]] static std::vector<Route> routes_of(const CommunicatorState& state,
                                                    std::span<const Exchange> steps,
                                                    std::size_t& bytes);
  void require_ring(std::size_t bytes);
  void start_thread();
  void work() noexcept;
  void run(const Job& job) noexcept;
  void run_piece(const Job& job, std::size_t piece);
  void hand_over(const Job& job);
  void enqueue_pieces(const Job& job);
  ///@{ In the stream: makes later work wait for MPI, and tells MPI's thread.
  void enqueue_wait(const Job& job, std::uint32_t number);
  void enqueue_ready(const Job& job, std::uint32_t number);
  ///@}

  /// @{ Numbers of pieces: the stream has copied so many into the ring, and MPI has finished so
  /// many.
  [[nodiscard]] std::uint32_t* ready() noexcept { return numbers_.data(); }
  [[nodiscard]] std::uint32_t* finished() noexcept { return numbers_.data() + 32; }
  ///@}
  [[nodiscard]] std::byte* slot(const Job& job, std::size_t piece) const noexcept {
    return job.ring->data() + (job.first + piece) % slots * (job.ring->size() / slots);
  }

  PinnedBuffer<std::uint32_t> numbers_;
  std::shared_ptr<PinnedBuffer<std::byte>> ring_;
  std::uint32_t next_ = 0;  // number of the next piece
  bool is_started_ = false;
  // the first piece of an operation whose error the caller has got
  sync::Atomic<std::uint64_t> given_up_{~std::uint64_t{0}};

  sync::Mutex lock_;
  sync::ConditionVariable wake_;
  std::list<Job> jobs_;
  bool is_closed_ = false;
};

std::vector<Route> Stager::routes_of(const CommunicatorState& state,
                                     std::span<const Exchange> steps, std::size_t& bytes) {
  std::vector<Route> made;
  bytes = 0;
  for (const Exchange& step : steps) {
    const bool is_message = step.verb == Verb::send || step.verb == Verb::receive;
    const std::size_t room = is_message ? message_bytes : slot_bytes;
    made.push_back(route_of(state, step, bytes, room));
    const Route& route = made.back();
    const std::size_t rows = std::max<std::size_t>(1, route.blocks.in + route.blocks.out);
    bytes += (std::max(room, rows * route.width * step.element_size) + 63) / 64 * 64;
  }
  return made;
}

void Stager::require_ring(std::size_t bytes) {
  if (ring_ == nullptr || ring_->size() < slots * bytes)
    ring_ = std::make_shared<PinnedBuffer<std::byte>>(slots * bytes);
}

void Stager::start_thread() {
  if (is_started_) return;
  try {
    sync::Thread{[self = shared_from_this()] { self->work(); }}.detach();
  } catch (const std::system_error&) {
    throw std::bad_alloc{};
  }
  is_started_ = true;
}

void Stager::hand_over(const Job& job) {
  const std::lock_guard lock{lock_};
  jobs_.push_back(job);
  wake_.notify_one();
}

void Stager::close() noexcept {
  const std::lock_guard lock{lock_};
  is_closed_ = true;
  wake_.notify_one();
}

void Stager::work() noexcept {
  std::unique_lock lock{lock_};
  for (;;) {
    wake_.wait(lock, [&] { return is_closed_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    std::list<Job> one;
    one.splice(one.end(), jobs_, jobs_.begin());
    lock.unlock();
    run(one.front());
    one.clear();  // perhaps the last owner of the communicator
    lock.lock();
  }
}

void Stager::run_piece(const Job& job, std::size_t piece) {
  const std::uint32_t goal = job.first + static_cast<std::uint32_t>(piece) + 1;
  const sync::AtomicRef<std::uint32_t> number{*ready()};
  const auto is_ready = [&] {
    return has_reached(number.load(std::memory_order_acquire), goal) || job.state->is_broken();
  };
  block_until(is_ready, awake_for);
  job.state->check();
  std::vector<Exchange> steps;
  for (const Route& route : job.routes)
    if (route.has(piece)) steps.push_back(route.in_slot(slot(job, piece), piece));
  run_in_mpi(*job.state, steps);
}

/// The stream goes on in any case.
void Stager::run(const Job& job) noexcept {
  const sync::AtomicRef<std::uint32_t> number{*finished()};
  try {
    for (std::size_t piece = 0; piece < job.pieces; ++piece) {
      run_piece(job, piece);
      number.store(job.first + static_cast<std::uint32_t>(piece) + 1, std::memory_order_release);
    }
  } catch (...) {
    // unless MPI has failed
    job.state->break_with(errc::out_of_memory, operation_of(job.routes.front().step.verb),
                          {no_memory});
    if (given_up_.load(std::memory_order_relaxed) != job.first)
      keep_failure(Access::slot(job.stream), job.stream.id(),
                   {.exception = std::current_exception(), .epoch = job.epoch});
    number.store(job.first + static_cast<std::uint32_t>(job.pieces), std::memory_order_release);
  }
}

void Stager::enqueue_wait(const Job& job, std::uint32_t number) {
  if (job.waits_for_numbers) return job.stream.wait_value(finished(), number);
  job.stream.launch_host_func([self = shared_from_this(), number] {
    const sync::AtomicRef<std::uint32_t> reached{*self->finished()};
    block_until([&] { return has_reached(reached.load(std::memory_order_acquire), number); },
                awake_for);
  });
}

void Stager::enqueue_ready(const Job& job, std::uint32_t number) {
  if (job.waits_for_numbers) return job.stream.write_value(ready(), number);
  job.stream.launch_host_func([self = shared_from_this(), number] {
    sync::AtomicRef<std::uint32_t>{*self->ready()}.store(number, std::memory_order_release);
  });
}

void Stager::enqueue_pieces(const Job& job) {
  const StreamRef stream = job.stream;
  const auto number_of = [&](std::size_t piece) {
    return job.first + static_cast<std::uint32_t>(piece) + 1;
  };
  // No slot is in use: the operation before has waited for all of its pieces, and this one comes
  // after it.
  for (std::size_t piece = 0; piece < job.pieces + slots; ++piece) {
    if (piece >= slots) {
      enqueue_wait(job, number_of(piece - slots));
      for (const Route& route : job.routes)
        if (route.has(piece - slots))
          route.copy_out(stream, slot(job, piece - slots), piece - slots);
    }
    if (piece >= job.pieces) continue;
    for (const Route& route : job.routes)
      if (route.has(piece)) route.copy_in(stream, slot(job, piece), piece);
    enqueue_ready(job, number_of(piece));
  }
}

void Stager::enqueue(const std::shared_ptr<MpiState>& state, StreamRef stream,
                     std::span<const Exchange> steps) {
  std::size_t bytes = 0;
  std::vector<Route> routes = routes_of(*state, steps, bytes);
  require_ring(bytes);
  start_thread();
  std::size_t pieces = 1;
  for (const Route& route : routes) pieces = std::max(pieces, route.pieces());
  const std::uint64_t epoch = live_slot(stream).completions.load(std::memory_order_relaxed);
  numbers_.record_stream(stream);
  const Job job{state,
                ring_,
                std::move(routes),
                pieces,
                next_,
                stream,
                epoch,
                stream.device().has_stream_memory_operations()};
  hand_over(job);
  next_ += static_cast<std::uint32_t>(pieces);
  try {
    enqueue_pieces(job);
  } catch (const std::exception& error) {
    // A part of the operation is in the stream. The other processes cannot be told.
    // before the thread sees that the communicator is broken
    given_up_.store(job.first, std::memory_order_relaxed);
    state->break_with(errc::communicator_broken, operation_of(steps.front().verb),
                      {"a part could not be enqueued: ", error.what()});
    throw;
  }
}

void enqueue_staged(const std::shared_ptr<MpiState>& state, StreamRef stream,
                    std::span<const Exchange> steps) {
  if (state->stager == nullptr) state->stager = std::make_shared<Stager>();
  state->stager->enqueue(state, stream, steps);
}

void close_stager(Stager& stager) noexcept { stager.close(); }

}  // namespace runnel::inline RUNNEL_ABI::detail
