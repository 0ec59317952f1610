// SPDX-License-Identifier: Apache-2.0
// The current stream: code that names no stream uses the stream that its caller chose.
#include <runnel/runnel.hpp>

#include <iostream>
#include <vector>

// A function of a library that does not handle streams itself.
static std::vector<int> doubled(const std::vector<int>& numbers) {
  std::vector<int> result(numbers.size());
  runnel::DeviceBuffer<int> on_device(numbers.size());
  runnel::copy(on_device, numbers);
  runnel::current_stream().launch_host_func([] { /* stands for a kernel */ });
  runnel::copy(result, on_device);
  runnel::synchronize();
  for (int& number : result) number *= 2;
  return result;
}

int main() {
  const runnel::StreamRef before = runnel::current_stream();
  runnel::Stream mine, other;
  bool good = true;
  {
    runnel::StreamGuard with{mine};
    good = good && runnel::current_stream() == mine;
    good = good && doubled({1, 2, 3}) == std::vector<int>{2, 4, 6};  // ran on `mine`

    other.use();  // stays until changed, or until the guard ends
    good = good && runnel::current_stream() == other;
  }
  good = good && runnel::current_stream() == before;
  std::cout << (good ? "the guard restored what it found\n" : "something is wrong\n");
  return good ? 0 : 1;
}
