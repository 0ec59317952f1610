// SPDX-License-Identifier: Apache-2.0
// On the host backend a kernel is a host function.
#include "launch_byte_kernel.hpp"

namespace tool {

namespace {
struct OneThread {
  static unsigned rank_in_block() { return 0; }
  static unsigned block_size() { return 1; }
  static std::size_t rank() { return 0; }
  static std::size_t size() { return 1; }
  static void synchronize_block() {}
  template <class T>
  static void add(T& to, T number) {
    to += number;
  }
};
}  // namespace

const char* why_no_byte_kernel() noexcept { return nullptr; }

void launch_map_and_count(runnel::StreamRef stream, runnel::DeviceSpan<const unsigned char> in, runnel::DeviceSpan<unsigned char> out,
                          const ByteMap& map, runnel::DeviceSpan<ByteCount> counts) {
  stream.launch_host_func([=] {
    Scratch scratch;
    map_and_count(OneThread{}, scratch, in.data(), out.data(), in.size(), map, counts.data());
  });
}

void launch_double_and_add_one(runnel::StreamRef stream, runnel::DeviceSpan<const unsigned char> in, runnel::DeviceSpan<unsigned char> out,
                               unsigned rounds) {
  stream.launch_host_func([=] { double_and_add_one(OneThread{}, in.data(), out.data(), in.size(), rounds); });
}

}  // namespace tool
