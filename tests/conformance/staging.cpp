// SPDX-License-Identifier: Apache-2.0
// Staged copies of pageable memory: more at the same time than there are channels to the device,
// and from memory of every sort.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

#include "support.hpp"

namespace conformance::staging_cases {
using Staging = Conformance;
using StagingTwo = TwoDevices;

/// Random bytes, which are the same in every run. The tests copy parts of them.
const Bytes& noise() {
  static const Bytes bytes = [] {
    std::mt19937_64 random{1};
    Bytes made(8 * mib);
    for (size_t i = 0; i < made.size(); i += 8) {
      const uint64_t next = random();
      std::memcpy(made.data() + i, &next, 8);
    }
    return made;
  }();
  return bytes;
}

/// Copies rows to the device on one stream and back on another. arrived() checks every byte, those
/// between the rows included.
class RoundTrip {
 public:
  static constexpr size_t largest = 6 * mib;
  explicit RoundTrip(StreamRef stream) : there_(largest, stream) {}

  void enqueue(StreamRef up, StreamRef down, std::mt19937& random) {
    const auto upto = [&](size_t most) { return 1 + random() % most; };
    const bool flat = random() % 2 == 0;
    const size_t size = upto(random() % 8 == 0 ? largest : random() % 2 == 0 ? mib : 100'000);
    width_ = flat ? size : upto(std::min<size_t>(size, 20'000));
    height_ = flat ? 1 : std::max<size_t>(1, size / (width_ + 64));
    from_pitch_ = width_ + (flat ? 0 : random() % 64);
    to_pitch_ = width_ + (flat ? 0 : random() % 64);
    source_ = noise().data() + random() % mib;
    std::memset(back_.data(), 0xEE, to_pitch_ * height_);
    copy_2d(up, there_.data(), width_, source_, from_pitch_, width_, height_, {Pageable::stage});
    down.wait_stream(up);
    copy_2d(down, back_.data(), to_pitch_, there_.data(), width_, width_, height_,
            {Pageable::stage});
    up.wait_stream(down);
  }
  bool arrived() const {
    for (size_t row : range(height_)) {
      const unsigned char* const begin = back_.data() + row * to_pitch_;
      if (std::memcmp(begin, source_ + row * from_pitch_, width_) != 0) return false;
      if (row + 1 < height_ && std::any_of(begin + width_, begin + to_pitch_,
                                           [](unsigned char byte) { return byte != 0xEE; }))
        return false;
    }
    return true;
  }

 private:
  DeviceBytes there_;
  Bytes back_ = Bytes(largest);
  const unsigned char* source_ = nullptr;
  size_t width_ = 0, height_ = 0, from_pitch_ = 0, to_pitch_ = 0;
};

TEST_F(Staging, SixteenThreadsOn32StreamsKeepEveryByte) {
  const int rounds = long_tests() ? 200 : 12;
  Streams streams(32);
  std::vector<std::unique_ptr<RoundTrip>> trips;
  repeat(16, [&] { trips.push_back(std::make_unique<RoundTrip>(streams[0])); });
  streams[0].synchronize();
  on_threads(16, [&](int i) {
    std::mt19937 random{static_cast<uint32_t>(i)};
    RoundTrip& trip = *nth(trips, i);
    for (int round = 0; round < rounds && !HasFailure(); ++round) {
      const Stream& up = streams[random() % 32];
      trip.enqueue(up, streams[random() % 32], random);
      ASSERT_TRUE(up.synchronize_for(2 * patience)) << "thread " << i << ", round " << round;
      ASSERT_TRUE(trip.arrived()) << "thread " << i << ", round " << round;
    }
  });
}

/// A stream with a staged copy to the device and one back.
struct Line {
  explicit Line(size_t bytes) : size{bytes}, there{bytes, stream}, back(bytes) {}
  void enqueue() {
    copy_bytes(stream, there.data(), noise().data(), size, {Pageable::stage});
    copy_bytes(stream, back.data(), there.data(), size, {Pageable::stage});
  }
  void expect_arrived() {
    ASSERT_TRUE(stream.synchronize_for(2 * patience))
        << "a stream waits for work that is behind it in the same channel";
    ASSERT_EQ(std::memcmp(back.data(), noise().data(), size), 0);
  }
  size_t size;
  Stream stream;
  DeviceBytes there;
  Bytes back;
};

std::vector<std::unique_ptr<Line>> lines(size_t count, size_t bytes) {
  std::vector<std::unique_ptr<Line>> all;
  repeat(count, [&] { all.push_back(std::make_unique<Line>(bytes)); });
  for (const auto& line : all) line->stream.synchronize();
  return all;
}

// Streams share channels, and a channel runs its work in order. What a stream waits for must never
// be behind another stream's wait.
TEST_F(Staging, MoreBlockedStreamsThanChannels) {
  const auto all = lines(40, 700 * 1024);
  Stream held;
  Gate gate{held};
  const Event opened = held.record_event();
  for (const auto& line : all) line->stream.wait_event(opened);
  for (const auto& line : all) line->enqueue();
  EXPECT_CLOSED(gate);
  EXPECT_PENDING(all.back()->stream);
  gate.open();
  for (const auto& line : all) line->expect_arrived();
}

TEST_F(Staging, ThreadsThatFillAllChannelsFinish) {
  constexpr size_t threads = 8, each = 4;
  const int rounds = long_tests() ? 20 : 2;
  const auto all = lines(threads * each, 5 * mib);
  on_threads(threads, [&](int i) {
    repeat(rounds, [&] {
      for (size_t k : range(each)) all[static_cast<size_t>(i) * each + k]->enqueue();
    });
  });
  for (const auto& line : all) line->expect_arrived();
}

// A stream accepts only some thousand pending commands. With RUNNEL_STAGING_CHUNK=512K this copy
// would be 800 pieces.
TEST_F(Staging, ALargeCopyIsEnqueuedWholeOnABlockedStream) {
  const size_t much = 400 * mib;
  const Bytes source(much, 6);
  Bytes back(much);
  Stream stream;
  DeviceBytes there{much, stream};
  copy(stream, there, source);  // makes the staging ring
  stream.synchronize();
  const auto behind_a_gate = [&](auto copy_one) {
    Gate gate{stream};
    // uses small ring slots; the large copy behind it must use large ones
    copy_bytes(stream, there.data(), source.data(), 700 * 1024);
    copy_one();
    gate.open_and_wait(stream);
  };
  behind_a_gate([&] { copy(stream, there, source); });
  behind_a_gate([&] { copy(stream, back, there); });
  EXPECT_TRUE(back == source);
}

/// Memory from mmap().
class Mapping {
 public:
  Mapping(size_t bytes, int protection, int flags, int file = -1)
      : bytes_{bytes}, begin_{mmap(nullptr, bytes, protection, flags, file, 0)} {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (*this) munmap(begin_, bytes_);
  }
  explicit operator bool() const { return begin_ != MAP_FAILED; }
  unsigned char* data() const { return static_cast<unsigned char*>(begin_); }
  std::span<unsigned char> span() const { return {data(), bytes_}; }

 private:
  size_t bytes_;
  void* begin_;
};

/// A temporary file without a name, filled with random bytes.
class File {
 public:
  explicit File(size_t bytes) : file_{std::tmpfile()} {
    EXPECT_EQ(std::fwrite(noise().data(), 1, bytes, file_), bytes);
    EXPECT_EQ(std::fflush(file_), 0);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { std::fclose(file_); }
  int number() const { return fileno(file_); }

 private:
  std::FILE* file_;
};

constexpr size_t size = 3 * mib + 5;

void expect_carried_up(std::span<const unsigned char> source) {
  const Bytes expected(source.begin(), source.end());
  Stream stream;
  DeviceBytes there{source.size(), stream};
  Bytes back(source.size());
  EXPECT_NE(copy(stream, there, source, {Pageable::stage}), CopyResult::blocked);
  copy(stream, back, there, {Pageable::stage});
  stream.synchronize();
  EXPECT_TRUE(back == expected);
}

void expect_carried_down(std::span<unsigned char> destination) {
  std::memset(destination.data(), 0, destination.size());
  Stream stream;
  DeviceBytes there{destination.size(), stream};
  copy_bytes(stream, there.data(), noise().data(), destination.size(), {Pageable::stage});
  EXPECT_NE(copy(stream, destination, there, {Pageable::stage}), CopyResult::blocked);
  stream.synchronize();
  EXPECT_EQ(std::memcmp(destination.data(), noise().data(), destination.size()), 0);
}

TEST_F(Staging, StackMemory) {
  on_thread([] {
    std::array<unsigned char, 300'000> block;
    std::memcpy(block.data(), noise().data() + 7, block.size());
    for (const size_t bytes : {100UL, block.size()}) {
      expect_carried_up(std::span{block}.first(bytes));
      expect_carried_down(std::span{block}.first(bytes));
    }
  });
}

TEST_F(Staging, MappedFiles) {
  const File file{size};
  const Mapping shared{size, PROT_READ | PROT_WRITE, MAP_SHARED, file.number()};
  const Mapping own{size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.number()};
  const Mapping read_only{size, PROT_READ, MAP_PRIVATE, file.number()};
  ASSERT_TRUE(shared && own && read_only);
  for (const Mapping* const mapping : {&shared, &own, &read_only}) {
    expect_carried_up(mapping->span());
    expect_carried_up(mapping->span().subspan(4097, 3000));
  }
  expect_carried_down(own.span());
  expect_carried_down(shared.span());
  Bytes read(size);
  EXPECT_EQ(pread(file.number(), read.data(), size, 0), static_cast<ssize_t>(size));
  EXPECT_EQ(std::memcmp(read.data(), noise().data(), size), 0);
}

TEST_F(Staging, ReadOnlyPages) {
  const Mapping pages{size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS};
  ASSERT_TRUE(pages);
  std::memcpy(pages.data(), noise().data(), size);
  ASSERT_EQ(mprotect(pages.data(), size, PROT_READ), 0);
  expect_carried_up(pages.span());
}

TEST_F(Staging, HugePages) {
  const Mapping pages{8 * mib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS};
  ASSERT_TRUE(pages);
  madvise(pages.data(), 8 * mib, MADV_HUGEPAGE);  // the system may ignore this
  expect_carried_down(pages.span().subspan(11, 7 * mib));
  expect_carried_up(pages.span().subspan(11, 7 * mib));
}

TEST_F(Staging, PartlyRegisteredMemory) {
  constexpr size_t page = 4096;
  const Mapping pages{size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS};
  ASSERT_TRUE(pages);
  std::memcpy(pages.data(), noise().data(), size);
  struct Part {
    size_t first, count;
  };
  for (const Part part : {Part{0, 8}, Part{500, 8}, Part{700, 8}}) {
    const HostRegistration registered{pages.data() + part.first * page, part.count * page};
    expect_carried_up(pages.span());
    expect_carried_down(pages.span());
    // from the registered part to the pageable part
    expect_carried_up(pages.span().subspan(part.first * page + 10, 12 * page));
    expect_carried_down(pages.span().subspan(part.first * page + 10, 12 * page));
    if (part.first == 0) continue;
    // from the pageable part to the registered part
    expect_carried_up(pages.span().subspan((part.first - 4) * page + 10, 8 * page));
    expect_carried_down(pages.span().subspan((part.first - 4) * page + 10, 8 * page));
  }
}

/// Pageable memory of which some ranges of pages are registered.
class PartlyRegistered {
 public:
  using Pages = std::vector<std::pair<size_t, size_t>>;  // the first page, and how many
  explicit PartlyRegistered(const Pages& registered) {
    for (const auto& [first, count] : registered)
      registrations_.emplace_back(begin() + first * page, count * page);
  }
  unsigned char* begin() const { return memory_.get(); }
  static constexpr size_t page = 4096;
  static constexpr size_t size = 512 * page;

 private:
  struct Free {
    void operator()(unsigned char* memory) const { std::free(memory); }
  };
  std::unique_ptr<unsigned char, Free> memory_{
      static_cast<unsigned char*>(std::aligned_alloc(page, size))};
  std::vector<HostRegistration> registrations_;
};

TEST_F(Staging, MemoryRegisteredInSeveralPieces) {
  constexpr size_t page = PartlyRegistered::page;
  const PartlyRegistered::Pages layouts[] = {
      {{0, 1}, {511, 1}}, {{0, 256}, {256, 256}}, {{0, 4}, {100, 4}, {508, 4}}};
  Stream stream;
  DeviceBytes there{PartlyRegistered::size, stream};
  for (const auto& layout : layouts)
    for (const size_t bytes : {PartlyRegistered::size, 257 * page}) {
      PartlyRegistered memory{layout};
      const std::span<unsigned char> host{memory.begin() + (PartlyRegistered::size - bytes), bytes};
      const Bytes expected = pattern(bytes, 5);
      std::ranges::copy(expected, host.begin());
      stream.synchronize();
      EXPECT_NE(copy_bytes(stream, there.data(), host.data(), bytes), CopyResult::nothing);
      stream.synchronize();
      std::ranges::fill(host, 0);
      EXPECT_NE(copy_2d(stream, host.data(), page, there.data(), page, page, bytes / page),
                CopyResult::nothing);
      stream.synchronize();
      EXPECT_SAME(host, expected);
      const std::array both{
          CopyOperation{there.data(), host.data(), bytes / 2},
          CopyOperation{there.data() + bytes / 2, host.data() + bytes / 2, bytes - bytes / 2}};
      fill_bytes(stream, there.data(), 0, bytes);
      EXPECT_EQ(copy_batch(stream, both).nothing, 0U);
      stream.synchronize();
      Bytes back(bytes);
      copy_bytes(stream, back.data(), there.data(), bytes);
      stream.synchronize();
      EXPECT_TRUE(back == expected);
    }
}

TEST_F(Staging, MemoryThatIsPinnedAtOneEndCountsAsPageable) {
  SKIP_IF(streams_are_threads() || device().can_use_host_page_tables(),
          "all memory is copied directly here");
  for (const PartlyRegistered::Pages& layout :
       {PartlyRegistered::Pages{{0, 8}}, PartlyRegistered::Pages{{504, 8}}}) {
    const PartlyRegistered memory{layout};
    Stream stream;
    DeviceBytes there{PartlyRegistered::size, stream};
    EXPECT_EQ(copy_bytes(stream, there.data(), memory.begin(), PartlyRegistered::size),
              CopyResult::staged);
    EXPECT_EQ(copy_bytes(stream, memory.begin(), there.data(), PartlyRegistered::size),
              CopyResult::staged);
    EXPECT_ERROR(not_permitted, copy_bytes(stream, there.data(), memory.begin(),
                                           PartlyRegistered::size, {Pageable::refuse}));
    stream.synchronize();
  }
}

TEST_F(Staging, AStreamDoesNotWaitForTheRingOfABlockedStream) {
  SKIP_IF(!device().has_stream_memory_operations() && !host_functions_overlap(),
          "host functions copy the bytes, and the runtime runs only the gate's function");
  constexpr size_t bytes = 4 * mib;  // a ring holds all of it, so the workers can finish
  Stream held;
  Streams streams(9);
  std::vector<DeviceBytes> there;
  for (const Stream& stream : streams) there.emplace_back(bytes, stream);
  const Bytes source{noise().begin(), noise().begin() + bytes};
  for (const Stream& stream : streams) stream.synchronize();
  // Find the streams that share a channel with `held`.
  std::vector<size_t> beside, free;
  {
    Gate gate{held};
    for (size_t i : range(streams.size())) {
      fill_bytes(streams[i], there[i].data(), 0, 1);
      (streams[i].synchronize_for(100ms) ? free : beside).push_back(i);
    }
  }
  for (const Stream& stream : streams) stream.synchronize();
  Gate gate{held};
  // The streams beside `held` are blocked too, so they do not read what the workers write to their
  // rings.
  for (const size_t i : beside) copy(streams[i], there[i], source);
  for (const size_t i : free) {
    copy(streams[i], there[i], source);
    EXPECT_TRUE(streams[i].synchronize_for(patience));
  }
  gate.open();
  for (size_t i : range(streams.size())) {
    EXPECT_TRUE(read_back(streams[i], there[i]) == source);
  }
}

TEST_F(StagingTwo, PinnedMemoryOfAnotherDevice) {
  const DeviceGuard there{second};
  PinnedBytes block{size};
  std::memcpy(block.data(), noise().data() + 3, size);
  const DeviceGuard here{first};
  expect_carried_up(block);
  expect_carried_down(block);
}

/// Expects that synchronize() throws `expected` and that the stream continues. `spoil` makes the
/// memory inaccessible: before the copy if the stream is `idle`, else while the copy waits behind a
/// gate.
template <class Spoil>
void expect_error(errc expected, std::span<unsigned char> memory, bool up, bool idle, Spoil spoil) {
  Stream stream;
  DeviceBytes there{std::max<size_t>(memory.size(), 1000), stream};
  stream.synchronize();
  bool went_on = false;
  {
    Gate gate;
    if (idle)
      spoil();
    else
      gate.close_on(stream);
    if (up)
      copy_bytes(stream, there.data(), memory.data(), memory.size(), {Pageable::stage});
    else
      copy_bytes(stream, memory.data(), there.data(), memory.size(), {Pageable::stage});
    stream.launch_host_func([&] { went_on = true; });
    if (!idle) spoil();
    gate.open();
    EXPECT_EQ(code_of([&] { stream.synchronize(); }), expected);
  }
  EXPECT_TRUE(went_on);
  Bytes back(1000);
  copy_bytes(stream, there.data(), noise().data(), back.size());
  copy_bytes(stream, back.data(), there.data(), back.size());
  stream.synchronize();
  EXPECT_EQ(std::memcmp(back.data(), noise().data(), back.size()), 0);
}

struct Spoilt {
  bool up, idle;
  size_t bytes;
};
// Copies of 3000 bytes to the device are left out: a driver reads so few bytes itself.
constexpr std::array spoilt_copies{Spoilt{true, false, size},   Spoilt{false, false, size},
                                   Spoilt{true, true, size},    Spoilt{false, true, size},
                                   Spoilt{true, true, 100'000}, Spoilt{false, true, 100'000},
                                   Spoilt{false, true, 3000}};

TEST_F(Staging, ATruncatedMappedFileIsAnError) {
  SKIP_IF(!pages_can_be_asked_about(),
          "copies are not staged here, or the system is older than Linux 6.11");
  for (const Spoilt& s : spoilt_copies) {
    const File file{s.bytes};
    const Mapping mapping{s.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.number()};
    ASSERT_TRUE(mapping);
    expect_error(s.up ? errc::unreadable_source : errc::unwritable_destination, mapping.span(),
                 s.up, s.idle, [&] {
                   ASSERT_EQ(
                       ftruncate(file.number(), static_cast<off_t>(s.bytes / 3 / 4096 * 4096)), 0);
                 });
  }
}

TEST_F(Staging, PagesWithoutPermissionAreAnError) {
  SKIP_IF(!pages_can_be_asked_about(),
          "copies are not staged here, or the system is older than Linux 6.11");
  for (const Spoilt& s : spoilt_copies) {
    const Mapping pages{s.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS};
    ASSERT_TRUE(pages);
    std::memset(pages.data(), 1, s.bytes);
    expect_error(s.up ? errc::unreadable_source : errc::unwritable_destination, pages.span(), s.up,
                 s.idle, [&] {
                   ASSERT_EQ(mprotect(pages.data() + s.bytes / 3 / 4096 * 4096, 4096,
                                      s.up ? PROT_NONE : PROT_READ),
                             0);
                 });
  }
}

TEST_F(Staging, APageOfAListWithoutPermissionIsAnError) {
  SKIP_IF(!pages_can_be_asked_about(),
          "copies are not staged here, or the system is older than Linux 6.11");
  constexpr size_t page = 4096, count = 16;
  for (const bool up : {true, false}) {
    const Mapping pages{count * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS};
    ASSERT_TRUE(pages);
    std::memset(pages.data(), 1, count * page);
    Stream stream;
    DeviceBytes there{count * page, stream};
    fill(stream, there, 3);
    std::vector<CopyOperation> list;
    for (size_t i : range(count)) {
      unsigned char *const device = there.data() + (count - 1 - i) * page, *const host =
                                                                               pages.data() +
                                                                               i * page;
      list.push_back(up ? CopyOperation{device, host, page} : CopyOperation{host, device, page});
    }
    ASSERT_EQ(mprotect(pages.data() + 4 * page, page, up ? PROT_NONE : PROT_READ), 0);
    copy_batch(stream, list);
    const errc expected = up ? errc::unreadable_source : errc::unwritable_destination;
    std::error_code code;
    stream.synchronize(code);
    EXPECT_EQ(code, expected);
    EXPECT_EQ(code_of([&] { stream.synchronize(); }), expected);
    if (!up) {
      EXPECT_EQ(pages.data()[15 * page], 3) << "the other pages arrive all the same";
    }
  }
}

using StagingInLittleMemory = Conformance;

TEST_F(StagingInLittleMemory, TakesASmallerRing) {
  SKIP_IF(streams_are_threads(), "copies are not staged here");
  SKIP_IF(device().memory_info().total > 64 * mib, "there is more than 64 MiB of memory");
  runnel::Staging::trim();
  std::vector<PinnedBytes> held;
  try {
    for (;;) held.emplace_back(mib);
  } catch (const std::bad_alloc&) {
  }
  // Six buffers of 1 MiB remain: enough for a ring of 4 MiB, but not for the 8 MiB that a copy of
  // this size uses otherwise.
  held.resize(held.size() - 6);
  PinnedPool::trim();
  const Stream stream;
  DeviceBytes there{20 * mib, stream};
  Bytes in(there.size());
  for (size_t at : range(in.size())) in[at] = noise()[at * 7 % noise().size()];
  copy(stream, there, in);
  EXPECT_TRUE(read_back(stream, there) == in);
}

}  // namespace conformance::staging_cases
