// SPDX-License-Identifier: Apache-2.0
// A graph: four steps are recorded once, with a branch, and launched ten times.
#include <runnel/runnel.hpp>

#include <algorithm>
#include <iostream>

int main() {
  constexpr std::size_t count = 1000;
  runnel::Stream stream, side;
  runnel::PinnedBuffer<int> in(count), copied(count), filled(count);
  runnel::DeviceBuffer<int> x(count, stream), y(count, stream);
  std::fill(in.begin(), in.end(), 7);
  int launches = 0;

  const runnel::Graph graph = runnel::capture(stream, [&] {
    side.wait_stream(stream);  // fork: the two streams run at the same time
    runnel::copy(stream, x, in);
    runnel::copy(stream, copied, x);
    runnel::fill(side, y, 5);
    runnel::copy(side, filled, y);
    stream.wait_stream(side);  // join
    stream.launch_host_func([&] { ++launches; });
  });

  for (int i = 0; i < 10; ++i) graph.launch(stream);
  stream.synchronize();
  std::cout << graph.node_count() << " operations, " << launches << " launches, " << copied[999]
            << " and " << filled[999] << '\n'
            << graph.dot();
  return launches == 10 && copied[999] == 7 && filled[999] == 5 ? 0 : 1;
}
