// SPDX-License-Identifier: Apache-2.0
// Many copies on one stream: their order with the work between them, and lists of copies. The
// source of a copy to the device may be read before the stream comes to the copy, but only if
// nothing ahead writes it.

#include "support.hpp"

namespace conformance::copy_rows_cases {
using CopyRows = Conformance;
using CopyLists = Conformance;

/// Sizes on both sides of each limit: read by the driver, moved by the caller, one piece, several
/// pieces.
constexpr size_t sizes[] = {64, 20 * kib, 40 * kib, 200 * kib, 700 * kib, 5 * mib};

/// A row of copies to the device, then work that writes a source, then the copy of that source.
struct WrittenSource {
  explicit WrittenSource(size_t bytes)
      : source(bytes, 2), back(bytes), there{bytes, stream}, scratch{bytes, stream} {
    stream.synchronize();
  }
  /// Enqueues a host function that sets the source to 7, behind the gate.
  void write_on(StreamRef on) {
    gate.close_on(on);
    on.launch_host_func([this] { std::ranges::fill(source, 7); });
  }

  Stream stream;
  Bytes source, back;
  DeviceBytes there, scratch;
  Gate gate;
};

/// `prepare(row)`: returns a function that enqueues what sets the source to 7 behind the gate.
template <class Prepare>
void expect_that_the_copy_waits_after(Prepare prepare) {
  for (const size_t bytes : sizes) {
    const Bytes first(bytes, 1);
    WrittenSource row{bytes};
    const auto write = prepare(row);
    repeat(3, [&] { copy(row.stream, row.scratch, first); });
    write();
    copy(row.stream, row.there, row.source);
    copy(row.stream, row.scratch, first);
    row.gate.open();
    copy(row.stream, row.back, row.there);
    ASSERT_TRUE(row.stream.synchronize_for(patience));
    EXPECT_EQ(row.back, Bytes(bytes, 7)) << "the source was read too early; " << bytes << " bytes";
  }
}
template <class Write>
void expect_that_the_copy_waits_for(Write write) {
  expect_that_the_copy_waits_after([&](WrittenSource& row) { return [&] { write(row); }; });
}

TEST_F(CopyRows, ASourceWrittenByAHostFunctionIsReadAfterIt) {
  expect_that_the_copy_waits_for([](WrittenSource& row) { row.write_on(row.stream); });
}

TEST_F(CopyRows, ASourceWrittenByAnAwaitedStreamIsReadAfterIt) {
  for (const bool by_event : {false, true}) {
    Stream other;
    Event written;
    expect_that_the_copy_waits_for([&](WrittenSource& row) {
      row.write_on(other);
      other.record_event(written);
      by_event ? row.stream.wait_event(written) : row.stream.wait_stream(other);
    });
  }
}

TEST_F(CopyRows, ASourceWrittenByACopyIsReadAfterIt) {
  expect_that_the_copy_waits_after([](WrittenSource& row) {
    const auto sevens = std::make_shared<DeviceBytes>(row.source.size(), row.stream);
    fill(row.stream, *sevens, 7);
    row.stream.synchronize();
    return [&row, sevens] {
      row.gate.close_on(row.stream);
      copy(row.stream, row.source, *sevens);
    };
  });
}

TEST_F(CopyRows, ASourceWrittenByAFillIsReadAfterIt) {
  expect_that_the_copy_waits_for([](WrittenSource& row) {
    row.gate.close_on(row.stream);
    fill(row.stream, row.source, 7);
  });
}

TEST_F(CopyRows, ASourceWrittenByAGraphIsReadAfterIt) {
  expect_that_the_copy_waits_after([](WrittenSource& row) {
    const Stream capturing;
    const auto graph =
        std::make_shared<Graph>(capture(capturing, [&] { row.write_on(capturing); }));
    return [&row, graph] { graph->launch(row.stream); };
  });
}

TEST_F(CopyRows, ASourceWrittenByAnotherThreadIsReadAfterIt) {
  expect_that_the_copy_waits_for(
      [](WrittenSource& row) { on_thread([&] { row.write_on(row.stream); }); });
}

// Whoever knows the handle may enqueue work that the library does not see.
TEST_F(CopyRows, ASourceWrittenThroughAViewIsReadAfterIt) {
  expect_that_the_copy_waits_for([](WrittenSource& row) {
    row.write_on(StreamRef::from_native(row.stream.native(), row.stream.device()));
  });
}

TEST_F(CopyRows, AnyMixOfSizesAndDirectionsKeepsEveryByte) {
  std::mt19937 random{7};
  const size_t all = 24 * mib;
  Stream stream;
  Bytes source(all), back(all);
  for (size_t i : range(all)) source[i] = static_cast<unsigned char>(random());
  DeviceBytes there{all, stream};
  stream.synchronize();
  const auto copy_all = [&](auto&& copy_part) {
    for (size_t at = 0, bytes = 0; at < all; at += bytes) {
      bytes = std::min<size_t>(all - at, 1 + random() % sizes[random() % std::size(sizes)]);
      copy_part(at, bytes);
    }
  };
  const int rounds = long_tests() ? 20 : 2;
  for (int round = 0; round < rounds; ++round) {
    std::ranges::fill(back, 0);
    copy_all([&](size_t at, size_t bytes) {
      copy_bytes(stream, there.data() + at, source.data() + at, bytes);
    });
    copy_all([&](size_t at, size_t bytes) {
      copy_bytes(stream, back.data() + at, there.data() + at, bytes);
    });
    ASSERT_TRUE(stream.synchronize_for(2 * patience));
    ASSERT_TRUE(back == source);
    // The next copy to the device must not take over the place of a copy to the host in the ring.
    copy_bytes(stream, back.data(), there.data(), 3 * mib);
    copy_bytes(stream, there.data(), source.data(), 3 * mib);
    copy_bytes(stream, back.data() + 3 * mib, there.data() + 3 * mib, 3 * mib);
    ASSERT_TRUE(stream.synchronize_for(patience));
    EXPECT_TRUE(back == source);
  }
}

TEST_F(CopyRows, ThreadsOnOneStreamKeepEveryByte) {
  constexpr int threads = 4;
  constexpr size_t each = 2 * mib;
  Stream stream;
  DeviceBytes there{threads * each, stream};
  stream.synchronize();
  on_threads(threads, [&](int i) {
    std::mt19937 random{static_cast<uint32_t>(i)};
    Bytes source(each), back(each);
    unsigned char* const own = there.data() + static_cast<size_t>(i) * each;
    for (int round : range(10)) {
      const size_t bytes = 1 + random() % sizes[random() % (std::size(sizes) - 1)];
      std::ranges::fill(source, static_cast<unsigned char>(random()));
      if (random() % 2 == 0) stream.launch_host_func([&] { ++source[0]; });
      for (size_t at = 0; at + bytes <= each; at += std::max(bytes, each / 8)) {
        copy_bytes(stream, own + at, source.data() + at, bytes);
        copy_bytes(stream, back.data() + at, own + at, bytes);
      }
      stream.synchronize();
      for (size_t at = 0; at + bytes <= each; at += std::max(bytes, each / 8))
        ASSERT_EQ(std::memcmp(back.data() + at, source.data() + at, bytes), 0)
            << "thread " << i << ", round " << round;
    }
  });
}

/// Blocks in any order on either side, some of them next to each other on the device.
struct Blocks {
  Blocks(size_t block, size_t count, uint32_t seed, size_t stride)
      : host(block * count), back(host.size()) {
    std::mt19937 random{seed};
    for (unsigned char& byte : host) byte = static_cast<unsigned char>(random());
    std::vector<size_t> order(count);
    count_from(order, 0UL);
    std::ranges::shuffle(order, random);
    for (size_t i : range(count)) places.push_back({i * block, order[i] * stride, block});
    device_bytes = count * stride;
    std::ranges::shuffle(places, random);
  }
  struct Place {
    size_t host, device, bytes;
  };
  std::vector<CopyOperation> up(unsigned char* device) const {
    std::vector<CopyOperation> all;
    for (const Place& p : places) all.push_back({device + p.device, host.data() + p.host, p.bytes});
    return all;
  }
  std::vector<CopyOperation> down(const unsigned char* device) {
    std::vector<CopyOperation> all;
    for (const Place& p : places) all.push_back({back.data() + p.host, device + p.device, p.bytes});
    return all;
  }
  Bytes host, back;
  std::vector<Place> places;
  size_t device_bytes = 0;
};

TEST_F(CopyLists, PageableBlocksInAnyOrderKeepEveryByte) {
  Stream stream;
  struct {
    size_t block, count, stride;
  } const lists[] = {{100, 3000, 100},
                     {4 * kib, 2000, 4 * kib},
                     {4 * kib, 700, 5000},
                     {70 * kib, 60, 70 * kib},
                     {900 * kib, 9, 1000 * kib},
                     {5 * mib, 3, 5 * mib},
                     {1, 20, 3}};
  for (const auto& list : lists) {
    Blocks blocks{list.block, list.count, 3, list.stride};
    DeviceBytes there{blocks.device_bytes, stream};
    copy_batch(stream, blocks.up(there.data()));
    copy_batch(stream, blocks.down(there.data()));
    ASSERT_TRUE(stream.synchronize_for(2 * patience));
    EXPECT_TRUE(blocks.back == blocks.host) << list.count << " blocks of " << list.block;
  }
}

TEST_F(CopyLists, AListIsReadInStreamOrder) {
  Stream stream;
  Blocks blocks{64 * kib, 40, 5, 64 * kib};
  DeviceBytes there{blocks.device_bytes, stream};
  const Bytes expected(blocks.host.size(), 9);
  stream.synchronize();
  Gate gate;
  copy_batch(stream, blocks.up(there.data()));
  gate.close_on(stream);
  stream.launch_host_func([&] { std::ranges::fill(blocks.host, 9); });
  copy_batch(stream, blocks.up(there.data()));
  copy_batch(stream, blocks.down(there.data()));
  bool right = false;
  stream.launch_host_func([&] { right = blocks.back == expected; });
  EXPECT_PENDING(stream);
  gate.open();
  ASSERT_TRUE(stream.synchronize_for(patience));
  EXPECT_TRUE(right);
}

TEST_F(CopyLists, AListMixesDirectionsAndKindsOfMemory) {
  Stream stream;
  Blocks blocks{50 * kib, 30, 11, 50 * kib};
  PinnedBytes pinned{64 * kib}, pinned_back{64 * kib};
  std::memset(pinned.data(), 5, pinned.size());
  DeviceBytes there{blocks.device_bytes, stream}, other{blocks.device_bytes, stream},
      third{64 * kib, stream};
  copy_batch(stream, blocks.up(other.data()));
  auto operations = blocks.up(there.data());
  const auto down = blocks.down(other.data());
  operations.insert(operations.end(), down.begin(), down.end());
  operations.push_back(copy_operation(third, pinned));
  const CopyBatchResult done = copy_batch(stream, operations);
  EXPECT_EQ(done.direct + done.staged + done.inlined, operations.size());
  copy(stream, pinned_back, third);
  ASSERT_TRUE(stream.synchronize_for(patience));
  EXPECT_TRUE(blocks.back == blocks.host);
  EXPECT_EQ(pinned_back[64 * kib - 1], 5);
  std::ranges::fill(blocks.back, 0);
  copy_batch(stream, blocks.down(there.data()));
  ASSERT_TRUE(stream.synchronize_for(patience));
  EXPECT_TRUE(blocks.back == blocks.host);
}

}  // namespace conformance::copy_rows_cases
