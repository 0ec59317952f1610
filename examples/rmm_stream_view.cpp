// SPDX-License-Identifier: Apache-2.0
// A stream of runnel as RMM's view, and back; a stream that RMM owns, kept alive.
#include <iostream>
#include <memory>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <runnel/foreign_stream.hpp>
#include <runnel/runnel.hpp>

int main() {
  const runnel::Stream stream;
  const rmm::cuda_stream_view theirs{stream.native()};
  theirs.synchronize();
  const runnel::StreamRef ours = runnel::StreamRef::from_native(theirs.value());

  auto owner = std::make_shared<rmm::cuda_stream>();
  const runnel::ForeignStream kept{owner->value(), runnel::Device::current(), owner};
  owner.reset();
  kept.wait_stream(stream);
  kept.synchronize();
  std::cout << (ours == stream ? "the same stream\n" : "another stream\n");
  return ours == stream ? 0 : 1;
}
