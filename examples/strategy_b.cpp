// SPDX-License-Identifier: Apache-2.0
// Strategy B by hand: one stream copies in, one computes, one copies out. Within a stream the items
// follow each other. Between the streams, events order the steps of an item. As many items are in
// flight as there are buffers.
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
  for (std::size_t i = 0; i < in_flight; ++i)
    places.push_back({DeviceBuffer<float>{chunk, up}, DeviceBuffer<float>{chunk, up}});

  for (std::size_t first = 0, item = 0; first < n; first += chunk, ++item) {
    const std::size_t count = std::min(chunk, n - first);
    Place& here = places[item % in_flight];

    // the previous item in this place has been computed; at first the event has no record, so
    // nothing waits
    up.wait_event(here.computed);
    copy(up, here.in.span().subspan(0, count), std::span{numbers}.subspan(first, count));
    up.record_event(here.arrived);

    run.wait_event(here.arrived);
    run.wait_event(here.left);  // the previous result in this place has been copied out
    scale(run, here.in.span().subspan(0, count), here.out.span().subspan(0, count));
    run.record_event(here.computed);

    down.wait_event(here.computed);
    copy(down, std::span{result}.subspan(first, count), here.out.span().subspan(0, count));
    down.record_event(here.left);
  }
  down.synchronize();  // all results are there; the buffers are freed in the order of `up`
  return report(result);
}
