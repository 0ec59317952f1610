// SPDX-License-Identifier: Apache-2.0
#include <runnel/communicator.hpp>

#include "base/check.hpp"
#include "base/process.hpp"
#include "comm/state.hpp"
#include "copy/transfer.hpp"

#include <runnel/error.hpp>
#include <runnel/race_checker.hpp>

#include <array>
#include <cstdint>
#include <exception>
#include <string>
#include <tuple>
#include <utility>

namespace runnel::inline RUNNEL_ABI {
namespace detail {
namespace {

void require_sizes(const Blocks& blocks, const Exchange& step, const char* operation) {
  if ((blocks.in == 0 || step.in_count == blocks.in * blocks.count) &&
      (blocks.out == 0 || step.out_count == blocks.out * blocks.count))
    return;
  throw_invalid_argument(
      operation,
      step.verb == Verb::reduce_scatter ? "the input is not size() times as large as the output"
      : step.verb == Verb::all_gather   ? "the output is not size() times as large as the input"
      : step.in_count == step.out_count ? "the size cannot be divided by size()"
                                        : "the output has another size than the input");
}

/// Refuses null pointers unless there are no elements, and ranges that end beyond the address
/// space.
void require_memory(const Blocks& blocks, const Exchange& step, const char* operation) {
  size_t bytes = 0;
  for (const auto& [count, memory, name] :
       {std::tuple{blocks.in, step.in, "input"}, {blocks.out, step.out, "output"}}) {
    if (count == 0 || blocks.count == 0) continue;
    if (memory == nullptr)
      throw_formatted(errc::invalid_argument, operation, backend::ok,
                      "the %s is null, and has elements", name);
    if (__builtin_mul_overflow(blocks.count, step.element_size, &bytes) ||
        __builtin_mul_overflow(bytes, count, &bytes) ||
        __builtin_add_overflow(bytes, reinterpret_cast<uintptr_t>(memory), &bytes))
      throw_formatted(errc::invalid_argument, operation, backend::ok,
                      "the %s ends beyond any address", name);
  }
}

void enqueue(CommunicatorState& state, StreamRef stream, std::span<const Exchange> steps) {
  const char* const operation = operation_of(steps.front().verb);
  enter(operation);
  state.require_engine(operation);
  state.check();
  for (const Exchange& step : steps) require_valid(state, step);
  state.enqueue(stream, steps);
}

void require_options(const CommunicatorOptions& options) {
  enter(making_communicator);
  if (options.timeout.count() < 0)
    throw_invalid_argument(making_communicator, "the timeout is negative");
}

[[nodiscard]] CommunicatorState& live_state(const std::shared_ptr<CommunicatorState>& state,
                                            const char* operation) {
  if (state == nullptr)
    throw_error(errc::invalid_handle, operation, "the communicator was moved from");
  return *state;
}

}  // namespace

const char* operation_of(Verb verb) noexcept {
  constexpr std::array<const char*, 9> texts{
      "run all_reduce", "run reduce",    "run reduce_scatter", "run broadcast", "run all_gather",
      "run all_to_all", "send elements", "receive elements",   "run a barrier"};
  return texts[static_cast<size_t>(verb)];
}

Blocks blocks_of(const CommunicatorState& state, const Exchange& step) noexcept {
  const auto size = static_cast<size_t>(state.size);
  const size_t root = step.peer == state.rank ? 1 : 0;
  const auto blocks = [&](size_t in, size_t out, size_t count) {
    return Blocks{in, out, count, count * step.element_size};
  };
  switch (step.verb) {
    case Verb::all_reduce:
      return blocks(1, 1, step.in_count);
    case Verb::reduce:
      return blocks(1, root, step.in_count);
    case Verb::reduce_scatter:
      return blocks(size, 1, step.out_count);
    case Verb::broadcast:
      return blocks(root, 1 - root, step.out_count);
    case Verb::all_gather:
      return blocks(1, size, step.in_count);
    case Verb::all_to_all:
      return blocks(size, size, step.in_count / size);
    case Verb::send:
      return blocks(1, 0, step.in_count);
    case Verb::receive:
      return blocks(0, 1, step.out_count);
    case Verb::barrier:
      break;
  }
  return {};
}

bool is_in_place(const CommunicatorState& state, const Exchange& step) noexcept {
  if (step.verb == Verb::all_gather)
    return step.in == at(step.out, static_cast<size_t>(state.rank) * blocks_of(state, step).bytes);
  return step.in == step.out && (step.verb == Verb::all_reduce || step.verb == Verb::reduce ||
                                 step.verb == Verb::broadcast);
}

void require_valid(const CommunicatorState& state, const Exchange& step) {
  const char* const operation = operation_of(step.verb);
  if (step.peer < 0 || step.peer >= state.size)
    throw_formatted(errc::invalid_argument, operation, backend::ok,
                    "there is no process %d: there are %d", step.peer, state.size);
  if (step.peer == state.rank && is_message(step.verb))
    throw_invalid_argument(operation, "the other process is this one: copy() does that");
  const Blocks blocks = blocks_of(state, step);
  require_sizes(blocks, step, operation);
  if (is_complex(step.element) && (step.how == Reduce::min || step.how == Reduce::max))
    throw_invalid_argument(
        operation, "complex numbers have no order, so that there is no least and no greatest one");
  require_memory(blocks, step, operation);
  if (!is_in_place(state, step) &&
      do_overlap({step.in, blocks.in * blocks.bytes}, {step.out, blocks.out * blocks.bytes}))
    throw_invalid_argument(operation, "input and output overlap");
}

void refuse_nested_together() {
  throw_error(errc::not_permitted, "enqueue operations together",
              "another together() of this thread is under way");
}

void declare_accesses(const CommunicatorState& state, StreamRef stream,
                      std::span<const Exchange> steps) {
  if (!is_checking()) return;
  for (const Exchange& step : steps) {
    const Blocks blocks = blocks_of(state, step);
    if (blocks.in > 0) stream.declare_reads(step.in, blocks.in * blocks.bytes);
    if (blocks.out > 0) stream.declare_writes(step.out, blocks.out * blocks.bytes);
  }
}

CommunicatorState::CommunicatorState(Engine of, const CommunicatorOptions& given)
    : engine{of}, options{given}, name{given.name} {
  options.name = name.c_str();
  options.checked = given.checked || is_checking();
  if (given.concurrent) own_order = make_serial_order();
}

std::string late_text(const CommunicatorOptions& options) {
  return "another process did not take part within the timeout of " +
         std::to_string(options.timeout.count()) + " ms";
}

bool CommunicatorState::break_with(errc code, const char* operation, const char* reason,
                                   const char* more) noexcept {
  const std::lock_guard lock{reason_lock_};
  if (reason_ != nullptr) return false;
  try {
    const bool has_name = !name.empty();
    throw_formatted(code, operation, backend::ok, "%s%s%s%s%s", has_name ? "communicator '" : "",
                    name.c_str(), has_name ? "': " : "", reason, more);
  } catch (...) {
    reason_ = std::current_exception();
  }
  broken_ = true;
  notify_streams(reason_);
  return true;
}

void CommunicatorState::check() const {
  if (!is_broken()) return;
  // break_with() holds this lock until notify_streams() returns.
  const std::lock_guard lock{reason_lock_};
  std::rethrow_exception(reason_);
}

}  // namespace detail

using namespace detail;

Communicator::Communicator(const World& world, const CommunicatorOptions& options) {
  require_options(options);
  const bool is_ccl = options.engine == Engine::ccl || (options.engine == Engine::automatic &&
                                                        has_ccl() && !do_share_devices(world));
  state_ = is_ccl ? make_ccl_state(world, options) : make_mpi_state(world, options);
}

std::vector<Communicator> Communicator::of_devices(std::span<const Device> devices,
                                                   const CommunicatorOptions& options) {
  require_options(options);
  std::vector<Communicator> made;
  for (auto& each : make_ccl_states(devices, options))
    made.push_back(Communicator{std::move(each)});
  return made;
}

int Communicator::rank() const { return live_state(state_, "ask a communicator").rank; }
int Communicator::size() const { return live_state(state_, "ask a communicator").size; }
const char* Communicator::name() const {
  return live_state(state_, "ask a communicator").name.c_str();
}
Engine Communicator::engine() const { return live_state(state_, "ask a communicator").engine; }
int Communicator::mpi_communicator() const {
  return live_state(state_, "ask a communicator").mpi_communicator;
}
void* Communicator::ccl_communicator() const {
  return live_state(state_, "ask a communicator").ccl_communicator;
}

Communicator Communicator::split(int color, int key) const {
  constexpr const char* operation = "split a communicator";
  CommunicatorState& state = live_state(state_, operation);
  enter(operation);
  if (color < 0) throw_invalid_argument(operation, "the color is negative");
  if (is_in_together())
    throw_error(errc::not_permitted, operation,
                "it waits for the other processes, which together() would keep waiting");
  state.require_engine(operation);
  state.check();
  return Communicator{state.split(color, key)};
}

void Communicator::barrier(StreamRef stream) const { run(stream, barrier_step); }

void Communicator::run(StreamRef stream, const Exchange& step) const {
  enqueue(live_state(state_, "use a communicator"), stream, {&step, 1});
}

void Communicator::run_group(StreamRef stream, const std::vector<Exchange>& steps) const {
  CommunicatorState& state = live_state(state_, "use a communicator");
  if (!steps.empty()) enqueue(state, stream, steps);
}

void Communicator::check() const {
  constexpr const char* operation = "check a communicator";
  CommunicatorState& state = live_state(state_, operation);
  refuse_in_child(operation);
  state.look_for_errors();
  state.check();
}

void Communicator::abort() noexcept {
  if (state_ == nullptr || is_forked_child()) return;
  state_->break_and_end(errc::communicator_broken, "use a communicator", "abort() was called");
}

}  // namespace runnel::inline RUNNEL_ABI
