// SPDX-License-Identifier: Apache-2.0
#include <runnel/communicator.hpp>

#include "comm/mpi_process.hpp"
#include "comm/state.hpp"
#include "stream/slots.hpp"

#include <runnel/error.hpp>
#include <runnel/race_checker.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

namespace runnel::inline RUNNEL_ABI {
namespace detail {
namespace {

constexpr const char* making = "make a communicator";

[[nodiscard]] bool do_overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) noexcept {
  const std::less<const void*> before;
  return a_bytes > 0 && b_bytes > 0 && before(a, at(b, b_bytes)) && before(b, at(a, a_bytes));
}

/// Whether input and output may be the same memory in this way.
[[nodiscard]] bool is_in_place(const CommunicatorState& state, const Transfer& step) noexcept {
  if (step.verb == Verb::all_gather)
    return step.in == at(step.out, static_cast<std::size_t>(state.rank) * step.in_count * step.element_size);
  return step.in == step.out && (step.verb == Verb::all_reduce || step.verb == Verb::reduce || step.verb == Verb::broadcast);
}

void require_sizes(const CommunicatorState& state, const Transfer& step, const char* operation) {
  const auto size = static_cast<std::size_t>(state.size);
  const auto refuse = [&](const char* reason) { throw_error(errc::invalid_argument, operation, reason); };
  switch (step.verb) {
    case Verb::all_reduce:
      if (step.in_count != step.out_count) refuse("the output has another size than the input");
      break;
    case Verb::reduce:
      if (step.peer == state.rank && step.in_count != step.out_count) refuse("the output of the root has another size than the input");
      break;
    case Verb::reduce_scatter:
      if (step.in_count / size != step.out_count || step.in_count % size != 0)
        refuse("the input is not size() times as large as the output");
      break;
    case Verb::all_gather:
      if (step.out_count / size != step.in_count || step.out_count % size != 0)
        refuse("the output is not size() times as large as the input");
      break;
    case Verb::all_to_all:
      if (step.in_count != step.out_count) refuse("the output has another size than the input");
      if (step.in_count % size != 0) refuse("the size cannot be divided by size()");
      break;
    default:
      break;
  }
}

/// Tells the race checker what the operation will read and write.
void declare(const CommunicatorState& state, StreamRef stream, const Transfer& step) {
  const Blocks blocks = blocks_of(state, step);
  if (blocks.in > 0) stream.reads(step.in, blocks.in * blocks.count * step.element_size);
  if (blocks.out > 0) stream.writes(step.out, blocks.out * blocks.count * step.element_size);
}

void enqueue(const std::shared_ptr<CommunicatorState>& state, StreamRef stream, std::span<const Transfer> steps) {
  const char* const operation = operation_of(steps.front().verb);
  require_mpi(operation);
  if (state->is_broken()) state->check();
  for (const Transfer& step : steps) require_valid(*state, step);
  if (stream.is_capturing()) throw_error(errc::capture, operation, "MPI runs on the host, so that a graph cannot repeat it");
  CommunicatingDevice& device = communicating_device(stream.device().ordinal());
  Baton& baton = state->own_baton != nullptr ? *state->own_baton : device.baton;
  baton.in_turn(stream, [&] {
    if (is_checking())
      for (const Transfer& step : steps) declare(*state, stream, step);
    device.memory_is_the_hosts ? enqueue_task(state, stream, steps) : enqueue_staged(state, stream, steps);
  });
}

[[nodiscard]] CommunicatorState& living(const std::shared_ptr<CommunicatorState>& state, const char* operation) {
  if (state == nullptr) throw_error(errc::invalid_handle, operation, "the communicator was moved from");
  return *state;
}

}  // namespace

const char* operation_of(Verb verb) noexcept {
  constexpr std::array<const char*, 9> texts{"run all_reduce", "run reduce",    "run reduce_scatter", "run broadcast", "run all_gather",
                                             "run all_to_all", "send elements", "receive elements",   "run a barrier"};
  return texts[static_cast<std::size_t>(verb)];
}

Blocks blocks_of(const CommunicatorState& state, const Transfer& step) noexcept {
  const auto size = static_cast<std::size_t>(state.size);
  const bool is_root = step.peer == state.rank;
  switch (step.verb) {
    case Verb::all_reduce:
      return {1, 1, step.in_count};
    case Verb::reduce:
      return {1, is_root ? std::size_t{1} : std::size_t{0}, step.in_count};
    case Verb::reduce_scatter:
      return {size, 1, step.out_count};
    case Verb::broadcast:
      return {is_root ? std::size_t{1} : std::size_t{0}, is_root ? std::size_t{0} : std::size_t{1}, step.out_count};
    case Verb::all_gather:
      return {1, size, step.in_count};
    case Verb::all_to_all:
      return {size, size, step.in_count / size};
    case Verb::send:
      return {1, 0, step.in_count};
    case Verb::receive:
      return {0, 1, step.out_count};
    case Verb::barrier:
      break;
  }
  return {0, 0, 0};
}

void require_valid(const CommunicatorState& state, const Transfer& step) {
  const char* const operation = operation_of(step.verb);
  if (step.peer < 0 || step.peer >= state.size) {
    const std::string reason = "there is no process " + std::to_string(step.peer) + ": there are " + std::to_string(state.size);
    throw_error(errc::invalid_argument, operation, reason.c_str());
  }
  if (step.peer == state.rank && (step.verb == Verb::send || step.verb == Verb::receive))
    throw_error(errc::invalid_argument, operation, "the other process is this one: copy() does that");
  require_sizes(state, step, operation);
  const bool is_complex = step.element == Element::complex64 || step.element == Element::complex128;
  if (is_complex && (step.how == Reduce::min || step.how == Reduce::max))
    throw_error(errc::invalid_argument, operation, "complex numbers have no order, so that there is no least and no greatest one");
  const Blocks blocks = blocks_of(state, step);
  const std::size_t bytes = blocks.count * step.element_size;
  if (!is_in_place(state, step) && do_overlap(step.in, blocks.in * bytes, step.out, blocks.out * bytes))
    throw_error(errc::invalid_argument, operation, "input and output overlap");
}

CommunicatorState::CommunicatorState(MPI_Comm parent, const CommunicatorOptions& given) : options{given}, name{given.name} {
  options.name = name.c_str();
  options.checked = given.checked || is_checking();
  if (given.concurrent) own_baton = make_baton();
  check_mpi(MPI_Comm_dup(parent, &operations), making);
  check_mpi(MPI_Comm_dup(parent, &calls), making);
  for (MPI_Comm each : {operations, calls}) check_mpi(MPI_Comm_set_errhandler(each, MPI_ERRORS_RETURN), making);
  MPI_Comm_rank(operations, &rank);
  MPI_Comm_size(operations, &size);
}

CommunicatorState::~CommunicatorState() {
  if (stager != nullptr) close_stager(*stager);
  free_communicators(operations, calls);
}

void CommunicatorState::break_with(errc code, const char* operation, std::string reason) noexcept {
  const std::lock_guard lock{breakage_lock_};
  if (breakage_) return;
  breakage_ = Breakage{code, operation, std::move(reason)};
  broken_.store(true, std::memory_order_release);
}

void CommunicatorState::check() const {
  if (!is_broken()) return;
  const std::lock_guard lock{breakage_lock_};
  const std::string reason = (name.empty() ? breakage_->reason : "communicator '" + name + "': " + breakage_->reason);
  throw_error(breakage_->code, breakage_->operation, reason.c_str());
}

void enqueue_task(const std::shared_ptr<CommunicatorState>& state, StreamRef stream, std::span<const Transfer> steps) {
  if (steps.size() == 1)
    stream.launch_host_func([state, step = steps.front()] { run_in_mpi(*state, {&step, 1}); });
  else
    stream.launch_host_func([state, all = std::vector<Transfer>(steps.begin(), steps.end())] { run_in_mpi(*state, all); });
}

}  // namespace detail

Communicator::Communicator(const World& world, const CommunicatorOptions& options) {
  if (options.timeout.count() < 0) detail::throw_error(errc::invalid_argument, detail::making, "the timeout is negative");
  if (world.mpi_communicator < 0)
    detail::throw_error(errc::invalid_argument, detail::making, "the world names no MPI communicator: mpi::world() makes one that does");
  detail::prepare_mpi(detail::making, world.mpi_library);
  state_ = std::make_shared<detail::CommunicatorState>(MPI_Comm_f2c(world.mpi_communicator), options);
}

int Communicator::rank() const { return detail::living(state_, "ask a communicator").rank; }
int Communicator::size() const { return detail::living(state_, "ask a communicator").size; }
const char* Communicator::name() const { return detail::living(state_, "ask a communicator").name.c_str(); }
int Communicator::mpi_communicator() const { return MPI_Comm_c2f(detail::living(state_, "ask a communicator").operations); }

Communicator Communicator::split(int color, int key) const {
  constexpr const char* operation = "split a communicator";
  const detail::CommunicatorState& state = detail::living(state_, operation);
  if (color < 0) detail::throw_error(errc::invalid_argument, operation, "the color is negative");
  detail::require_mpi(operation);
  state.check();
  MPI_Comm part = MPI_COMM_NULL;
  detail::check_mpi(MPI_Comm_split(state.calls, color, key, &part), operation);
  auto made = std::make_shared<detail::CommunicatorState>(part, state.options);
  MPI_Comm_free(&part);
  return Communicator{std::move(made)};
}

void Communicator::barrier(StreamRef stream) const {
  run(stream, {detail::Verb::barrier, detail::Element::bytes, Reduce::sum, 0, 1, nullptr, 0, nullptr, 0});
}

void Communicator::run(StreamRef stream, const detail::Transfer& step) const {
  static_cast<void>(detail::living(state_, "use a communicator"));
  detail::enqueue(state_, stream, {&step, 1});
}

void Communicator::run_group(StreamRef stream, const std::vector<detail::Transfer>& steps) const {
  static_cast<void>(detail::living(state_, "use a communicator"));
  if (!steps.empty()) detail::enqueue(state_, stream, steps);
}

void Communicator::check() const { detail::living(state_, "check a communicator").check(); }

void Communicator::abort() noexcept {
  if (state_ != nullptr) state_->break_with(errc::communicator_broken, "use a communicator", "abort() was called");
}

}  // namespace runnel::inline RUNNEL_ABI
