// SPDX-License-Identifier: Apache-2.0
/// Posts operations to the library.
#include "comm/ccl_state.hpp"

#include <runnel/error.hpp>

#include <cstddef>
#include <ranges>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {
namespace {

[[nodiscard]] bool is_complex(Element element) noexcept {
  return element == Element::complex64 || element == Element::complex128;
}

[[nodiscard]] ccl::status exchange(const CommunicatorState& state, const Exchange& step,
                                   std::size_t count, ccl::Handle communicator,
                                   native::stream stream) noexcept {
  const std::size_t bytes = blocks_of(state, step).count * step.element_size;
  return in_group(std::views::iota(0, state.size), [&](int rank) {
    const std::size_t begin = static_cast<std::size_t>(rank) * bytes;
    const ccl::status sent =
        ccl::send(at(step.in, begin), count, step.element, rank, communicator, stream);
    return sent != ccl::ok
               ? sent
               : ccl::receive(at(step.out, begin), count, step.element, rank, communicator, stream);
  });
}

}  // namespace

void require_supported(const Exchange& step) {
  const char* const operation = operation_of(step.verb);
  if (step.element == Element::int16 || step.element == Element::uint16)
    throw_error(errc::not_supported, operation, "NCCL and RCCL do not reduce integers of 16 bits");
  if (is_complex(step.element) && step.how == Reduce::product)
    throw_error(errc::not_supported, operation, "NCCL and RCCL do not multiply complex numbers");
}

ccl::status post_step(const CommunicatorState& state, const Exchange& step, ccl::Handle c,
                      native::stream stream, void* number) noexcept {
  if (step.verb == Verb::barrier)
    return ccl::all_reduce(number, number, 1, Element::uint32, Reduce::max, c, stream);
  const Element type = step.element;
  const std::size_t each = type == Element::bytes ? step.element_size : is_complex(type) ? 2 : 1;
  const std::size_t count = blocks_of(state, step).count * each;
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

ccl::status CclState::post(StreamRef stream, std::span<const Exchange> steps) const noexcept {
  const auto post_one = [&](const Exchange& step) {
    return post_step(*this, step, ccl_communicator, stream.native(), resources_->number.data());
  };
  return steps.size() == 1 ? post_one(steps.front()) : in_group(steps, post_one);
}

}}}  // namespace runnel::RUNNEL_ABI::detail
