// SPDX-License-Identifier: Apache-2.0
// Strategy A, by hand: each item has a stream that does all of it, in, compute, out. Several are in flight, so that while one item is
// computed others are on their way; an event for each place keeps more from starting than there is memory for.
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
    here.done.synchronize();  // the item that was here before; at first there was none

    // All in one stream: each step begins when the one before has ended. No call waits; other streams go on beside it.
    copy(here.stream, here.in.span().subspan(0, count), std::span{numbers}.subspan(first, count));
    scale(here.stream, here.in.span().subspan(0, count), here.out.span().subspan(0, count));
    copy(here.stream, std::span{result}.subspan(first, count), here.out.span().subspan(0, count));
    here.stream.record_event(here.done);
  }
  for (Place& place : places) place.stream.synchronize();  // now `result` may be read, and `numbers` may go
  return report(result);
}
