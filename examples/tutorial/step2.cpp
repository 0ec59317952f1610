// SPDX-License-Identifier: Apache-2.0
// Step 2 of the tutorial: two halves in two streams, which may run at the same time, and a third
// stream that waits for both.
#include "../scale.hpp"

#include <span>
#include <vector>

using namespace runnel;

int main() {
  std::vector<float> numbers(4'000'000), result(numbers.size());
  fill_in(numbers);
  const std::size_t half = numbers.size() / 2;

  Stream left{{.name = "left"}}, right{{.name = "right"}}, last{{.name = "last"}};
  DeviceBuffer<float> in(numbers.size(), last), out(numbers.size(), last);
  std::size_t first = 0;
  for (const Stream* stream : {&left, &right}) {
    stream->wait_stream(last);  // the memory is allocated in the order of `last`
    copy(*stream, in.span().subspan(first, half), std::span{numbers}.subspan(first, half));
    scale(*stream, in.span().subspan(first, half), out.span().subspan(first, half));
    first += half;
  }
  last.wait_stream(left);
  // without these two lines the next copy could read what is not there yet
  last.wait_stream(right);
  copy(last, result, out);
  last.synchronize();
  return report(result);
}
