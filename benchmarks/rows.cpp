// SPDX-License-Identifier: Apache-2.0
/// Many copies in a row on one stream, by size and count. The first table is about programs that
/// compute: other code has the stream's handle and enqueues a fill of the device between the
/// copies. It compares runnel, also with a hook, with the driver's own asynchronous copy and with a
/// ring of pinned memory written by hand (one thread, 64 slots, an event each). The second table
/// has streams whose handle nobody uses: copies one by one, and as one list. "Held" is the part of
/// the time for which the calls block. The bytes of every row are checked once.
#include "must.hpp"
#include "raw_runtime.hpp"

#include <runnel/hooks.hpp>
#include <runnel/runnel.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace runnel;
using bench::must;
using Clock = std::chrono::steady_clock;
constexpr std::size_t kib = 1024, mib = kib * kib;

struct Rate {
  double rate;  // GB/s
  double held;  // part of the time
};

/// The best of some runs.
template <class Copies>
[[nodiscard]] Rate timed(StreamRef stream, std::size_t bytes, int runs, Copies copies) {
  double best = 1e30, held = 0;
  for (int i = 0; i < runs; ++i) {
    const auto start = Clock::now();
    copies();
    const std::chrono::duration<double> called = Clock::now() - start;
    stream.synchronize();
    const std::chrono::duration<double> all = Clock::now() - start;
    if (all.count() < best) best = all.count(), held = called.count() / all.count();
  }
  return {static_cast<double>(bytes) / best / 1e9, held};
}

[[nodiscard]] std::string size_text(std::size_t bytes) {
  if (bytes >= mib) return std::to_string(bytes / mib) + " MiB";
  return bytes >= kib ? std::to_string(bytes / kib) + " KiB" : std::to_string(bytes) + " B";
}

enum class Order { ascending, shuffled, scattered };
[[nodiscard]] const char* text(Order order) {
  return order == Order::ascending ? "" : order == Order::shuffled ? "shuffled" : "scattered";
}

/// The operations of a row. Shuffled: any order on the host and on the device. Scattered: on the
/// device there are gaps, too.
[[nodiscard]] std::vector<CopyOperation> operations(unsigned char* to, unsigned char* from,
                                                    std::size_t bytes, std::size_t count,
                                                    Order order, bool up) {
  std::vector<std::size_t> host(count), device(count);
  std::iota(host.begin(), host.end(), std::size_t{0});
  std::iota(device.begin(), device.end(), std::size_t{0});
  if (order != Order::ascending) {
    std::mt19937 random{1};
    std::shuffle(host.begin(), host.end(), random);
    std::shuffle(device.begin(), device.end(), random);
  }
  const std::size_t stride = order == Order::scattered ? 2 * bytes : bytes;
  std::vector<CopyOperation> all;
  for (std::size_t i = 0; i < count; ++i)
    all.push_back({to + (up ? device[i] * stride : host[i] * bytes),
                   from + (up ? host[i] * bytes : device[i] * stride), bytes});
  return all;
}

struct Memory {
  unsigned char* device;
  unsigned char* host;  // pageable or pinned
  unsigned char* back;  // likewise
  std::size_t bytes;
};

void copy_by_driver(StreamRef stream, std::span<const CopyOperation> all) {
  for (const CopyOperation& each : all)
    must(bench::raw::copy_async(each.to, each.from, each.bytes, stream.native()));
}
void copy_one_by_one(StreamRef stream, std::span<const CopyOperation> all) {
  for (const CopyOperation& each : all) copy_bytes(stream, each.to, each.from, each.bytes);
}

constexpr std::size_t between_bytes = 64 * kib;
void fill_between(StreamRef stream, unsigned char* scratch) {
  must(bench::raw::fill_async(scratch, 0, between_bytes, stream.native()));
}

/// What a careful program does without the library.
class RingByHand {
 public:
  RingByHand(StreamRef stream, std::size_t bytes)
      : stream_{stream}, bytes_{bytes}, memory_(slots * bytes) {}
  void upload(const CopyOperation& copy) {
    const std::size_t slot = next_++ % slots;
    events_[slot].synchronize();
    unsigned char* const from = memory_.data() + slot * bytes_;
    std::memcpy(from, copy.from, copy.bytes);
    must(bench::raw::copy_async(copy.to, from, copy.bytes, stream_.native()));
    events_[slot].record(stream_);
  }

 private:
  static constexpr std::size_t slots = 64;
  StreamRef stream_;
  std::size_t bytes_;
  PinnedBuffer<unsigned char> memory_;
  std::vector<Event> events_{slots};
  std::size_t next_ = 0;
};

/// A row of a program that computes. False if other bytes have arrived.
bool computing_row(std::size_t bytes, const Memory& memory, unsigned char* scratch) {
  const std::size_t count = std::min<std::size_t>(16384, memory.bytes / 2 / bytes);
  const std::size_t all = bytes * count;
  const Stream stream;
  for (const bool up : {true, false}) {
    const auto plan = operations(up ? memory.device : memory.back, up ? memory.host : memory.device,
                                 bytes, count, Order::ascending, up);
    const auto each = [&](auto copy) {
      return timed(stream, all, 3, [&] {
        for (const CopyOperation& operation : plan) {
          copy(operation);
          fill_between(stream, scratch);
        }
      });
    };
    const auto by_library = [&](const CopyOperation& copy) {
      copy_bytes(stream, copy.to, copy.from, copy.bytes);
    };
    const Rate driver = each([&](const CopyOperation& copy) {
      must(bench::raw::copy_async(copy.to, copy.from, copy.bytes, stream.native()));
    });
    Rate by_hand{};
    if (up && bytes <= 8 * mib) {
      RingByHand ring{stream, bytes};
      by_hand = each([&](const CopyOperation& copy) { ring.upload(copy); });
    }
    if (!up) std::memset(memory.back, 0, all);
    const Rate own = each(by_library);
    set_hook([](const HookEvent&) noexcept {});
    const Rate hooked = each(by_library);
    set_hook(nullptr);
    std::printf("%8s x %5zu %-4s %7.2f %4.0f %%  %7.2f  %7.2f %4.0f %% %6.2f  %6.2f\n",
                size_text(bytes).c_str(), count, up ? "up" : "down", driver.rate, 100 * driver.held,
                by_hand.rate, own.rate, 100 * own.held, own.rate / driver.rate,
                hooked.rate / own.rate);
    std::fflush(stdout);
  }
  if (std::memcmp(memory.back, memory.host, all) == 0) return true;
  std::printf("WRONG BYTES\n");
  return false;
}

bool computing_rows(const Memory& memory) {
  const Stream stream;
  DeviceBuffer<unsigned char> scratch(between_bytes, stream);
  stream.synchronize();
  std::printf("a fill of the device between the copies, the handle is in use; pageable memory\n");
  std::printf("%8s   %5s %-4s %7s %6s  %7s  %7s %6s %6s  %6s\n", "bytes", "count", "", "driver",
              "held", "by hand", "runnel", "held", "ratio", "hook");
  bool well = true;
  for (const std::size_t bytes :
       {std::size_t{64}, kib, 4 * kib, 8 * kib, 16 * kib, 32 * kib, 64 * kib, 128 * kib, 256 * kib,
        512 * kib, 2 * mib, 8 * mib, 32 * mib, 256 * mib})
    well = computing_row(bytes, memory, scratch.data()) && well;
  return well;
}

/// Copies up and down. False if other bytes have arrived.
bool row(std::size_t bytes, std::size_t count, Order order, const Memory& memory,
         const char* kind) {
  const std::size_t all = bytes * count;
  if (all * (order == Order::scattered ? 2 : 1) > memory.bytes) return true;
  const int runs = all > 1024 * mib ? 2 : 4;
  const Stream raw, own, list;
  for (const bool up : {true, false}) {
    const auto plan = operations(up ? memory.device : memory.back, up ? memory.host : memory.device,
                                 bytes, count, order, up);
    const Rate driver =
        timed(raw, all, all > 1024 * mib ? 1 : runs, [&] { copy_by_driver(raw, plan); });
    if (!up) std::memset(memory.back, 0, all);
    const Rate single = timed(own, all, runs, [&] { copy_one_by_one(own, plan); });
    const Rate together = timed(list, all, runs, [&] { copy_batch(list, plan); });
    std::printf(
        "%8s x %5zu %-9s %-8s %-4s %7.2f %4.0f %%  %7.2f %4.0f %% %6.2f  %7.2f %4.0f %% %6.2f\n",
        size_text(bytes).c_str(), count, text(order), kind, up ? "up" : "down", driver.rate,
        100 * driver.held, single.rate, 100 * single.held, single.rate / driver.rate, together.rate,
        100 * together.held, together.rate / driver.rate);
    std::fflush(stdout);
  }
  // The permutations of both ways are the same, so that each block is back at its place.
  if (std::memcmp(memory.back, memory.host, all) == 0) return true;
  std::printf("WRONG BYTES\n");
  return false;
}

void fill_with_random_bytes(unsigned char* memory, std::size_t bytes) {
  std::vector<std::thread> threads;
  for (std::size_t part = 0; part < 8; ++part)
    threads.emplace_back([=] {
      std::mt19937_64 random{part};
      for (std::size_t i = part * (bytes / 8); i < (part + 1) * (bytes / 8); i += 8) {
        const std::uint64_t next = random();
        std::memcpy(memory + i, &next, 8);
      }
    });
  for (std::thread& each : threads) each.join();
}

}  // namespace

int main(int argc, char** argv) {
  if (Device::count() == 0) {
    std::printf("no device: %s\n", Device::why_no_device().c_str());
    return 77;
  }
  const std::size_t largest =
      std::max<std::size_t>(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 8192, 64) * mib;
  const Stream stream;
  DeviceBuffer<unsigned char> device(largest, stream);
  const std::unique_ptr<unsigned char[]> host{new unsigned char[largest]},
      back{new unsigned char[largest]};
  fill_with_random_bytes(host.get(), largest);
  std::memset(back.get(), 0, largest);
  stream.synchronize();
  std::printf("%s, %s, %d staging workers\n", RUNNEL_BACKEND, Device::current().name().c_str(),
              Staging::options().workers);
  const Memory pageable{device.data(), host.get(), back.get(), largest};
  bool well = computing_rows(pageable);
  std::printf("\n%8s   %5s %-9s %-8s %-4s %7s %6s  %7s %6s %6s  %7s %6s %6s\n", "bytes", "count",
              "order", "memory", "", "driver", "held", "each", "held", "ratio", "list", "held",
              "ratio");
  for (std::size_t bytes = largest; bytes >= 128 * kib; bytes /= bytes > 128 * mib ? 8 : 4)
    well = row(bytes, largest / bytes, Order::ascending, pageable, "pageable") && well;
  for (const std::size_t bytes : {64 * kib, 32 * kib, 16 * kib, 4 * kib, kib, std::size_t{64}})
    for (const std::size_t count : {std::size_t{65536}, std::size_t{256}})
      well = row(bytes, std::min(count, largest / bytes), Order::ascending, pageable, "pageable") &&
             well;
  for (const Order order : {Order::shuffled, Order::scattered})
    for (const std::size_t bytes : {4 * kib, 16 * kib, 32 * kib, 64 * kib, 256 * kib})
      well =
          row(bytes, std::min<std::size_t>(4096, largest / bytes), order, pageable, "pageable") &&
          well;
  const std::size_t pinned_bytes = std::min(largest, 2048 * mib);
  PinnedBuffer<unsigned char> pinned(pinned_bytes), pinned_back(pinned_bytes);
  std::memcpy(pinned.data(), host.get(), pinned_bytes);
  const Memory all_pinned{device.data(), pinned.data(), pinned_back.data(), pinned_bytes};
  for (const std::size_t bytes :
       {4 * kib, 16 * kib, 24 * kib, 28 * kib, 32 * kib, 64 * kib, 128 * kib})
    well = row(bytes, std::min<std::size_t>(16384, pinned_bytes / bytes), Order::shuffled,
               all_pinned, "pinned") &&
           well;
  return well ? 0 : 1;
}
