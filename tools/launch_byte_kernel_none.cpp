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

void launch_double_and_add_one(runnel::StreamRef, runnel::DeviceSpan<const unsigned char>,
                               runnel::DeviceSpan<unsigned char>, unsigned) {
  throw Failure(why_no_byte_kernel());
}

}  // namespace tool
