// SPDX-License-Identifier: Apache-2.0
/// Operations of MPI on memory of a GPU: pieces are copied from the device into a ring of pinned
/// memory, processed by MPI, and copied back.
///
/// Two counters in pinned memory pass pieces from the stream to a thread that calls MPI, and back;
/// the calling thread does not wait. If streams cannot wait for values in memory, host functions
/// wait, which a runtime may run one at a time.
#include "base/start_thread.hpp"
#include "comm/mpi_state.hpp"

#include "base/polling.hpp"
#include "copy/staging/ring.hpp"
#include "memory/values.hpp"
#include "slot/slots.hpp"

#include <runnel/copy.hpp>
#include <runnel/detail/access.hpp>
#include <runnel/error.hpp>
#include <runnel/memory.hpp>

#include <algorithm>
#include <exception>
#include <list>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

constexpr size_t slots = 4;
constexpr size_t slot_bytes = size_t{4} << 20;  // For an operation of all processes.
// For a send or a receive. It is the same on both sides, independent of the other steps of a group.
constexpr size_t message_bytes = size_t{1} << 19;

/// How long a wait spins. A device or another process often answers within this time, and waking up
/// takes longer.
constexpr std::chrono::microseconds spin_time{200};

/// How a step uses a slot of the ring: `width` elements of each block at a time.
struct SlotLayout {
  Exchange step;
  Blocks blocks;
  size_t width;
  size_t in_at, out_at, end;  // The offsets of the piece in the slot, in bytes.

  size_t pieces() const noexcept { return std::max<size_t>(1, (blocks.count + width - 1) / width); }
  bool has(size_t piece) const noexcept { return piece < pieces(); }
  size_t columns(size_t piece) const noexcept {
    return std::min(width, blocks.count - piece * width);
  }

  /// The operation of MPI on a piece. Requires: has(piece).
  Exchange in_slot(std::byte* slot, size_t piece) const noexcept {
    const size_t count = columns(piece);
    const bool is_broadcast = step.verb == Verb::broadcast;
    Exchange made = step;
    made.in = blocks.in > 0 || is_broadcast ? slot + in_at : nullptr;
    made.out = blocks.out > 0 || is_broadcast ? slot + out_at : nullptr;
    made.in_count = count * std::max<size_t>(1, blocks.in);
    made.out_count = count * std::max<size_t>(1, blocks.out);
    return made;
  }

  ///@{ Enqueue the copy of a piece into the slot, and from the slot. Require: has(piece).
  void copy_in(StreamRef stream, std::byte* slot, size_t piece) const {
    const size_t unit = step.element_size, row = columns(piece) * unit;
    copy_2d(stream, slot + in_at, row, at(step.in, piece * width * unit), blocks.count * unit, row,
            blocks.in);
  }
  void copy_out(StreamRef stream, const std::byte* slot, size_t piece) const {
    const size_t unit = step.element_size, row = columns(piece) * unit;
    copy_2d(stream, at(step.out, piece * width * unit), blocks.count * unit, slot + out_at, row,
            row, blocks.out);
  }
  ///@}
};

[[nodiscard]] SlotLayout layout_of(const CommunicatorState& state, const Exchange& step,
                                   size_t begin) noexcept {
  const Blocks blocks = blocks_of(state, step);
  const size_t room = is_message(step.verb) ? message_bytes : slot_bytes;
  // A reduction with one block is performed in place. A broadcast has one block.
  const bool in_place = step.verb == Verb::all_reduce || step.verb == Verb::broadcast ||
                        (step.verb == Verb::reduce && blocks.out > 0);
  const size_t rows = in_place ? 1 : std::max<size_t>(1, blocks.in + blocks.out);
  const size_t width = std::max<size_t>(1, room / rows / step.element_size);
  const size_t row_bytes = width * step.element_size;
  const size_t out_at = in_place ? begin : begin + blocks.in * row_bytes;
  const size_t end = begin + (std::max(room, rows * row_bytes) + 63) / 64 * 64;
  return {step, blocks, width, begin, out_at, end};
}

struct StagedOperation {
  std::shared_ptr<MpiState> state;
  std::shared_ptr<PinnedBuffer<std::byte>> ring;
  std::vector<SlotLayout> layouts;
  size_t pieces;
  uint32_t first;  // The number of the first piece.
  StreamRef stream;
  uint64_t epoch;
  bool waits_for_numbers;  // If false, host functions wait.

  uint32_t number_of(size_t piece) const noexcept { return first + static_cast<uint32_t>(piece); }
};

}  // namespace

/// The state of a communicator for such operations.
class Stager : public std::enable_shared_from_this<Stager> {
 public:
  Stager() : numbers_{64U} { std::ranges::fill(numbers_, 0U); }
  /// Requires: no other thread is in this function.
  void enqueue(const std::shared_ptr<MpiState>& state, StreamRef stream,
               std::span<const Exchange> steps);
  /// Ends the thread after the last operation. Requires: enqueue() is not called any more.
  void close() noexcept;

 private:
  void work() noexcept;
  void run(const StagedOperation& operation) noexcept;
  void run_piece(const StagedOperation& operation, size_t piece);
  void enqueue_pieces(const StagedOperation& operation);

  /// @{ The number of pieces that the stream has copied into the ring, and the number that MPI has
  /// finished.
  Value ready() noexcept { return Value{numbers_.data()}; }
  Value finished() noexcept { return Value{numbers_.data() + 32}; }
  ///@}
  [[nodiscard]] std::byte* slot(const StagedOperation& operation, size_t piece) const noexcept {
    return operation.ring->data() +
           (operation.first + piece) % slots * (operation.ring->size() / slots);
  }

  PinnedBuffer<uint32_t> numbers_;
  std::shared_ptr<PinnedBuffer<std::byte>> ring_;
  uint32_t next_ = 0;  // The number of the next piece.
  bool is_started_ = false;
  // The first piece of an operation whose error was thrown to the caller.
  sync::Atomic<uint64_t> abandoned_{~uint64_t{0}};

  sync::Mutex lock_;
  sync::ConditionVariable wake_;
  std::list<StagedOperation> operations_;
  bool is_closed_ = false;
};

void Stager::close() noexcept {
  const std::lock_guard lock{lock_};
  is_closed_ = true;
  wake_.notify_one();
}

void Stager::work() noexcept {
  std::unique_lock lock{lock_};
  for (;;) {
    wake_.wait(lock, [&] { return is_closed_ || !operations_.empty(); });
    if (operations_.empty()) return;
    std::list<StagedOperation> one;
    one.splice(one.end(), operations_, operations_.begin());
    lock.unlock();
    run(one.front());
    one.clear();  // This may be the last owner of the communicator.
    lock.lock();
  }
}

void Stager::run_piece(const StagedOperation& operation, size_t piece) {
  const uint32_t goal = operation.number_of(piece + 1);
  const auto is_ready = [&] { return ready().has_reached(goal) || operation.state->is_broken(); };
  block_until(is_ready, spin_time);
  operation.state->check();
  std::vector<Exchange> steps;
  for (const SlotLayout& layout : operation.layouts)
    if (layout.has(piece)) steps.push_back(layout.in_slot(slot(operation, piece), piece));
  run_in_mpi(*operation.state, steps);
}

/// Sets the counter to the last piece in any case, so that the stream continues.
void Stager::run(const StagedOperation& operation) noexcept {
  try {
    for (size_t piece = 0; piece < operation.pieces; ++piece) {
      run_piece(operation, piece);
      finished().set(operation.number_of(piece + 1));
    }
  } catch (...) {
    // Has no effect if MPI has failed: the communicator is broken then.
    operation.state->break_with(errc::out_of_memory,
                                operation_of(operation.layouts.front().step.verb), no_memory);
    if (abandoned_ != operation.first)
      keep_failure(Access::slot(operation.stream), operation.stream.id(),
                   {.exception = std::current_exception(), .epoch = operation.epoch});
    finished().set(operation.number_of(operation.pieces));
  }
}

void Stager::enqueue_pieces(const StagedOperation& operation) {
  const StreamRef stream = operation.stream;
  const auto wait_for_mpi = [&](uint32_t number) {
    if (operation.waits_for_numbers)
      return wait_for_own_value(stream, finished().address(), number);
    stream.launch_host_func([self = shared_from_this(), number] {
      block_until([&] { return self->finished().has_reached(number); }, spin_time);
    });
  };
  const auto notify_mpi = [&](uint32_t number) {
    if (operation.waits_for_numbers) return stream.write_value(ready().address(), number);
    stream.launch_host_func([self = shared_from_this(), number] { self->ready().set(number); });
  };
  // All slots are free: this operation runs after the previous one, which has waited for all of its
  // pieces.
  for (size_t piece = 0; piece < operation.pieces + slots; ++piece) {
    if (piece >= slots) {
      wait_for_mpi(operation.number_of(piece - slots + 1));
      for (const SlotLayout& layout : operation.layouts)
        if (layout.has(piece - slots))
          layout.copy_out(stream, slot(operation, piece - slots), piece - slots);
    }
    if (piece >= operation.pieces) continue;
    for (const SlotLayout& layout : operation.layouts)
      if (layout.has(piece)) layout.copy_in(stream, slot(operation, piece), piece);
    notify_mpi(operation.number_of(piece + 1));
  }
}

void Stager::enqueue(const std::shared_ptr<MpiState>& state, StreamRef stream,
                     std::span<const Exchange> steps) {
  std::vector<SlotLayout> layouts;
  size_t pieces = 1, bytes = 0;  // Bytes of a slot.
  for (const Exchange& step : steps) {
    const SlotLayout& layout = layouts.emplace_back(layout_of(*state, step, bytes));
    pieces = std::max(pieces, layout.pieces());
    bytes = layout.end;
  }
  if (ring_ == nullptr || ring_->size() < slots * bytes)
    ring_ = std::make_shared<PinnedBuffer<std::byte>>(slots * bytes);
  if (!is_started_ && !start_thread([self = shared_from_this()] { self->work(); }))
    throw std::bad_alloc{};
  is_started_ = true;
  const uint64_t epoch = live_slot(stream).timeline.epoch();
  numbers_.record_stream(stream);
  const StagedOperation operation{state,
                                  ring_,
                                  std::move(layouts),
                                  pieces,
                                  next_,
                                  stream,
                                  epoch,
                                  stream.device().has_stream_memory_operations()};
  {
    const std::lock_guard lock{lock_};
    operations_.push_back(operation);
    wake_.notify_one();
  }
  next_ += static_cast<uint32_t>(pieces);
  try {
    enqueue_pieces(operation);
  } catch (const std::exception& error) {
    // A part of the operation is enqueued, and the other processes cannot be notified. The store
    // must precede break_with(), after which the thread can find the communicator broken.
    abandoned_ = operation.first;
    state->break_with(errc::communicator_broken, operation_of(steps.front().verb),
                      "a part could not be enqueued: ", error.what());
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
