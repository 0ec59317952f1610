// SPDX-License-Identifier: Apache-2.0
// Two streams of different priority. The second stream waits for the first.
#include <runnel/runnel.hpp>

#include <iostream>
#include <vector>

int main() {
  const runnel::Device device = runnel::Device::current();
  const auto [least, greatest] = device.priority_range();
  std::cout << device.name() << ": priorities " << greatest << " (most urgent) to " << least
            << '\n';

  // Any number is accepted, and clamped to the range of the device.
  runnel::Stream urgent{device, {.priority = runnel::Priority::high, .name = "urgent"}};
  runnel::Stream patient{device, {.priority = 1000, .name = "patient"}};
  std::cout << "urgent: " << urgent.priority() << ", patient: " << patient.priority() << '\n';

  std::vector<int> numbers(1000, 7);
  runnel::DeviceBuffer<int> on_device(numbers.size(), urgent);
  runnel::copy(urgent, on_device, numbers);

  // Without this line, the copy to the host could run before the copy to the device.
  patient.wait_stream(urgent);
  std::vector<int> back(numbers.size());
  runnel::copy(patient, back, on_device);
  patient.synchronize();

  const bool good = back == numbers && urgent.priority() == greatest && patient.priority() == least;
  std::cout << (good ? "all as expected\n" : "something is wrong\n");
  return good ? 0 : 1;
}
