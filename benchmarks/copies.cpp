// SPDX-License-Identifier: Apache-2.0
/// Copies between host and device: bytes per second, and how long the call blocks ("held"), by
/// size, direction and kind of memory. "Raw" is the runtime's asynchronous copy from the same
/// memory. The bytes of every copy are checked once.
#include "must.hpp"
#include "raw_runtime.hpp"

#include <runnel/runnel.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace runnel;
using bench::must;
using Clock = std::chrono::steady_clock;

struct Times {
  double held_us;
  double total_us;
};

template <class Copy>
[[nodiscard]] Times timed_once(StreamRef stream, Copy& copy) {
  const auto start = Clock::now();
  copy();
  const std::chrono::duration<double, std::micro> held = Clock::now() - start;
  stream.synchronize();
  const std::chrono::duration<double, std::micro> total = Clock::now() - start;
  return {held.count(), total.count()};
}

[[nodiscard]] double median(std::vector<Times>& runs, double Times::* which) {
  const auto middle = runs.begin() + static_cast<std::ptrdiff_t>(runs.size() / 2);
  std::nth_element(runs.begin(), middle, runs.end(),
                   [&](Times a, Times b) { return a.*which < b.*which; });
  return (*middle).*which;
}

/// The medians of each copy, timed from the call until the stream is idle. The copies take turns. A
/// turn of small copies has several repeats, and one before them that does not count, so that no
/// copy profits from what another one left in the caches.
template <class... Copies>
[[nodiscard]] std::array<Times, sizeof...(Copies)> timed_in_turns(StreamRef stream,
                                                                  std::size_t bytes,
                                                                  Copies... copies) {
  constexpr std::size_t mib = std::size_t{1} << 20;
  const int turns = bytes > 1024 * mib ? 3 : bytes == 1024 * mib ? 5 : bytes >= 16 * mib ? 9 : 31;
  const int repeats = bytes >= mib ? 1 : 10, first = repeats > 1 ? -1 : 0;
  std::array<std::vector<Times>, sizeof...(Copies)> runs;
  const auto turn = [&](auto& copy, std::vector<Times>& into, bool counts) {
    for (int i = first; i < repeats; ++i) {
      const Times times = timed_once(stream, copy);
      if (i >= 0 && counts) into.push_back(times);
    }
  };
  for (int i = -1; i < turns; ++i) {
    std::size_t which = 0;
    (turn(copies, runs[which++], i >= 0), ...);
  }
  std::array<Times, sizeof...(Copies)> medians;
  std::transform(runs.begin(), runs.end(), medians.begin(), [](auto& all) {
    return Times{median(all, &Times::held_us), median(all, &Times::total_us)};
  });
  return medians;
}
template <class Copy>
[[nodiscard]] Times timed(StreamRef stream, std::size_t bytes, Copy copy) {
  return timed_in_turns(stream, bytes, copy)[0];
}

[[nodiscard]] std::string size_text(std::size_t bytes) {
  if (bytes >= (std::size_t{1} << 30)) return std::to_string(bytes >> 30) + " GiB";
  if (bytes >= (std::size_t{1} << 20)) return std::to_string(bytes >> 20) + " MiB";
  return std::to_string(bytes >> 10) + " KiB";
}

void print(std::size_t bytes, const char* direction, const char* memory, Times raw, Times own) {
  const auto rate = [&](Times t) { return static_cast<double>(bytes) / t.total_us / 1e3; };
  std::printf("%8s  %-6s %-9s %9.2f %11.1f %9.2f %11.1f %8.2f\n", size_text(bytes).c_str(),
              direction, memory, rate(raw), raw.held_us, rate(own), own.held_us,
              raw.total_us / own.total_us);
  std::fflush(stdout);
}

[[nodiscard]] bool same(const unsigned char* a, const unsigned char* b, std::size_t bytes,
                        const char* what) {
  if (std::memcmp(a, b, bytes) == 0) return true;
  std::printf("WRONG BYTES: %s, %zu bytes\n", what, bytes);
  return false;
}

[[nodiscard]] double rate_of(std::size_t bytes, Times t) {
  return static_cast<double>(bytes) / t.total_us / 1e3;
}

/// The total rate of two streams, which copy in opposite directions or in the same direction.
void two_at_once(StreamRef stream, std::size_t bytes, unsigned char* there, unsigned char* pinned,
                 unsigned char* pageable, unsigned char* back) {
  const Stream other;
  DeviceBuffer<unsigned char> second(bytes, other);
  PinnedBuffer<unsigned char> pinned_back(bytes);
  other.synchronize();
  const auto two = [&](auto on_other) {
    return [&, on_other](unsigned char* from, unsigned char* to) {
      return rate_of(2 * bytes, timed(stream, bytes, [&] {
                       copy_bytes(stream, there, from, bytes);
                       on_other(from, to);
                       stream.wait_stream(other);
                     }));
    };
  };
  const auto both_ways =
      two([&](unsigned char*, unsigned char* to) { copy_bytes(other, to, second.data(), bytes); });
  const auto up_twice = two(
      [&](unsigned char* from, unsigned char*) { copy_bytes(other, second.data(), from, bytes); });
  std::printf("%8s  both ways at once, together: pinned %.1f GB/s, pageable %.1f GB/s\n",
              size_text(bytes).c_str(), both_ways(pinned, pinned_back.data()),
              both_ways(pageable, back));
  std::printf("%8s  up on two streams, together: pinned %.1f GB/s, pageable %.1f GB/s\n",
              size_text(bytes).c_str(), up_twice(pinned, pinned_back.data()),
              up_twice(pageable, back));
}

/// A staged copy while the device is busy with copies within the device, which are kernels. Also
/// measures both alone.
void beside_device_work(StreamRef stream, unsigned char* there, unsigned char* pageable,
                        std::size_t bytes) {
  const Stream other;
  constexpr std::size_t area = std::size_t{512} << 20;
  DeviceBuffer<unsigned char> a(area, other), b(area, other);
  other.synchronize();
  const auto work = [&] {
    for (int i = 0; i < 64; ++i) copy(other, b, a);
  };
  const auto up = [&] { copy_bytes(stream, there, pageable, bytes); };
  const Times busy = timed(other, bytes, work);
  const Times alone = timed(stream, bytes, up);
  const Times both = timed(stream, bytes, [&] {
    work();
    up();
  });
  other.synchronize();
  std::printf("%8s  up beside device work of %.1f ms: %.1f GB/s, alone %.1f GB/s\n",
              size_text(bytes).c_str(), busy.total_us / 1e3, rate_of(bytes, both),
              rate_of(bytes, alone));
}

/// How long a small copy to the host blocks the caller while another stream does a large one.
void beside_other_copies(StreamRef stream, unsigned char* there, unsigned char* pinned,
                         std::size_t bytes, unsigned char* back) {
  const Stream other;
  for (const std::size_t few :
       {std::size_t{4} << 10, std::size_t{64} << 10, std::size_t{256} << 10}) {
    const auto held = [&](auto copy) {
      copy_bytes(other, pinned, there, bytes);
      // so that the large copy has begun
      std::this_thread::sleep_for(std::chrono::microseconds{300});
      const Times times = timed_once(stream, copy);
      other.synchronize();
      return times.held_us;
    };
    const double raw =
        held([&] { must(bench::raw::copy_async(back, there, few, stream.native())); });
    const double own = held([&] { copy_bytes(stream, back, there, few); });
    std::printf("%8s  down beside another stream's %s down, held: raw %.1f us, own %.1f us\n",
                size_text(few).c_str(), size_text(bytes).c_str(), raw, own);
  }
}

void many_small(StreamRef stream, unsigned char* there, unsigned char* pinned) {
  constexpr std::size_t count = 4096, size = std::size_t{64} << 10;
  std::vector<CopyOperation> operations;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = i * size;
    operations.push_back(copy_operation(DeviceSpan<unsigned char>{there + at, size},
                                        std::span<unsigned char>{pinned + at, size}));
    operations.back().from_kind = MemoryKind::pinned;
  }
  const auto loop = [&] {
    for (const CopyOperation& one : operations)
      must(bench::raw::copy_async(one.to, one.from, one.bytes, stream.native()));
  };
  const auto [raw, own] =
      timed_in_turns(stream, count * size, loop, [&] { copy_batch(stream, operations); });
  std::printf(
      "4096 x 64 KiB pinned, up: raw loop %.1f GB/s, held %.2f ms; batch %.1f GB/s, held %.2f ms: "
      "%.2f times as fast\n",
      rate_of(count * size, raw), raw.held_us / 1e3, rate_of(count * size, own), own.held_us / 1e3,
      raw.total_us / own.total_us);
}

[[nodiscard]] std::size_t resident_bytes() {
  std::size_t total = 0, resident = 0;
  if (std::FILE* const file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%zu %zu", &total, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return resident << 12;
}

/// 100,000 staged round trips, some of them on streams that are destroyed. Returns whether the
/// memory of the process stays constant.
[[nodiscard]] bool steady(StreamRef stream, unsigned char* there, unsigned char* pageable,
                          unsigned char* back) {
  constexpr std::size_t size = std::size_t{80} << 10;
  std::size_t before = 0;
  const auto start = Clock::now();
  for (int i = 0; i < 100'000; ++i) {
    if (i == 1000) before = resident_bytes();
    if (i % 100 == 0) {
      const Stream passing;
      copy_bytes(passing, there, pageable, size);
      passing.synchronize();
    }
    copy_bytes(stream, there, pageable, size);
    copy_bytes(stream, back, there, size);
    if (i % 16 == 0) stream.synchronize();
  }
  stream.synchronize();
  const std::chrono::duration<double> taken = Clock::now() - start;
  const std::size_t after = resident_bytes();
  const double grown = after > before ? static_cast<double>(after - before) / 1024 : 0;
  std::printf("100,000 round trips of 80 KiB, staged: %.1f us each, grown by %.0f KiB\n",
              taken.count() * 10, grown);
  return grown < 1024;
}

/// Copies of one size in each direction, raw and own. Returns whether the bytes are right.
[[nodiscard]] bool each_direction(StreamRef stream, std::size_t bytes, unsigned char* device,
                                  unsigned char* pinned, unsigned char* pageable,
                                  unsigned char* back) {
  const DeviceSpan<unsigned char> there{device, bytes};
  const auto both = [&](const char* direction, const char* memory, auto to, auto from) {
    const auto [raw, own] = timed_in_turns(
        stream, bytes,
        [&] { must(bench::raw::copy_async(to.data(), from.data(), bytes, stream.native())); },
        [&] { copy(stream, to, from); });
    print(bytes, direction, memory, raw, own);
  };
  using Bytes = std::span<unsigned char>;
  both("up", "pinned", there, Bytes{pinned, bytes});
  both("down", "pinned", Bytes{pinned, bytes}, there);
  both("up", "pageable", there, Bytes{pageable, bytes});
  std::memset(back, 0, bytes);
  both("down", "pageable", Bytes{back, bytes}, there);
  fill_bytes(stream, device, 0xAB, bytes);
  copy_bytes(stream, device, pageable, bytes);
  std::memset(back, 0, bytes);
  copy_bytes(stream, back, device, bytes);
  stream.synchronize();
  return same(back, pageable, bytes, "up and down through staging");
}

/// How long a staged copy blocks the caller when the stream is blocked before the copy.
void behind_a_closed_gate(StreamRef stream, std::size_t bytes, unsigned char* there,
                          unsigned char* pageable, unsigned char* back) {
  const auto held = [&](auto copy) {
    std::atomic<bool> open{false};
    stream.launch_host_func([&] {
      while (!open.load()) {
      }
    });
    const auto start = Clock::now();
    copy();
    const std::chrono::duration<double, std::micro> taken = Clock::now() - start;
    open.store(true);
    stream.synchronize();
    return taken.count();
  };
  std::printf("%8s  behind a closed gate, held: up %.1f us, down %.1f us\n",
              size_text(bytes).c_str(), held([&] { copy_bytes(stream, there, pageable, bytes); }),
              held([&] { copy_bytes(stream, back, there, bytes); }));
}

void fill_with_random_bytes(unsigned char* memory, std::size_t bytes) {
  std::uint64_t random = 88172645463325252U;
  for (std::size_t i = 0; i < bytes; i += sizeof random) {
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    std::memcpy(memory + i, &random, sizeof random);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (Device::count() == 0) {
    std::printf("no device: %s\n", Device::why_no_device().c_str());
    return 77;
  }
  // in MiB
  const std::size_t largest =
      std::max<std::size_t>(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1024, 256) << 20;
  std::printf("%s, %s, %d staging workers\n", RUNNEL_BACKEND, Device::current().name().c_str(),
              Staging::options().workers);
  std::printf("%8s  %-6s %-9s %9s %11s %9s %11s %8s\n", "bytes", "", "memory", "raw GB/s",
              "held, us", "own GB/s", "held, us", "speed-up");

  const Stream stream;
  DeviceBuffer<unsigned char> device(largest, stream);
  PinnedBuffer<unsigned char> pinned(largest);
  const std::unique_ptr<unsigned char[]> pageable{new unsigned char[largest]};
  const std::unique_ptr<unsigned char[]> back{new unsigned char[largest]};
  fill_with_random_bytes(pageable.get(), largest);
  std::memcpy(pinned.data(), pageable.get(), largest);
  std::memset(back.get(), 0, largest);
  stream.synchronize();

  bool well = true;
  for (const unsigned kib : {4U, 16U, 32U, 64U, 96U, 128U, 192U, 256U, 384U, 512U, 1U << 10,
                             8U << 10, 32U << 10, 128U << 10, 1U << 20, 4U << 20}) {
    const std::size_t bytes = std::size_t{kib} << 10;
    if (bytes > largest) break;
    well =
        each_direction(stream, bytes, device.data(), pinned.data(), pageable.get(), back.get()) &&
        well;
  }
  for (const std::size_t bytes : {std::size_t{64} << 10, std::size_t{16} << 20, largest})
    behind_a_closed_gate(stream, bytes, device.data(), pageable.get(), back.get());
  two_at_once(stream, largest, device.data(), pinned.data(), pageable.get(), back.get());
  beside_device_work(stream, device.data(), pageable.get(), largest);
  beside_other_copies(stream, device.data(), pinned.data(), std::size_t{256} << 20, back.get());
  many_small(stream, device.data(), pinned.data());
  well = steady(stream, device.data(), pageable.get(), back.get()) && well;
  return well ? 0 : 1;
}
