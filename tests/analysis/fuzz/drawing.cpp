// SPDX-License-Identifier: Apache-2.0
/// What the command writes for other programs: names of any bytes, and times of any size, must give
/// well-formed JSON and SVG.
#include "json.hpp"
#include "lanes.hpp"
#include "timeline.hpp"
#include "trace.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

using std::size_t, std::uint8_t;

namespace {

/// Takes values from the fuzzer's bytes; zeros at their end.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_{data}, size_{size} {}
  bool empty() const { return size_ == 0; }
  template <class T>
  T take() {
    T value{};
    const size_t count = std::min(sizeof value, size_);
    if (count > 0) std::memcpy(&value, data_, count);
    data_ += count;
    size_ -= count;
    return value;
  }
  std::string text() {
    const size_t count = std::min<size_t>(take<uint8_t>() % 40, size_);
    std::string result{reinterpret_cast<const char*>(data_), count};
    data_ += count;
    size_ -= count;
    return result;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

void require(bool holds) {
  if (!holds) std::abort();
}

/// It is JSON, and every byte is printable.
void require_json(const std::string& text) {
  for (const char c : text) require(c == '\n' || (c >= 0x20 && c < 0x7f));
  require(tool::Json::accept(text));
}

/// Every tag is closed, and no byte of a name opens one.
void require_svg(const std::string& text) {
  require(text.rfind("<svg", 0) == 0 || text.rfind("<?xml", 0) == 0);
  bool in_tag = false;
  for (const char c : text) {
    require(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
    if (c == '<') require(!std::exchange(in_tag, true));
    if (c == '>') in_tag = false;
  }
  require(!in_tag);
}

/// One step after the other, as a clock gives them.
runnel::OverlapChunkTimes chunk_times(Bytes& bytes, size_t chunk) {
  runnel::OverlapChunkTimes times{};
  times.chunk = chunk;
  times.buffer = chunk % 4;
  std::chrono::nanoseconds now{bytes.take<std::uint32_t>()};
  for (auto* const span :
       {&times.read, &times.copy_in, &times.compute, &times.copy_out, &times.write}) {
    span->start = now;
    now += std::chrono::nanoseconds{bytes.take<std::uint32_t>()};
    span->stop = now;
  }
  return times;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes{data, size};
  const std::string name = bytes.text();
  require_json(tool::to_line({{name, bytes.text()}}));

  const tool::TimelineText text{bytes.text(), bytes.text()};
  const bool by_step = bytes.take<bool>();
  const size_t streams = 1 + bytes.take<uint8_t>() % 32;
  std::vector<runnel::OverlapChunkTimes> times;
  while (!bytes.empty() && times.size() < 64) times.push_back(chunk_times(bytes, times.size()));
  const auto strategy = by_step ? runnel::OverlapStrategy::copy_compute_copy
                                : runnel::OverlapStrategy::stream_per_chunk;
  const std::vector<tool::Lane> lanes = tool::lanes_of(times, strategy, streams);
  require_svg(tool::draw_timeline(lanes, times.size() + bytes.take<uint8_t>(), text));
  require_json(tool::trace_events(lanes, name));
  return 0;
}
