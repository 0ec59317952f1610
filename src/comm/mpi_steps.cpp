// SPDX-License-Identifier: Apache-2.0
/// Runs operations in MPI.
#include "comm/mpi_process.hpp"
#include "comm/mpi_state.hpp"

#include "base/announce.hpp"

#include <runnel/error.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <new>
#include <string>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

constinit size_t max_elements_per_mpi_call = size_t{1} << 30;

namespace {

constexpr int tag = 0;

[[nodiscard]] MPI_Datatype type_of(Element element) noexcept {
  const MPI_Datatype types[] = {
      MPI_BYTE,    MPI_INT8_T,          MPI_UINT8_T,         MPI_INT16_T,  MPI_UINT16_T,
      MPI_INT32_T, MPI_UINT32_T,        MPI_INT64_T,         MPI_UINT64_T, MPI_FLOAT,
      MPI_DOUBLE,  MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX};
  return types[static_cast<size_t>(element)];
}

[[nodiscard]] MPI_Op operation_of(Reduce how) noexcept {
  const MPI_Op operations[] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX};
  return operations[static_cast<size_t>(how)];
}

/// How many elements of MPI are in one of the step.
size_t unit_of(const Exchange& step) noexcept {
  return step.element == Element::bytes ? step.element_size : 1;
}
/// The elements of MPI in one block.
int count_of(const CommunicatorState& state, const Exchange& step) noexcept {
  return static_cast<int>(blocks_of(state, step).count * unit_of(step));
}

/// Waits until the operation ends unless `request` is set. `status`: of a receive that has ended.
[[nodiscard]] int begin(const MpiState& state, const Exchange& step, MPI_Request* request,
                        MPI_Status* status) noexcept {
  const MPI_Comm comm = state.operations;
  const auto call = [=](auto blocking, auto other, auto... arguments) {
    return request != nullptr ? other(arguments..., comm, request) : blocking(arguments..., comm);
  };
  const auto& [verb, element, how, peer, element_size, from, from_count, to, to_count] = step;
  const int count = count_of(state, step);
  const MPI_Datatype type = type_of(element);
  const void* const in = is_in_place(state, step) ? MPI_IN_PLACE : from;
  switch (verb) {
    case Verb::all_reduce:
      return call(MPI_Allreduce, MPI_Iallreduce, in, to, count, type, operation_of(how));
    case Verb::reduce:
      return call(MPI_Reduce, MPI_Ireduce, peer == state.rank ? in : from, to, count, type,
                  operation_of(how), peer);
    case Verb::reduce_scatter:
      return call(MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, from, to, count, type,
                  operation_of(how));
    case Verb::broadcast:
      return call(MPI_Bcast, MPI_Ibcast, to, count, type, peer);
    case Verb::all_gather:
      return call(MPI_Allgather, MPI_Iallgather, in, count, type, to, count, type);
    case Verb::all_to_all:
      return call(MPI_Alltoall, MPI_Ialltoall, from, count, type, to, count, type);
    case Verb::send:
      return call(MPI_Send, MPI_Isend, from, count, type, peer, tag);
    case Verb::receive:
      return request != nullptr ? MPI_Irecv(to, count, type, peer, tag, comm, request)
                                : MPI_Recv(to, count, type, peer, tag, comm, status);
    case Verb::barrier:
      break;
  }
  return call(MPI_Barrier, MPI_Ibarrier);
}

/// Breaks the communicator with the error of a call, and throws it with a text that explains it.
void fail(MpiState& state, const char* operation, int result) {
  int kind = MPI_ERR_OTHER;
  MPI_Error_class(result, &kind);
  state.break_with(
      errc::communicator_broken, operation, text_of(result).c_str(),
      kind == MPI_ERR_TRUNCATE ? ": the processes do not agree about the number of elements" : "");
  state.check();
}

/// Polls until all requests are complete. If the time runs out or the communicator breaks, it
/// throws, and the requests stay in MPI. MPI_Waitall() is not used because that of Open MPI 4.1
/// does not return if a message was too long.
void finish(MpiState& state, const char* operation, std::span<MPI_Request> requests,
            std::span<MPI_Status> statuses) {
  const auto begin = sync::Clock::now();
  for (unsigned polls = 1;; ++polls) {
    bool are_over = true;
    for (size_t i = 0; i < requests.size(); ++i) {
      if (requests[i] == MPI_REQUEST_NULL) continue;
      int is_over = 0;
      if (const int result = MPI_Test(&requests[i], &is_over, &statuses[i]); result != MPI_SUCCESS)
        fail(state, operation, result);
      are_over = are_over && is_over != 0;
    }
    if (are_over) return;
    if (polls % 64 != 0) continue;
    sync::yield();
    if (is_late(state.options, begin))
      state.break_with(errc::timed_out, operation, late_text(state.options).c_str());
    state.check();
  }
}

void require_whole(MpiState& state, const Exchange& step, const MPI_Status& status) {
  int received = 0;
  MPI_Get_count(&status, type_of(step.element), &received);
  if (received == count_of(state, step)) return;
  const std::string reason = "process " + std::to_string(step.peer) + " sent " +
                             std::to_string(received) + " bytes of the " +
                             std::to_string(count_of(state, step)) + " that were expected";
  state.break_with(errc::communicator_broken, operation_of(step.verb), reason.c_str());
  state.check();
}

/// Runs sends and receives, which do not wait for each other, or one step with another verb that
/// has a timeout.
void run_together(MpiState& state, std::span<const Exchange> steps) {
  std::vector<MPI_Request> requests(steps.size(), MPI_REQUEST_NULL);
  std::vector<MPI_Status> statuses(steps.size());
  const char* const operation = operation_of(steps.front().verb);
  try {
    for (size_t i = 0; i < steps.size(); ++i)
      if (const int result = begin(state, steps[i], &requests[i], nullptr); result != MPI_SUCCESS)
        fail(state, operation, result);
    finish(state, operation, requests, statuses);
  } catch (...) {
    state.keep_alive_for_mpi();
    throw;
  }
  for (size_t i = 0; i < steps.size(); ++i)
    if (steps[i].verb == Verb::receive) require_whole(state, steps[i], statuses[i]);
}

void run_one(MpiState& state, const Exchange& step) {
  if (state.options.timeout.count() > 0) return run_together(state, {&step, 1});
  MPI_Status status{};
  if (const int result = begin(state, step, nullptr, &status); result != MPI_SUCCESS)
    fail(state, operation_of(step.verb), result);
  if (step.verb == Verb::receive) require_whole(state, step, status);
}

size_t max_elements_of(const Exchange& step) noexcept {
  return std::max<size_t>(1, max_elements_per_mpi_call / unit_of(step));
}

/// `count` elements of a step with one block, from element `first` on.
Exchange part_of(Exchange step, size_t first, size_t count) noexcept {
  step.in = at(step.in, first * step.element_size);
  step.out = at(step.out, first * step.element_size);
  step.in_count = step.in_count == 0 ? 0 : count;
  step.out_count = step.out_count == 0 ? 0 : count;
  return step;
}

/// Runs steps with one block each, in parts that MPI can count. Part i of a message matches part i
/// of the message on the other side.
void run_in_parts(MpiState& state, std::span<const Exchange> steps) {
  std::vector<Exchange> parts;
  for (size_t part = 0;; ++part) {
    parts.clear();
    for (const Exchange& step : steps) {
      const size_t most = max_elements_of(step), count = blocks_of(state, step).count;
      if (part == 0 || part * most < count)
        parts.push_back(part_of(step, part * most, std::min(most, count - part * most)));
    }
    if (parts.empty()) return;
    parts.size() == 1 ? run_one(state, parts.front()) : run_together(state, parts);
  }
}

/// The same for a step with a block for each process, as broadcasts, reductions or messages of one
/// block each.
void run_by_process(MpiState& state, const Exchange& step) {
  const Blocks blocks = blocks_of(state, step);
  const size_t bytes = blocks.bytes;
  const auto block = [&](Verb verb, size_t peer, const void* from, void* to) {
    return Exchange{verb,
                    step.element,
                    step.how,
                    static_cast<int>(peer),
                    step.element_size,
                    from,
                    from == nullptr ? 0 : blocks.count,
                    to,
                    to == nullptr ? 0 : blocks.count};
  };
  const auto run = [&](std::initializer_list<Exchange> parts) { run_in_parts(state, parts); };
  const auto in = [&](size_t r) { return at(step.in, r * bytes); };
  const auto out = [&](size_t r) { return at(step.out, r * bytes); };
  const auto own = static_cast<size_t>(state.rank), size = static_cast<size_t>(state.size);
  if (step.verb == Verb::all_gather) {
    if (!is_in_place(state, step)) std::memcpy(out(own), step.in, bytes);
    for (size_t r = 0; r < size; ++r) run({block(Verb::broadcast, r, out(r), out(r))});
  } else if (step.verb == Verb::reduce_scatter) {
    for (size_t r = 0; r < size; ++r)
      run({block(Verb::reduce, r, in(r), r == own ? step.out : nullptr)});
  } else {
    std::memcpy(out(own), in(own), bytes);
    for (size_t away = 1; away < size; ++away) {
      const size_t to = (own + away) % size, from = (own + size - away) % size;
      run({block(Verb::send, to, in(to), nullptr), block(Verb::receive, from, nullptr, out(from))});
    }
  }
}

/// Compares the arguments of all processes. @throws errc::invalid_argument on each of them if they
/// differ
void compare_arguments(MpiState& state, const Exchange& step) {
  const auto number = [](auto value) { return static_cast<std::int64_t>(value); };
  const bool has_root = step.verb == Verb::reduce || step.verb == Verb::broadcast;
  const std::array<std::int64_t, 5> own{number(step.verb), number(blocks_of(state, step).count),
                                        number(step.element) * 1000 + number(step.element_size),
                                        number(step.how), has_root ? step.peer : 0};
  auto& least = state.compared;
  for (size_t i = 0; i < own.size(); ++i) {
    least[2 * i] = own[i];
    least[2 * i + 1] = -own[i];
  }
  run_one(state, {Verb::all_reduce, Element::int64, Reduce::min, 0, 8, least.data(), least.size(),
                  least.data(), least.size()});
  constexpr std::array<const char*, 5> what{"the operation", "the number of elements",
                                            "the type of the elements", "the reduction",
                                            "the root"};
  for (size_t i = 0; i < own.size(); ++i) {
    if (least[2 * i] == -least[2 * i + 1]) continue;
    state.break_with(errc::invalid_argument, operation_of(step.verb),
                     "the processes do not agree about ", what[i]);
    state.check();
  }
}

void run_step(MpiState& state, const Exchange& step) {
  const Blocks blocks = blocks_of(state, step);
  if (blocks.count <= max_elements_of(step)) return run_one(state, step);
  blocks.in > 1 || blocks.out > 1 ? run_by_process(state, step) : run_in_parts(state, {&step, 1});
}

}  // namespace

void run_in_mpi(MpiState& state, std::span<const Exchange> steps) try {
  const MpiUse use{operation_of(steps.front().verb)};
  state.check();
  for (const Exchange& step : steps) {
    const Blocks blocks = blocks_of(state, step);
    sync::reads(step.in, blocks.in * blocks.bytes);
    sync::writes(step.out, blocks.out * blocks.bytes);
  }
  if (state.options.checked && !is_message(steps.front().verb))
    compare_arguments(state, steps.front());
  steps.size() == 1 ? run_step(state, steps.front()) : run_in_parts(state, steps);
} catch (const std::bad_alloc&) {  // An allocation of this library failed: the other processes
                                   // continue with this operation, and this one cannot.
  state.break_with(errc::out_of_memory, operation_of(steps.front().verb), no_memory);
  throw;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
