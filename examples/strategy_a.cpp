// SPDX-License-Identifier: Apache-2.0
// Strategy A by hand: one stream does all steps of an item: copy in, compute, copy out. Several
// items are in flight, so that copies of some items overlap the computation of another. An event
// for each place limits the number of items to the available memory.
#include "scale.hpp"

#include <algorithm>
#include <vector>

using namespace runnel;

int main() {
  constexpr std::size_t n = 10'000'000, chunk = 1'000'000, in_flight = 4;
  std::vector<float> numbers(n), result(n);
  fill_in(numbers);

  struct Place {
    Stream stream;
    DeviceBuffer<float> in{chunk, stream}, out{chunk, stream};
    Event done;
  };
  std::vector<Place> places(in_flight);

  for (std::size_t first = 0, item = 0; first < n; first += chunk, ++item) {
    const std::size_t count = std::min(chunk, n - first);
    Place& here = places[item % in_flight];
    here.done.synchronize();  // waits for the previous item in this place; at first there is none

    // All steps are in one stream, so each step begins when the previous one has ended. No call
    // waits, and other streams run meanwhile.
    copy(here.stream, here.in.span().subspan(0, count), std::span{numbers}.subspan(first, count));
    scale(here.stream, here.in.span().subspan(0, count), here.out.span().subspan(0, count));
    copy(here.stream, std::span{result}.subspan(first, count), here.out.span().subspan(0, count));
    here.stream.record_event(here.done);
  }
  // now `result` may be read, and `numbers` destroyed
  for (Place& place : places) place.stream.synchronize();
  return report(result);
}
