// SPDX-License-Identifier: Apache-2.0
// A stream of runnel as torch's external stream, and torch's current stream as a view.
#include <c10/cuda/CUDAStream.h>

#include <iostream>
#include <runnel/runnel.hpp>

int main() {
  const runnel::Stream stream;
  const auto index = static_cast<c10::DeviceIndex>(stream.device().ordinal());
  const c10::cuda::CUDAStream theirs = c10::cuda::getStreamFromExternal(stream.native(), index);
  theirs.synchronize();
  const runnel::StreamRef ours = runnel::StreamRef::from_native(theirs.stream(), stream.device());
  // Torch's default stream has the handle 0.
  const runnel::StreamRef current = runnel::StreamRef::from_native(
      c10::cuda::getCurrentCUDAStream(index).stream(), stream.device());
  current.wait_stream(ours);
  current.synchronize();
  std::cout << (ours == stream ? "the same stream\n" : "another stream\n");
  return ours == stream ? 0 : 1;
}
