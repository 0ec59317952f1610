// SPDX-License-Identifier: Apache-2.0
/// Posts operations to the library.
#include "comm/ccl_state.hpp"

#include <runnel/error.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

[[nodiscard]] ccl::status exchange(const CommunicatorState& state, const Exchange& step,
                                   size_t count, ccl::Handle communicator,
                                   native::stream stream) noexcept {
  const size_t bytes = blocks_of(state, step).count * step.element_size;
  return in_group(static_cast<size_t>(state.size), [&](size_t i) {
    const size_t begin = i * bytes;
    const int rank = static_cast<int>(i);
    const ccl::status sent =
        ccl::send(at(step.in, begin), count, step.element, rank, communicator, stream);
    return sent != ccl::ok
               ? sent
               : ccl::receive(at(step.out, begin), count, step.element, rank, communicator, stream);
  });
}

/// Makes the library's call, or calls, for one step. `number`: what a barrier reduces.
[[nodiscard]] ccl::status post_step(const CommunicatorState& state, const Exchange& step,
                                    ccl::Handle c, native::stream stream, void* number) noexcept {
  if (step.verb == Verb::barrier)
    return ccl::all_reduce(number, number, 1, Element::uint32, Reduce::max, c, stream);
  const Element type = step.element;
  const size_t each = type == Element::bytes ? step.element_size : is_complex(type) ? 2 : 1;
  const size_t count = blocks_of(state, step).count * each;
  if (count == 0) return ccl::ok;
  switch (step.verb) {
    case Verb::all_reduce:
      return ccl::all_reduce(step.in, step.out, count, type, step.how, c, stream);
    case Verb::reduce:
      return ccl::reduce(step.in, step.out, count, type, step.how, step.peer, c, stream);
    case Verb::reduce_scatter:
      return ccl::reduce_scatter(step.in, step.out, count, type, step.how, c, stream);
    case Verb::broadcast:
      return ccl::broadcast(step.out, step.out, count, type, step.peer, c, stream);
    case Verb::all_gather:
      return ccl::all_gather(step.in, step.out, count, type, c, stream);
    case Verb::all_to_all:
      return exchange(state, step, count, c, stream);
    case Verb::send:
      return ccl::send(step.in, count, type, step.peer, c, stream);
    default:
      return ccl::receive(step.out, count, type, step.peer, c, stream);
  }
}

}  // namespace

void require_supported(const Exchange& step) {
  const char* const operation = operation_of(step.verb);
  if (step.element == Element::int16 || step.element == Element::uint16)
    throw_error(errc::not_supported, operation, "NCCL and RCCL do not reduce integers of 16 bits");
  if (is_complex(step.element) && step.how == Reduce::product)
    throw_error(errc::not_supported, operation, "NCCL and RCCL do not multiply complex numbers");
}

ccl::status CclState::post(StreamRef stream, std::span<const Exchange> steps) const noexcept {
  const auto post_one = [&](size_t i) {
    return post_step(*this, steps[i], ccl_communicator, stream.native(), resources_->number.data());
  };
  return steps.size() == 1 ? post_one(0) : in_group(steps.size(), post_one);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
