// SPDX-License-Identifier: Apache-2.0
#include "measure.hpp"

#include "backend.hpp"
#include "failure.hpp"
#include "lanes.hpp"
#include "launch_byte_kernel.hpp"
#include "size.hpp"

#include "copy/streaming_copy.hpp"  // The bound uses the library's own copy.

#include <runnel/copy.hpp>
#include <runnel/current.hpp>
#include <runnel/device_resource.hpp>
#include <runnel/event.hpp>
#include <runnel/memory.hpp>
#include <runnel/staging.hpp>
#include <runnel/stream.hpp>
#include <runnel/stream_pool.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>

namespace tool {

namespace {

using namespace runnel;
using Clock = std::chrono::steady_clock;
using Bytes = std::span<unsigned char>;

[[nodiscard]] double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

[[nodiscard]] double median(std::vector<double> numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

/// Pageable memory that was written once, so that the measured copies do not include the first
/// access to its pages.
class PageableMemory {
 public:
  explicit PageableMemory(std::size_t bytes) : size_{bytes}, bytes_{new unsigned char[bytes]} {
    on_threads([&](Bytes part, std::size_t first) {
      for (std::size_t i = 0; i < part.size(); ++i) part[i] = value_at(first + i);
    });
  }
  [[nodiscard]] Bytes span() { return {bytes_.get(), size_}; }
  [[nodiscard]] static unsigned char value_at(std::size_t i) {
    return static_cast<unsigned char>(i * 2654435761U >> 13);
  }

  /// Whether every byte is the result of `rounds` rounds.
  [[nodiscard]] bool is_result(unsigned rounds) {
    std::atomic<bool> good{true};
    unsigned char expected[256];
    for (unsigned byte = 0; byte < 256; ++byte)
      expected[byte] = result_of(static_cast<unsigned char>(byte), rounds);
    on_threads([&](Bytes part, std::size_t first) {
      for (std::size_t i = 0; i < part.size(); ++i)
        if (part[i] != expected[value_at(first + i)]) {
          good = false;
          return;
        }
    });
    return good;
  }
  [[nodiscard]] static unsigned char result_of(unsigned char byte, unsigned rounds) {
    for (unsigned round = 0; round < rounds; ++round)
      byte = static_cast<unsigned char>(2 * byte + 1);
    return byte;
  }

 private:
  template <class F>
  void on_threads(F work) {
    const std::size_t count = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 64);
    const std::size_t part = size_ / count + 1;
    std::vector<std::jthread> threads;
    for (std::size_t first = 0; first < size_; first += part)
      threads.emplace_back(
          [=, this] { work(span().subspan(first, std::min(part, size_ - first)), first); });
  }

  std::size_t size_;
  std::unique_ptr<unsigned char[]> bytes_;
};

struct Timed {
  double call_s, total_s;
};
/// Returns the medians of five runs, after a warm-up run.
template <class F>
[[nodiscard]] Timed timed(StreamRef stream, F enqueue) {
  std::vector<double> in_call, total;
  for (int i = 0; i < 6; ++i) {
    const auto start = Clock::now();
    enqueue();
    const double returned = seconds_since(start);
    stream.synchronize();
    if (i == 0) continue;
    in_call.push_back(returned);
    total.push_back(seconds_since(start));
  }
  return {median(in_call), median(total)};
}

/// Returns the nanoseconds of one call, as the median of several batches. The wait for the enqueued
/// work is not included.
template <class F>
[[nodiscard]] double cost(StreamRef stream, F operation) {
  constexpr int calls = 200;
  std::vector<double> batches;
  for (int batch = 0; batch < 12; ++batch) {
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) operation();
    const double took = seconds_since(start);
    stream.device().synchronize();
    if (batch > 0) batches.push_back(took / calls * 1e9);
  }
  return median(batches);
}

[[nodiscard]] auto computing(unsigned rounds) {
  return [rounds](StreamRef stream, DeviceSpan<const unsigned char> in,
                  DeviceSpan<unsigned char> out) {
    launch_double_and_add_one(stream, in, out, rounds);
  };
}

/// Copies between pinned memory and the memory of several devices, in both directions at once.
class BidirectionalCopies {
 public:
  BidirectionalCopies(const std::vector<Device>& devices, std::size_t max_bytes) {
    for (const Device device : devices) {
      in_.emplace_back(device);
      out_.emplace_back(device);
      buffers_.emplace_back(max_bytes, in_.back());
      buffers_.emplace_back(max_bytes, out_.back());
    }
    synchronize();
  }
  void enqueue(std::size_t device, Bytes from, Bytes to) {
    copy(in_[device], buffers_[2 * device].span().subspan(0, from.size()), from);
    copy(out_[device], to, buffers_[2 * device + 1].span().subspan(0, to.size()));
  }
  void synchronize() const {
    for (const Stream& stream : in_) stream.device().synchronize();
  }

 private:
  std::vector<Stream> in_, out_;
  std::vector<DeviceBuffer<unsigned char>> buffers_;
};

/// Returns the rate in GB/s: the median of three runs, after a warm-up run.
template <class F>
[[nodiscard]] double rate_of(std::size_t bytes, F run) {
  std::vector<double> rates;
  for (int i = 0; i < 4; ++i) {
    const auto start = Clock::now();
    run();
    if (i > 0) rates.push_back(static_cast<double>(bytes) / 1e9 / seconds_since(start));
  }
  return median(rates);
}

/// Returns the rate in each direction of copies in both directions at once, with pinned memory and
/// on all devices.
[[nodiscard]] double measure_limit(const OverlapSizes& sizes, Bytes from, Bytes to) {
  const std::size_t share = sizes.bytes / sizes.devices.size();
  BidirectionalCopies copies{sizes.devices, share};
  return rate_of(share * sizes.devices.size(), [&] {
    for (std::size_t d = 0; d < sizes.devices.size(); ++d)
      copies.enqueue(d, from.subspan(d * share, share), to.subspan(d * share, share));
    copies.synchronize();
  });
}

/// A thread's share of the work that the host's bound is measured with. Like a staging worker it
/// copies small parts, in both directions by turns, between pageable memory and pinned memory that
/// it uses again and again. On the way out it writes past the caches.
struct BoundShare {
  Bytes from, to, pinned_in, pinned_out;

  void copy() const {
    const std::size_t ring = pinned_in.size(), part = std::min(ring, std::size_t{256} << 10);
    for (std::size_t at = 0; at < from.size(); at += part) {
      const std::size_t place = at % ring, bytes = std::min({part, ring - place, from.size() - at});
      std::memcpy(pinned_in.data() + place, from.data() + at, bytes);
      detail::copy_streaming(to.data() + at, pinned_out.data() + place, bytes);
    }
  }
};

/// Overwrites both ranges of pinned memory, and `to`. Requires: all four ranges have the same size.
[[nodiscard]] HostBound measure_host_bound(const std::vector<Device>& devices, Bytes from, Bytes to,
                                           Bytes pinned_in, Bytes pinned_out) {
  constexpr std::size_t most = std::size_t{2} << 30;  // Enough for a tenth of a second.
  // The sizes of a thread's pinned memory in each direction. The best size depends on the caches.
  constexpr std::size_t rings[]{std::size_t{512} << 10, std::size_t{2} << 20, std::size_t{8} << 20};
  const std::size_t threads =
      std::min(static_cast<std::size_t>(Staging::options().workers), from.size());
  const std::size_t share = std::min(from.size(), most) / threads;
  const auto copy_on_threads = [&](std::size_t ring, auto meanwhile) {
    std::vector<std::jthread> running;
    for (std::size_t t = 0; t < threads; ++t)
      running.emplace_back(
          &BoundShare::copy,
          BoundShare{from.subspan(t * share, share), to.subspan(t * share, share),
                     pinned_in.subspan(t * ring, ring), pinned_out.subspan(t * ring, ring)});
    meanwhile();
  };
  const auto copy_beside_devices = [&](std::size_t ring) {
    BidirectionalCopies copies{devices, threads * ring};
    return rate_of(threads * share, [&] {
      // The devices are used in turn, and together copy each byte of the pinned memory as often as
      // the threads do. Threads and devices are not synchronized, because the copied data is not
      // read.
      copy_on_threads(ring, [&] {
        for (std::size_t at = 0, turn = 0; at < share; at += ring, ++turn) {
          const std::size_t bytes = threads * std::min(ring, share - at);
          copies.enqueue(turn % devices.size(), pinned_in.first(bytes), pinned_out.first(bytes));
        }
      });
      copies.synchronize();
    });
  };
  HostBound bound{threads, 0, 0};
  for (const std::size_t max_ring : rings) {
    const std::size_t ring = std::min(share, max_ring);
    bound.alone =
        std::max(bound.alone, rate_of(threads * share, [&] { copy_on_threads(ring, [] {}); }));
    if (!host_backend)
      bound.beside_devices = std::max(bound.beside_devices, copy_beside_devices(ring));
  }
  if (host_backend) bound.beside_devices = bound.alone;
  return bound;
}

/// Returns the number of rounds that take as long as a chunk's transfers, on the host backend.
[[nodiscard]] unsigned rounds_as_long_as_transfers(std::size_t chunk, Bytes from, Bytes to) {
  const Stream stream;
  DeviceBuffer<unsigned char> in(chunk, stream), out(chunk, stream);
  const double transfers = timed(stream, [&] {
                             copy(stream, in, from.subspan(0, chunk));
                             copy(stream, to.subspan(0, chunk), out);
                           }).total_s;
  const auto compute = [&](unsigned rounds) {
    return timed(stream, [&] { computing(rounds)(stream, in, out); }).total_s;
  };
  const double one = compute(1);
  const double more = (compute(101) - one) / 100;
  return more <= 0 || one >= transfers ? 1 : 1 + static_cast<unsigned>((transfers - one) / more);
}

/// The memory that a strategy is measured on.
struct Memory {
  const char* name;
  bool needs_threads;  ///< no device can access this memory, so threads copy it to or from pinned
                       ///< memory
  Bytes in, out;
};

/// Compares a sample of the bytes with the result of `rounds` rounds. @throws Failure if one is
/// wrong
void require_result(const Memory& memory, unsigned rounds, const std::string& strategy) {
  for (std::size_t byte = 0; byte < memory.out.size(); byte += 4093)
    if (memory.out[byte] != PageableMemory::result_of(memory.in[byte], rounds))
      throw Failure("byte " + std::to_string(byte) + " of the result is wrong (" + strategy + ", " +
                    memory.name + " memory)");
}

/// Returns the median of five runs, after a warm-up run. The caller sets the speed-up.
[[nodiscard]] OverlapRate measure_strategy(const OverlapSizes& sizes, const Memory& memory,
                                           const std::string& name, OverlapStrategy strategy,
                                           std::size_t in_flight, const OverlapRates& so_far) {
  OverlapOptions options{
      .chunk = sizes.chunk, .in_flight = in_flight, .strategy = strategy, .devices = sizes.devices};
  const auto run = [&] {
    return overlap(memory.in, memory.out, options, computing(so_far.rounds));
  };
  std::vector<double> runs;
  OverlapResult last;
  for (int i = 0; i < 6; ++i) {
    const auto start = Clock::now();
    last = run();
    if (i > 0) runs.push_back(seconds_since(start));
  }
  require_result(memory, so_far.rounds, name);
  const double rate = static_cast<double>(sizes.bytes) / 1e9 / median(runs);
  const double of_bound = memory.needs_threads ? rate / so_far.bound.beside_devices : 0;
  OverlapRate measured{
      memory.name, name, name_of(last.strategy), rate, rate / so_far.limit, of_bound, 0, {}};
  if (sizes.record_times) {
    options.record_times = true;
    measured.times = run().times;
  }
  std::fill(memory.out.begin(), memory.out.end(), static_cast<unsigned char>(0));
  return measured;
}

}  // namespace

std::vector<LinkRate> measure_links(Device device, std::size_t bytes, const Announce& announce) {
  const Stream in{device}, out{device};
  DeviceBuffer<unsigned char> first(bytes, in), second(bytes, out);
  PinnedBuffer<unsigned char> pinned_from(bytes), pinned_to(bytes);
  PageableMemory from(bytes), to(bytes);
  std::copy(from.span().begin(), from.span().end(), pinned_from.begin());
  out.synchronize();

  std::vector<LinkRate> rates;
  const auto measure = [&](const char* memory, Bytes source, Bytes target) {
    const auto add = [&](const char* direction, std::size_t moved, auto enqueue) {
      announce(std::string{"copies "} + direction + ", " + memory + " memory");
      const Timed t = timed(in, enqueue);
      rates.push_back(
          {direction, memory, static_cast<double>(moved) / 1e9 / t.total_s, t.call_s * 1e6});
    };
    add("in", bytes, [&] { copy(in, first, source); });
    add("out", bytes, [&] { copy(in, target, first); });
    add("both", 2 * bytes, [&] {
      copy(in, first, source);
      copy(out, target, second);
      in.wait_stream(out);
    });
  };
  measure("pinned", {pinned_from.data(), bytes}, {pinned_to.data(), bytes});
  measure("pageable", from.span(), to.span());
  return rates;
}

std::vector<OperationCost> measure_operations(Device device, const Announce& announce) {
  announce("operations");
  const DeviceGuard with{device};
  const Stream a{device}, b{device};
  Event event;
  constexpr std::size_t mebibyte = std::size_t{1} << 20;
  StreamPool pool{device};
  return {
      {"create and destroy a stream", cost(a, [&] { const Stream stream{device}; })},
      {"lease a stream from a pool", cost(a, [&] { const StreamLease stream = pool.acquire(); })},
      {"record an event", cost(a, [&] { a.record_event(event); })},
      {"wait_stream", cost(a, [&] { b.wait_stream(a); })},
      {"query, idle", cost(a, [&] { static_cast<void>(a.query()); })},
      {"enqueue a host function", cost(a, [&] { a.launch_host_func([] {}); })},
      {"wait for a host function", cost(a,
                                        [&] {
                                          a.launch_host_func([] {});
                                          a.synchronize();
                                        })},
      {"device memory, 1 MiB", cost(a, [&] { const DeviceBuffer<char> memory(mebibyte, a); })},
      {"pinned memory, 1 MiB", cost(a, [&] { const PinnedBuffer<char> memory(mebibyte); })},
      {"enter and leave a guard", cost(a, [&] { const StreamGuard guard{a}; })},
  };
}

OverlapRates measure_overlaps(const OverlapSizes& sizes, const Announce& announce) {
  announce("filling memory");
  PageableMemory from(sizes.bytes), to(sizes.bytes);
  PinnedBuffer<unsigned char> pinned_from(sizes.bytes), pinned_to(sizes.bytes);
  std::copy(from.span().begin(), from.span().end(), pinned_from.begin());
  const Bytes pinned_in{pinned_from.data(), sizes.bytes};
  const Bytes pinned_out{pinned_to.data(), sizes.bytes};

  announce("the limit of the link");
  OverlapRates result{measure_limit(sizes, pinned_in, pinned_out), {}, 1, {}};
  announce("the bound of the host's memory");
  result.bound = measure_host_bound(sizes.devices, from.span(), to.span(), pinned_in, pinned_out);
  if (host_backend)
    result.rounds =
        rounds_as_long_as_transfers(std::min(sizes.chunk, sizes.bytes), pinned_in, pinned_out);

  const auto measure = [&](const Memory& memory) {
    const auto add = [&](const std::string& name, OverlapStrategy strategy, std::size_t in_flight) {
      announce(name + ", " + memory.name + " memory");
      result.rates.push_back(measure_strategy(sizes, memory, name, strategy, in_flight, result));
    };
    add("one after the other", OverlapStrategy::stream_per_chunk, 1);
    const double slowest = result.rates.back().gigabytes_per_s;
    for (const OverlapStrategy s : {OverlapStrategy::stream_per_chunk,
                                    OverlapStrategy::copy_compute_copy, OverlapStrategy::automatic})
      add(name_of(s), s, sizes.in_flight);
    for (OverlapRate& rate : result.rates)
      if (rate.memory == memory.name) rate.speedup = rate.gigabytes_per_s / slowest;
  };
  measure({"pinned", false, pinned_in, pinned_out});
  measure({"pageable", true, from.span(), to.span()});
  return result;
}

RangeRate measure_range(const OverlapSizes& sizes, const Announce& announce) {
  announce("filling " + to_text(sizes.bytes) + " of memory");
  PageableMemory range(sizes.bytes);
  std::vector<std::size_t> before;
  for (const Device device : sizes.devices)
    before.push_back(DeviceResource{device}.statistics().in_use);
  std::size_t most = 0;
  announce(to_text(sizes.bytes) + " through the device");
  const auto start = Clock::now();
  overlap(range.span(), range.span(),
          {.chunk = sizes.chunk, .in_flight = sizes.in_flight, .devices = sizes.devices},
          [&](StreamRef stream, DeviceSpan<const unsigned char> in, DeviceSpan<unsigned char> out) {
            std::size_t in_use = 0;
            for (std::size_t d = 0; d < before.size(); ++d)
              in_use += DeviceResource{sizes.devices[d]}.statistics().in_use - before[d];
            most = std::max(most, in_use);
            launch_double_and_add_one(stream, in, out, 1);
          });
  const double seconds = seconds_since(start);
  announce("comparing the result");
  if (!range.is_result(1)) throw Failure("the result of the large range is wrong");
  return {sizes.bytes, most, seconds, static_cast<double>(sizes.bytes) / 1e9 / seconds};
}

}  // namespace tool
