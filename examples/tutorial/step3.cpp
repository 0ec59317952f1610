// SPDX-License-Identifier: Apache-2.0
// Step 3 of the tutorial: chunks. Two places on the device take turns, so that the memory is
// bounded and transfers overlap computing.
#include "../scale.hpp"

#include <array>
#include <span>
#include <vector>

using namespace runnel;

int main() {
  constexpr std::size_t chunk = 500'000;
  std::vector<float> numbers(8 * chunk), result(numbers.size());
  fill_in(numbers);

  struct Place {
    Stream stream;
    DeviceBuffer<float> in{chunk, stream}, out{chunk, stream};
  };
  std::array places{Place{.stream = Stream{{.name = "even chunks"}}},
                    Place{.stream = Stream{{.name = "odd chunks"}}}};

  for (std::size_t i = 0; i < 8; ++i) {
    // its stream keeps the order: this chunk comes after the last one in this place
    Place& here = places[i % 2];
    copy(here.stream, here.in, std::span{numbers}.subspan(i * chunk, chunk));
    scale(here.stream, here.in, here.out);
    copy(here.stream, std::span{result}.subspan(i * chunk, chunk), here.out);
  }
  for (const Place& place : places) place.stream.synchronize();
  return report(result);
}
