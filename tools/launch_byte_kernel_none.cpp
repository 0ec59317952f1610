// SPDX-License-Identifier: Apache-2.0
// Replaces the kernels if the backend needs a device compiler and none was found.
#include "launch_byte_kernel.hpp"

#include "failure.hpp"

#include <runnel/config.hpp>

namespace tool {

const char* why_no_byte_kernel() noexcept {
  return "this runnel was built for " RUNNEL_BACKEND
         " without its device compiler, so it has no kernel to run; build again with nvcc in PATH, "
         "or with -Dgpu_backend=host";
}

void launch_map_and_count(runnel::StreamRef, runnel::DeviceSpan<const unsigned char>,
                          runnel::DeviceSpan<unsigned char>, const ByteMap&,
                          runnel::DeviceSpan<ByteCount>) {
  throw Failure(why_no_byte_kernel());
}

void launch_count(runnel::StreamRef, runnel::DeviceSpan<const unsigned char>,
                  runnel::DeviceSpan<ByteCount>) {
  throw Failure(why_no_byte_kernel());
}

std::size_t sums_of_a_chunk() noexcept { return 1; }

template <class Number>
void launch_sum(runnel::StreamRef, runnel::DeviceSpan<const Number>,
                runnel::DeviceSpan<SumOf<Number>>) {
  throw Failure(why_no_byte_kernel());
}
template void launch_sum<std::uint8_t>(runnel::StreamRef, runnel::DeviceSpan<const std::uint8_t>,
                                       runnel::DeviceSpan<IntegerSum>);
template void launch_sum<std::int32_t>(runnel::StreamRef, runnel::DeviceSpan<const std::int32_t>,
                                       runnel::DeviceSpan<IntegerSum>);
template void launch_sum<std::int64_t>(runnel::StreamRef, runnel::DeviceSpan<const std::int64_t>,
                                       runnel::DeviceSpan<IntegerSum>);
template void launch_sum<float>(runnel::StreamRef, runnel::DeviceSpan<const float>,
                                runnel::DeviceSpan<FloatSum>);
template void launch_sum<double>(runnel::StreamRef, runnel::DeviceSpan<const double>,
                                 runnel::DeviceSpan<FloatSum>);

void launch_double_and_add_one(runnel::StreamRef, runnel::DeviceSpan<const unsigned char>,
                               runnel::DeviceSpan<unsigned char>, unsigned) {
  throw Failure(why_no_byte_kernel());
}

}  // namespace tool
