// SPDX-License-Identifier: Apache-2.0
/// Copies between host and device: bytes a second, and for how long the caller is held, by size, direction and kind of memory. Raw is
/// the runtime's asynchronous copy from the same memory. Every copy's bytes are checked once.
#include "runtime.hpp"

#include <runnel/runnel.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace runnel;
namespace rt = runnel::rt;
using Clock = std::chrono::steady_clock;

struct Times {
  double held_us;
  double total_us;
};

void must(int status) {
  if (status == 0) return;
  std::fprintf(stderr, "raw runtime call failed: %d\n", status);
  std::exit(1);
}

/// Median of the repeats, each timed from the call to the end of the stream.
template <class Copy>
[[nodiscard]] Times timed(StreamRef stream, std::size_t bytes, Copy copy) {
  const int repeats = bytes >= (std::size_t{1} << 30) ? 5 : bytes >= (std::size_t{16} << 20) ? 9 : 31;
  std::vector<Times> runs;
  for (int i = -1; i < repeats; ++i) {
    const auto start = Clock::now();
    copy();
    const std::chrono::duration<double, std::micro> held = Clock::now() - start;
    stream.synchronize();
    const std::chrono::duration<double, std::micro> total = Clock::now() - start;
    if (i >= 0) runs.push_back({held.count(), total.count()});
  }
  const auto middle = runs.begin() + static_cast<std::ptrdiff_t>(runs.size() / 2);
  std::nth_element(runs.begin(), middle, runs.end(), [](Times a, Times b) { return a.total_us < b.total_us; });
  const double total = middle->total_us;
  std::nth_element(runs.begin(), middle, runs.end(), [](Times a, Times b) { return a.held_us < b.held_us; });
  return {middle->held_us, total};
}

[[nodiscard]] std::string size_text(std::size_t bytes) {
  if (bytes >= (std::size_t{1} << 30)) return std::to_string(bytes >> 30) + " GiB";
  if (bytes >= (std::size_t{1} << 20)) return std::to_string(bytes >> 20) + " MiB";
  return std::to_string(bytes >> 10) + " KiB";
}

void print(std::size_t bytes, const char* direction, const char* memory, Times raw, Times own) {
  const auto rate = [&](Times t) { return static_cast<double>(bytes) / t.total_us / 1e3; };
  std::printf("%8s  %-6s %-9s %9.2f %11.1f %9.2f %11.1f %8.2f\n", size_text(bytes).c_str(), direction, memory, rate(raw), raw.held_us,
              rate(own), own.held_us, raw.total_us / own.total_us);
  std::fflush(stdout);
}

[[nodiscard]] bool same(const unsigned char* a, const unsigned char* b, std::size_t bytes, const char* what) {
  if (std::memcmp(a, b, bytes) == 0) return true;
  std::printf("WRONG BYTES: %s, %zu bytes\n", what, bytes);
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (Device::count() == 0) {
    std::printf("no device: %s\n", Device::why_none().c_str());
    return 77;
  }
  const std::size_t largest = (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1024) << 20;  // in MiB
  std::printf("%s, %s, %d staging workers\n", RUNNEL_BACKEND, Device::current().name().c_str(), staging_options().workers);
  std::printf("%8s  %-6s %-9s %9s %11s %9s %11s %8s\n", "bytes", "", "memory", "raw GB/s", "held, us", "own GB/s", "held, us", "speed-up");

  const Stream stream;
  DeviceBuffer<unsigned char> device(largest, stream);
  PinnedBuffer<unsigned char> pinned(largest);
  const std::unique_ptr<unsigned char[]> pageable{new unsigned char[largest]};
  const std::unique_ptr<unsigned char[]> back{new unsigned char[largest]};
  std::uint64_t random = 88172645463325252U;
  for (std::size_t i = 0; i < largest; ++i) {
    if (i % 8 == 0) random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    pageable[i] = static_cast<unsigned char>(random >> (i % 8 * 8));
  }
  std::memcpy(pinned.data(), pageable.get(), largest);
  std::memset(back.get(), 0, largest);
  stream.synchronize();

  const auto raw_copy = [&](void* to, const void* from, std::size_t bytes) {
    must(rt::copy_async(to, from, bytes, rt::copy_default, stream.native()));
  };
  bool well = true;
  for (std::size_t bytes = std::size_t{4} << 10; bytes <= largest; bytes *= bytes < (std::size_t{1} << 20) ? 4 : 8) {
    const DeviceSpan<unsigned char> there{device.data(), bytes};
    const auto both = [&](const char* direction, const char* memory, auto to, auto from) {
      const Times raw = timed(stream, bytes, [&] { raw_copy(to.data(), from.data(), bytes); });
      const Times own = timed(stream, bytes, [&] { copy(stream, to, from); });
      print(bytes, direction, memory, raw, own);
    };
    using Bytes = std::span<unsigned char>;
    both("up", "pinned", there, Bytes{pinned.data(), bytes});
    both("down", "pinned", Bytes{pinned.data(), bytes}, there);
    both("up", "pageable", there, Bytes{pageable.get(), bytes});
    std::memset(back.get(), 0, bytes);
    both("down", "pageable", Bytes{back.get(), bytes}, there);
    fill_bytes(stream, device.data(), 0xAB, bytes);
    copy_bytes(stream, device.data(), pageable.get(), bytes);
    std::memset(back.get(), 0, bytes);
    copy_bytes(stream, back.get(), device.data(), bytes);
    stream.synchronize();
    well = same(back.get(), pageable.get(), bytes, "up and down through staging") && well;
  }

  // Behind a closed gate: how long is the caller held when the stream is not even there yet?
  for (const std::size_t bytes : {std::size_t{64} << 10, std::size_t{16} << 20, largest}) {
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
    std::printf("%8s  behind a closed gate, held: up %.1f us, down %.1f us\n", size_text(bytes).c_str(),
                held([&] { copy_bytes(stream, device.data(), pageable.get(), bytes); }),
                held([&] { copy_bytes(stream, back.get(), device.data(), bytes); }));
  }

  // Two at once, in opposite directions on two streams.
  {
    const Stream down;
    DeviceBuffer<unsigned char> second(largest, down);
    down.synchronize();
    const auto two = [&](void* up_to, const void* up_from, void* down_to, const void* down_from) {
      return timed(stream, largest, [&] {
        copy_bytes(stream, up_to, up_from, largest);
        copy_bytes(down, down_to, down_from, largest);
        stream.wait_stream(down);
      });
    };
    PinnedBuffer<unsigned char> pinned_back(largest);
    const Times fast = two(device.data(), pinned.data(), pinned_back.data(), second.data());
    const Times staged = two(device.data(), pageable.get(), back.get(), second.data());
    const auto rate = [&](Times t) { return 2 * static_cast<double>(largest) / t.total_us / 1e3; };
    std::printf("%8s  both ways at once, together: pinned %.1f GB/s, pageable %.1f GB/s\n", size_text(largest).c_str(), rate(fast),
                rate(staged));
  }
  return well ? 0 : 1;
}
