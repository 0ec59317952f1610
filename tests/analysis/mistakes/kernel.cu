// SPDX-License-Identifier: Apache-2.0
// What kernels do with a DeviceSpan compiles; the same in host code does not. Without headers of a
// vendor, so that each compiler of kernels reads it.
#include <runnel/runnel.hpp>

using runnel::DeviceSpan;

__attribute__((device)) float first(DeviceSpan<const float> x) { return x.empty() ? 0 : x[0]; }

__attribute__((global)) void scale(DeviceSpan<const float> in, DeviceSpan<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = in[i] * in.data()[i] + first(in);
  const DeviceSpan<float> part = out.subspan(1, 2), rest = out.subspan(1);
  part.first(1)[0] = rest.last(1)[0] + static_cast<float>(part.size_bytes());
  const DeviceSpan<const float> same{out.data(), 1}, read = out;
  out[0] += same[0] + read[0];
}

template <class T>
__attribute__((global)) void generic(DeviceSpan<T> x) {
  x[0] = x.last(1)[0];
}
template __attribute__((global)) void generic(DeviceSpan<int>);

float host(DeviceSpan<float> x) {
  static_cast<void>(x.subspan(1).size());
  return x[0];  // error: the host cannot read device memory: write get(stream, x, i), set(stream,
                // x, i, value)
}
