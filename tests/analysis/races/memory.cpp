// SPDX-License-Identifier: Apache-2.0
// Buffers, copies, fills, pools and overlap().
#include "cases.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace races {
namespace {

using namespace runnel;

// The two copies write the same values in the middle.
void copies_overlap_in_part() {  // race
  const Values values;
  const Stream first, second;
  DeviceBuffer<int> x{count, first};
  second.wait_stream(first);
  copy(first, x.span().subspan(0, 150), std::span{values}.first(150));       // one
  copy(second, x.span().subspan(100), std::span{values}.last(count - 100));  // other
  wait_for_device();
}

void copies_side_by_side() {  // no race
  const Values values;
  const Stream first, second;
  DeviceBuffer<int> x{count, first};
  second.wait_stream(first);
  copy(first, x.span().subspan(0, 100), std::span{values}.first(100));
  copy(second, x.span().subspan(100), std::span{values}.last(count - 100));
  first.wait_stream(second);
  first.synchronize();
}

constexpr std::size_t pitch = 16 * sizeof(int);

// Both copies write column 8 of each row.
void pitched_copies_overlap() {  // race
  const Values values;
  Values matrix(count);
  const Stream first, second;
  copy_2d(first, matrix.data(), pitch, values.data(), pitch, 9 * sizeof(int), 16);       // one
  copy_2d(second, matrix.data() + 8, pitch, values.data(), pitch, 8 * sizeof(int), 16);  // other
  wait_for_device();
}

// The ranges meet, the rows do not.
void pitched_copies_side_by_side() {  // no race
  const Values values;
  Values matrix(count);
  const Stream first, second;
  copy_2d(first, matrix.data(), pitch, values.data(), pitch, 8 * sizeof(int), 16);
  copy_2d(second, matrix.data() + 8, pitch, values.data(), pitch, 8 * sizeof(int), 16);
  wait_for_device();
}

void fill_and_copy() {  // race
  const Values values;
  const Stream first, second;
  DeviceBuffer<int> x{count, first};
  second.wait_stream(first);
  fill(first, x, 3);        // one
  copy(second, x, values);  // other
  wait_for_device();
}

// A fill with elements that no runtime call sets goes through copies.
void fill_of_wide_elements() {  // race
  struct Wide {
    std::array<int, 3> numbers;
  };
  std::vector<Wide> values(count);
  const Stream first, second;
  fill(first, values, Wide{{1, 2, 3}});   // one
  fill(second, values, Wide{{4, 5, 6}});  // other
  wait_for_device();
}

void batch_and_kernel() {  // race
  const Values values;
  Values a(count), b(count);
  const Stream first, second;
  const std::array<CopyOperation, 2> operations{copy_operation(a, values),
                                                copy_operation(b, values)};
  copy_batch(first, operations);  // one
  increment(second, b);           // other
  wait_for_device();
}

// The buffer is freed in the order of `first`, while `second` still uses it.
void record_stream_is_missing() {  // race
  Values back(count);
  const Stream first, second;
  {
    DeviceBuffer<int> x{count, first};
    fill(first, x, 1);
    second.wait_stream(first);
    copy(second, back, x.span());  // one
  }  // other
  wait_for_device();
}

/// `use(second, back, x)` uses buffers of one stream on another one. Each is dropped behind that.
template <class F>
void drop_what_another_stream_uses(F use) {
  Values back(count);
  const Stream first, second;
  for (int i = 0; i < 10; ++i) {
    DeviceBuffer<int> x{count, first};
    fill(first, x, 1);
    second.wait_stream(first);
    use(second, back, x);
  }
  second.synchronize();
  ++back[0];
}

void record_stream() {  // no race
  drop_what_another_stream_uses([](const Stream& second, Values& back, DeviceBuffer<int>& x) {
    copy(second, back, x.span());
    x.record_stream(second);
  });
}

void copies_record_their_stream() {  // no race
  drop_what_another_stream_uses(
      [](const Stream& second, Values& back, DeviceBuffer<int>& x) { copy(second, back, x); });
}

// The next buffer of a stream may get the same memory, in the stream's order.
void device_memory_is_reused() {  // no race
  const Stream stream;
  for (int i = 0; i < 20; ++i) {
    DeviceBuffer<int> x{count, stream};
    increment(stream, x);
  }
  stream.synchronize();
}

// The pool cannot know of the kernel, and hands the block out again.
void use_of_pinned_memory_is_not_recorded() {  // race
  const Stream stream;
  {
    PinnedBuffer<int> x{count};
    increment(stream, x.data());  // one
  }
  PinnedBuffer<int> y{count};
  y[0] = 1;  // other
  stream.synchronize();
}

void pinned_memory_is_reused() {  // no race
  const Stream stream;
  DeviceBuffer<int> there{count, stream};
  for (int i = 0; i < 50; ++i) {
    PinnedBuffer<int> x{count};
    std::iota(x.begin(), x.end(), i);
    increment(stream, x.data());
    x.record_stream(stream);
    copy(stream, there, x);
    if (i % 10 == 9) stream.synchronize();
  }
}

// Two streams of a pool are as independent as any two.
void two_leases() {  // race
  Values values;
  StreamPool pool{Device::current(), {.size = 2}};
  const StreamLease first = pool.acquire(), second = pool.acquire();
  increment(first, values);   // one
  increment(second, values);  // other
  wait_for_device();
}

// A stream's next holder comes after the last one.
void one_stream_leased_twice() {  // no race
  Values values;
  StreamPool pool{Device::current(), {.size = 1}};
  for (int i = 0; i < 5; ++i) {
    const StreamLease stream = pool.acquire();
    increment(stream, values);
  }
  pool.acquire().synchronize();
  ++values[0];
}

void copy_kernel(StreamRef stream, DeviceSpan<const int> in, DeviceSpan<int> out) {
  stream.launch_host_func([in, out] { std::copy_n(in.data(), in.size(), out.data()); });
}

// The chunks run on several streams, and all of them add to one number.
void overlap_functions_share_a_number() {  // race
  Values values(4096, 1), result(4096);
  int sum = 0;
  overlap(values, result,
          {.chunk = 512, .in_flight = 4, .strategy = OverlapStrategy::stream_per_chunk},
          [&](StreamRef stream, DeviceSpan<const int> in, DeviceSpan<int> out) {
            copy_kernel(stream, in, out);
            stream.launch_host_func([&sum] { ++sum; });  // both
          });
}

// The source is read on the calling thread, the sink is written on another one.
void overlap_ends_share_a_number() {  // race
  int chunks = 0;
  const auto source = [&](std::span<int> to) -> std::size_t {
    if (chunks++ == 20) return 0;  // one
    std::fill(to.begin(), to.end(), 1);
    return to.size();
  };
  const auto sink = [&](std::span<const int> from) { chunks += from.empty() ? 1 : 0; };  // other
  overlap(from_source<int>(source), to_sink<int>(sink), {.chunk = 64, .in_flight = 2},
          [&](StreamRef stream, DeviceSpan<const int> in, DeviceSpan<int> out) {
            copy_kernel(stream, in, out);
          });
}

void overlap_of_a_file() {  // no race
  int chunks = 0, sum = 0;
  const auto source = [&](std::span<int> to) -> std::size_t {
    if (chunks++ == 20) return 0;
    std::fill(to.begin(), to.end(), 1);
    return to.size();
  };
  const auto sink = [&](std::span<const int> from) {
    sum = std::accumulate(from.begin(), from.end(), sum);
  };
  overlap(from_source<int>(source), to_sink<int>(sink), {.chunk = 64, .in_flight = 2},
          [&](StreamRef stream, DeviceSpan<const int> in, DeviceSpan<int> out) {
            copy_kernel(stream, in, out);
          });
  ++sum;
}

void overlap_in_memory() {  // no race
  Values values(4096, 1), result(4096);
  for (int i = 0; i < 3; ++i) {
    overlap(values, result, {.chunk = 512, .in_flight = 3},
            [](StreamRef stream, DeviceSpan<const int> in, DeviceSpan<int> out) {
              copy_kernel(stream, in, out);
            });
    ++result[0];
    values.swap(result);
  }
}

}  // namespace

std::span<const Case> memory_cases() {
  static constexpr Case cases[] = {
      CASE(copies_overlap_in_part),
      CASE(copies_side_by_side),
      CASE(pitched_copies_overlap),
      CASE(pitched_copies_side_by_side),
      CASE(fill_and_copy),
      CASE(fill_of_wide_elements),
      CASE(batch_and_kernel),
      CASE(record_stream_is_missing),
      CASE(record_stream),
      CASE(copies_record_their_stream),
      CASE(device_memory_is_reused),
      CASE(use_of_pinned_memory_is_not_recorded),
      CASE(pinned_memory_is_reused),
      CASE(two_leases),
      CASE(one_stream_leased_twice),
      CASE(overlap_functions_share_a_number),
      CASE(overlap_ends_share_a_number),
      CASE(overlap_of_a_file),
      CASE(overlap_in_memory),
  };
  return cases;
}

}  // namespace races
