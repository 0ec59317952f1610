// SPDX-License-Identifier: Apache-2.0
/// Posts operations to the library.
#include "comm/ccl_state.hpp"

#include <runnel/error.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

[[nodiscard]] ccl::Reduction reduction_of(Reduce how) noexcept {
  switch (how) {
    case Reduce::product:
      return ccl::Reduction::product;
    case Reduce::min:
      return ccl::Reduction::min;
    case Reduce::max:
      return ccl::Reduction::max;
    case Reduce::sum:
      break;
  }
  return ccl::Reduction::sum;
}

/// The library's type for an element, and how many of them make up one element.
struct Elements {
  ccl::Type type;
  std::size_t each;
};

[[nodiscard]] Elements elements_of(const Exchange& step) noexcept {
  switch (step.element) {
    case Element::int8:
      return {ccl::Type::int8, 1};
    case Element::uint8:
      return {ccl::Type::uint8, 1};
    case Element::int32:
      return {ccl::Type::int32, 1};
    case Element::uint32:
      return {ccl::Type::uint32, 1};
    case Element::int64:
      return {ccl::Type::int64, 1};
    case Element::uint64:
      return {ccl::Type::uint64, 1};
    case Element::float32:
      return {ccl::Type::float32, 1};
    case Element::float64:
      return {ccl::Type::float64, 1};
    case Element::complex64:
      return {ccl::Type::float32, 2};
    case Element::complex128:
      return {ccl::Type::float64, 2};
    default:
      return {ccl::Type::bytes, step.element_size};
  }
}

[[nodiscard]] ccl::status exchange(const CommunicatorState& state, const Exchange& step,
                                   std::size_t count, ccl::Type type, ccl::Handle communicator,
                                   native::stream stream) noexcept {
  const std::size_t bytes = blocks_of(state, step).count * step.element_size;
  return in_group([&] {
    ccl::status status = ccl::ok;
    for (int rank = 0; rank < state.size && status == ccl::ok; ++rank) {
      const std::size_t begin = static_cast<std::size_t>(rank) * bytes;
      status = ccl::send(at(step.in, begin), count, type, rank, communicator, stream);
      if (status == ccl::ok)
        status = ccl::receive(at(step.out, begin), count, type, rank, communicator, stream);
    }
    return status;
  });
}

}  // namespace

void require_supported(const Exchange& step) {
  const char* const operation = operation_of(step.verb);
  if (step.element == Element::int16 || step.element == Element::uint16)
    throw_error(errc::not_supported, operation, "NCCL and RCCL do not reduce integers of 16 bits");
  const bool is_complex = step.element == Element::complex64 || step.element == Element::complex128;
  if (is_complex && step.how == Reduce::product)
    throw_error(errc::not_supported, operation, "NCCL and RCCL do not multiply complex numbers");
}

ccl::status post_step(const CommunicatorState& state, const Exchange& step, ccl::Handle c,
                      native::stream stream, void* number) noexcept {
  if (step.verb == Verb::barrier)
    return ccl::all_reduce(number, number, 1, ccl::Type::uint32, ccl::Reduction::max, c, stream);
  const Elements elements = elements_of(step);
  const std::size_t count = blocks_of(state, step).count * elements.each;
  const ccl::Reduction how = reduction_of(step.how);
  if (count == 0) return ccl::ok;
  switch (step.verb) {
    case Verb::all_reduce:
      return ccl::all_reduce(step.in, step.out, count, elements.type, how, c, stream);
    case Verb::reduce:
      return ccl::reduce(step.in, step.out, count, elements.type, how, step.peer, c, stream);
    case Verb::reduce_scatter:
      return ccl::reduce_scatter(step.in, step.out, count, elements.type, how, c, stream);
    case Verb::broadcast:
      return ccl::broadcast(step.out, step.out, count, elements.type, step.peer, c, stream);
    case Verb::all_gather:
      return ccl::all_gather(step.in, step.out, count, elements.type, c, stream);
    case Verb::all_to_all:
      return exchange(state, step, count, elements.type, c, stream);
    case Verb::send:
      return ccl::send(step.in, count, elements.type, step.peer, c, stream);
    default:
      return ccl::receive(step.out, count, elements.type, step.peer, c, stream);
  }
}

ccl::status CclState::post(StreamRef stream, std::span<const Exchange> steps) const noexcept {
  void* const number = resources_->number.data();
  if (steps.size() == 1)
    return post_step(*this, steps.front(), ccl_communicator, stream.native(), number);
  return in_group([&] {
    ccl::status status = ccl::ok;
    for (const Exchange& step : steps)
      if (status == ccl::ok)
        status = post_step(*this, step, ccl_communicator, stream.native(), number);
    return status;
  });
}

}  // namespace runnel::inline RUNNEL_ABI::detail
