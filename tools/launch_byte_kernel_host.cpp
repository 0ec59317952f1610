// SPDX-License-Identifier: Apache-2.0
// On the host backend a kernel is a function that the stream runs.
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

void launch_byte_kernel(runnel::StreamRef stream, runnel::DeviceSpan<unsigned char> bytes, const ByteMap& map,
                        runnel::DeviceSpan<ByteCount> counts) {
  stream.launch_host_func([=] {
    Scratch scratch;
    map_and_count(OneThread{}, scratch, bytes.data(), bytes.size(), map, counts.data());
  });
}

}  // namespace tool
