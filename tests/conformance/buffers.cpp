// SPDX-License-Identifier: Apache-2.0
// What users of containers expect of buffers: an empty state, resizing, copies, single elements,
// another stream, giving the memory away.

#include "support.hpp"

namespace conformance::buffers_cases {
using Buffers = Conformance;
using BuffersTwo = TwoDevices;

Ints numbers(size_t count) {
  Ints values(count);
  count_from(values, 1);
  return values;
}

/// Whether a buffer has no elements, no stream and no device.
template <class Buffer>
void expect_empty(const Buffer& buffer) {
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(buffer.size(), 0U);
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(buffer.device(), std::nullopt);
}

TEST_F(Buffers, AnEmptyBufferIsFilledLater) {
  Stream stream;
  DeviceInts there;
  ManagedBuffer<int> managed;
  expect_empty(there);
  expect_empty(managed);
  EXPECT_FALSE(there.stream().is_valid());
  EXPECT_EQ(copy(stream, there, DeviceSpan<const int>{}), CopyResult::nothing);
  there.record_stream(stream);
  there = DeviceInts{3, stream};
  fill(stream, there, 1);
  EXPECT_EQ(read_back(stream, there), Ints(3, 1));
  EXPECT_EQ(there.stream(), stream);
  EXPECT_EQ(there.device(), stream.device());
}

TEST_F(Buffers, AMovedFromBufferIsEmpty) {
  Stream stream;
  DeviceInts there{3, stream};
  fill(stream, there, 1);
  DeviceInts moved{std::move(there)};
  expect_empty(there);  // NOLINT: this is what is tested
  EXPECT_FALSE(there.stream().is_valid());
  DeviceInts assigned;
  assigned = std::move(moved);
  expect_empty(moved);  // NOLINT
  EXPECT_EQ(assigned.size(), 3U);
  EXPECT_EQ(assigned.stream(), stream);
  there = std::move(assigned);  // a buffer that was moved from takes another's elements
  EXPECT_EQ(read_back(stream, there), Ints(3, 1));
}

TEST_F(Buffers, ResizingKeepsTheFirstElements) {
  Stream stream;
  const Ints values = numbers(1000);
  DeviceInts buffer{values.size(), stream};
  copy(stream, buffer, values);
  buffer.resize(5000);
  EXPECT_EQ(buffer.size(), 5000U);
  fill(stream, buffer.span().subspan(1000), 7);
  Ints expected = values;
  expected.resize(5000, 7);
  EXPECT_EQ(read_back(stream, buffer), expected);
  buffer.resize(10);
  EXPECT_EQ(read_back(stream, buffer), numbers(10));
  const int* const place = buffer.data();
  buffer.resize(10);
  EXPECT_EQ(buffer.data(), place) << "nothing changes if the size is the same";
  buffer.resize(0);
  EXPECT_TRUE(buffer.empty());
  buffer.resize(4);
  EXPECT_EQ(buffer.size(), 4U);
  EXPECT_EQ(buffer.stream(), stream);
}

TEST_F(Buffers, ResizingDoesNotWait) {
  SKIP_IF(!device().has_memory_pools(),
          "without memory pools, allocating and freeing wait for the device");
  Stream stream;
  DeviceInts buffer{4, stream};
  fill(stream, buffer, 3);
  Gate gate{stream};
  fill(stream, buffer, 5);
  buffer.resize(8);
  EXPECT_PENDING(stream);
  gate.open();
  EXPECT_EQ(get(stream, buffer, 3), 5) << "the copy was not behind the work before it";
}

TEST_F(Buffers, AnElementIsNotReadInACapture) {
  const Stream stream;
  DeviceInts buffer{4, stream};
  const Graph graph = capture(stream, [&] {
    EXPECT_ERROR(capture, get(stream, buffer, 1));
    fill(stream, buffer, 5);
  });
  EXPECT_NODES(graph, 1U) << "the copy of the element is in the graph";
  graph.launch(stream);
  EXPECT_EQ(get(stream, buffer, 1), 5);
}

TEST_F(Buffers, AnEmptyBufferResizesOnTheCurrentStream) {
  Stream stream;
  const StreamGuard with{stream};
  DeviceInts buffer;
  buffer.resize(3);
  EXPECT_EQ(buffer.stream(), stream);
  EXPECT_EQ(buffer.size(), 3U);
}

TEST_F(Buffers, ARefusedResizeChangesNothing) {
  Stream stream;
  DeviceInts buffer{3, stream};
  fill(stream, buffer, 9);
  const int* const place = buffer.data();
  EXPECT_ERROR(out_of_memory, buffer.resize(SIZE_MAX / 2));
  EXPECT_EQ(buffer.data(), place);
  EXPECT_EQ(read_back(stream, buffer), Ints(3, 9));
}

TEST_F(Buffers, ABufferIsCopiedOnAStream) {
  Stream owner, user;
  const Ints values = numbers(2000);
  DeviceInts original{values.size(), owner};
  copy(owner, original, values);
  user.wait_stream(owner);
  DeviceInts copied{original, user};
  EXPECT_EQ(copied.stream(), user);
  EXPECT_NE(copied.data(), original.data());
  owner.wait_stream(user);
  fill(owner, original, 0);
  EXPECT_EQ(read_back(user, copied), values);
  EXPECT_TRUE((DeviceInts{DeviceInts{}, user}.empty()));
}

TEST_F(BuffersTwo, ABufferIsCopiedToAnotherDevice) {
  Stream here{Device{0}}, there{Device{1}};
  DeviceInts original{100, here};
  fill(here, original, 4);
  there.wait_stream(here);
  const DeviceInts copied{original, there};
  EXPECT_EQ(copied.device(), Device{1});
  EXPECT_EQ(read_back(there, copied), Ints(100, 4));
}

TEST_F(Buffers, SingleElementsAreSetAndRead) {
  struct Point {
    double x, y;
    bool operator==(const Point&) const = default;
  };
  Stream stream;
  DeviceInts buffer{3, stream};
  fill(stream, buffer, 1);
  // each value ends before it is written
  for (int i : range(3)) set(stream, buffer, static_cast<size_t>(i), 10 * i);
  EXPECT_EQ(get(stream, buffer, 0), 0);
  EXPECT_EQ(get(stream, buffer, 1), 10);
  EXPECT_EQ(get(stream, std::as_const(buffer), 2), 20);
  DeviceBuffer<Point> points{2, stream};
  set(stream, points, 1, {1.5, 2.5});
  EXPECT_EQ(get(stream, points, 1), (Point{1.5, 2.5}));
  std::vector<short> host(2);
  set(stream, host, 1, 12);
  EXPECT_EQ(get(stream, host, 1), 12);
  EXPECT_ERROR(invalid_argument, set(stream, buffer, 3, 1));
  EXPECT_ERROR(invalid_argument, get(stream, buffer, 3));
  EXPECT_ERROR(invalid_argument, get(stream, DeviceSpan<int>{}, 0));
}

TEST_F(Buffers, AnElementIsReadAfterEarlierWork) {
  Stream stream;
  DeviceInts buffer{2, stream};
  fill(stream, buffer, 1);
  stream.synchronize();
  Gate gate{stream};
  set(stream, buffer, 1, 6);
  int value = 0;
  EXPECT_HELD(gate, value = get(stream, buffer, 1));
  EXPECT_EQ(value, 6);
}

TEST_F(Buffers, AnotherStreamFreesTheMemoryBehindBoth) {
  Stream former, latter;
  PinnedInts result{1 << 18};
  {
    DeviceInts buffer{result.size(), former};
    fill(former, buffer, 5);
    latter.wait_stream(former);
    buffer.set_stream(latter);
    EXPECT_EQ(buffer.stream(), latter);
    Gate gate;
    if (device().has_memory_pools()) gate.close_on(former);
    copy(former, result, buffer);  // what the former stream does still counts
    buffer = {};
    DeviceInts next{result.size(), latter};  // would reuse the memory if it were free
    fill(latter, next, 6);
    gate.open_and_wait(former);
    latter.synchronize();
  }
  EXPECT_ALL(result, 5);
}

TEST_F(Buffers, TheStreamMayChangeBackAndForth) {
  Stream a, b;
  DeviceInts buffer{4, a};
  repeat(3, [&] {
    buffer.set_stream(b);
    buffer.set_stream(b);
    buffer.set_stream(a);
  });
  buffer.record_stream(b);
  EXPECT_EQ(buffer.stream(), a);
  DeviceInts empty;
  empty.set_stream(b);
  EXPECT_EQ(empty.stream(), b);
  empty.resize(2);
  EXPECT_EQ(empty.stream(), b);
}

TEST_F(Buffers, ABufferOutlivesItsStreamByAnotherOne) {
  Stream next;
  DeviceInts buffer;
  {
    Stream first;
    buffer = DeviceInts{4, first};
    fill(first, buffer, 8);
    next.wait_stream(first);
  }
  EXPECT_ERROR(invalid_handle, buffer.resize(8));
  buffer.set_stream(next);
  buffer.resize(8);
  EXPECT_EQ(get(next, buffer, 3), 8);
}

TEST_F(BuffersTwo, AStreamOfAnotherDeviceIsRefused) {
  Stream here{Device{0}}, there{Device{1}};
  DeviceInts buffer{4, here};
  EXPECT_ERROR(invalid_argument, buffer.set_stream(there));
  EXPECT_EQ(buffer.stream(), here);
}

TEST_F(Buffers, ReleasedMemoryIsTheCallersToFree) {
  Stream stream, user;
  const DeviceResource resource{stream.device()};
  const size_t before = resource.statistics().blocks;
  DeviceInts buffer{4, stream};
  fill(stream, buffer, 2);
  user.wait_stream(stream);
  buffer.record_stream(user);
  const DeviceSpan<int> released = buffer.release();
  expect_empty(buffer);
  EXPECT_EQ(released.size(), 4U);
  EXPECT_EQ(resource.statistics().blocks, before + 1);
  EXPECT_EQ(get(user, released, 3), 2);
  resource.deallocate(user, released.data(), released.size_bytes());
  EXPECT_EQ(resource.statistics().blocks, before);
  EXPECT_TRUE(buffer.release().empty());
}

template <class T>
bool is_part(DeviceSpan<T> part, const int* begin, size_t size) {
  return part.data() == begin && part.size() == size;
}

TEST_F(Buffers, PartsOfSpansAndBuffersAreAsOfAStdSpan) {
  Stream stream;
  DeviceInts buffer{10, stream};
  const DeviceInts& constant = buffer;
  const DeviceSpan<int> all = buffer.span();
  int* const data = buffer.data();
  EXPECT_TRUE(is_part(all.first(3), data, 3) && is_part(all.last(3), data + 7, 3));
  EXPECT_TRUE(is_part(all.first(0), data, 0) && is_part(all.first(10), data, 10));
  EXPECT_TRUE(is_part(all.last(0), data + 10, 0) && is_part(all.last(10), data, 10));
  EXPECT_TRUE(is_part(buffer.subspan(2), data + 2, 8) &&
              is_part(buffer.subspan(2, 5), data + 2, 5));
  EXPECT_TRUE(is_part(buffer.first(4), data, 4) && is_part(buffer.last(4), data + 6, 4));
  EXPECT_TRUE(is_part(constant.subspan(2, 5), data + 2, 5));
  EXPECT_TRUE(is_part(constant.first(4), data, 4) && is_part(constant.last(4), data + 6, 4));
  EXPECT_TRUE(DeviceInts{}.first(0).empty() && DeviceSpan<int>{}.last(0).empty());
  EXPECT_ERROR(invalid_argument, all.first(11));
  EXPECT_ERROR(invalid_argument, all.last(11));
  EXPECT_ERROR(invalid_argument, buffer.subspan(11));
  EXPECT_ERROR(invalid_argument, constant.subspan(2, 9));
  EXPECT_ERROR(invalid_argument, buffer.first(11));
  EXPECT_SAYS(TEXT_OF(constant.last(11)), "the part ends beyond the span");
}

TEST_F(Buffers, ARegistrationHasATypedDevicePointer) {
  std::vector<float> memory(4096);
  const HostRegistration registration{memory};
  float* const typed = registration.device_pointer<float>();
  EXPECT_EQ(static_cast<void*>(typed), registration.device_pointer());
  EXPECT_EQ(HostRegistration{}.device_pointer<float>(), nullptr);
}

}  // namespace conformance::buffers_cases
