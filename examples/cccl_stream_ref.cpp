// SPDX-License-Identifier: Apache-2.0
// A stream of runnel as CCCL's cuda::stream_ref, and back.
#include <cuda_runtime_api.h>

#include <cuda/stream_ref>
#include <iostream>
#include <runnel/runnel.hpp>

/// What a library of CCCL's users looks like.
void wait_in_the_library(cuda::stream_ref stream) { cudaStreamSynchronize(stream.get()); }

int main() {
  const runnel::Stream stream;
  const cuda::stream_ref theirs{stream.native()};
  wait_in_the_library(theirs);
  const runnel::StreamRef ours = runnel::StreamRef::from_native(theirs.get());
  // A stream_ref that was made without a handle means the default stream.
  const runnel::StreamRef by_default =
      runnel::StreamRef::from_native(cuda::stream_ref{cudaStream_t{}}.get());
  std::cout << (ours == stream && by_default == runnel::Device::current().default_stream()
                    ? "the same streams\n"
                    : "other streams\n");
  return ours == stream ? 0 : 1;
}
