// SPDX-License-Identifier: Apache-2.0
// Strategy B, by hand: one stream copies in, one computes, one copies out. Within a stream items follow each other; between the streams
// events say what has to wait for what. As many items are under way as there are buffers.
#include "scale.hpp"

#include <algorithm>
#include <vector>

using namespace runnel;

int main() {
  constexpr std::size_t n = 10'000'000, chunk = 1'000'000, in_flight = 4;
  std::vector<float> numbers(n), result(n);
  fill_in(numbers);

  const Stream up, run, down;
  struct Place {
    DeviceBuffer<float> in, out;
    Event arrived{}, computed{}, left{};
  };
  std::vector<Place> places;
  for (std::size_t i = 0; i < in_flight; ++i) places.push_back({DeviceBuffer<float>{chunk, up}, DeviceBuffer<float>{chunk, up}});

  for (std::size_t first = 0, item = 0; first < n; first += chunk, ++item) {
    const std::size_t count = std::min(chunk, n - first);
    Place& here = places[item % in_flight];

    up.wait_event(here.computed);  // until then the item that was here before is read; an event never recorded holds nobody
    copy(up, here.in.span().subspan(0, count), std::span{numbers}.subspan(first, count));
    up.record_event(here.arrived);

    run.wait_event(here.arrived);
    run.wait_event(here.left);  // until then the result that was here before is on its way out
    scale(run, here.in.span().subspan(0, count), here.out.span().subspan(0, count));
    run.record_event(here.computed);

    down.wait_event(here.computed);
    copy(down, std::span{result}.subspan(first, count), here.out.span().subspan(0, count));
    down.record_event(here.left);
  }
  down.synchronize();  // the last step of the last item; buffers go in the order of `up`, which waits for nothing any more
  return report(result);
}
