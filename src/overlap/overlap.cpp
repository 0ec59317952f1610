// SPDX-License-Identifier: Apache-2.0
#include <runnel/overlap.hpp>

#include "base/check.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "overlap/lane.hpp"
#include "overlap/plan.hpp"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

OverlapError::OverlapError(std::size_t chunk, const Error* cause) noexcept
    : Error{detail::overlap_operation, cause != nullptr ? cause->native_code() : 0, cause != nullptr ? cause->native_name() : ""},
      chunk_{chunk} {}
OverlapError::~OverlapError() = default;

namespace detail {
namespace {

/// In place, so that copying an exception cannot throw.
using OverlapText = std::array<char, 320>;

class OverlapSystemError final : public std::system_error, public OverlapError {
 public:
  OverlapSystemError(std::size_t chunk, const std::error_code& code, const Error* cause, const OverlapText& text)
      : std::system_error{code}, OverlapError{chunk, cause}, text_{text} {}
  [[nodiscard]] const std::error_code& code() const noexcept override { return std::system_error::code(); }
  [[nodiscard]] const char* what() const noexcept override { return text_.data(); }

 private:
  OverlapText text_;
};

class OverlapOutOfMemory final : public std::bad_alloc, public OverlapError {
 public:
  OverlapOutOfMemory(std::size_t chunk, const Error* cause, const OverlapText& text) noexcept
      : OverlapError{chunk, cause}, code_{make_error_code(errc::out_of_memory)}, text_{text} {}
  [[nodiscard]] const std::error_code& code() const noexcept override { return code_; }
  [[nodiscard]] const char* what() const noexcept override { return text_.data(); }

 private:
  std::error_code code_;
  OverlapText text_;
};

[[nodiscard]] OverlapText overlap_text(std::size_t chunk, const char* step, const char* reason) noexcept {
  constexpr const char* prefix = "runnel: ";
  if (std::strncmp(reason, prefix, std::strlen(prefix)) == 0) reason += std::strlen(prefix);
  OverlapText text;
  std::snprintf(text.data(), text.size(), "runnel: could not %s: chunk %zu, %s: %s", overlap_operation, chunk, step, reason);
  return text;
}

/// Nests `cause` into an OverlapError. An Error out of memory is a std::bad_alloc too, and an OverlapError of another call is an Error.
[[noreturn]] void throw_overlap_error(std::size_t chunk, const char* step, const std::exception_ptr& cause) {
  try {
    std::rethrow_exception(cause);
  } catch (const Error& error) {
    const OverlapText text = overlap_text(chunk, step, error.what());
    if (error.code() == errc::out_of_memory) throw OverlapOutOfMemory{chunk, &error, text};
    throw OverlapSystemError{chunk, error.code(), &error, text};
  } catch (const std::bad_alloc& error) {
    throw OverlapOutOfMemory{chunk, nullptr, overlap_text(chunk, step, error.what())};
  } catch (const std::exception& error) {
    throw OverlapSystemError{chunk, make_error_code(errc::function_failed), nullptr, overlap_text(chunk, step, error.what())};
  } catch (...) {
    const OverlapText text = overlap_text(chunk, step, "an exception of unknown type");
    throw OverlapSystemError{chunk, make_error_code(errc::function_failed), nullptr, text};
  }
}

// 150 bytes each: so that the memory of a long run of small chunks stays bounded too.
constexpr std::size_t most_times_kept = std::size_t{1} << 20;

/// The calling thread reads, and tells the streams what to do; a thread of its own waits for the chunks in order, and writes.
class OverlapRun {
 public:
  /// @throws errc::out_of_memory if not even the smallest sizes that the options leave open can be allocated
  OverlapRun(OverlapPlan plan, const OverlapOptions& options, OverlapFunction function)
      : plan_{std::move(plan)}, options_{options}, function_{function}, read_(plan_.inputs.size()) {
    const OverlapPlan wanted = plan_;
    // Twice with the same sizes: an earlier run may have freed memory in the streams that the first attempt waits for.
    if (try_lanes() || try_sizes()) return;
    // Other streams may be about to free memory. Waiting for them comes last, because they may be busy for long.
    wait_for_devices();
    plan_ = wanted;
    if (try_sizes()) return;
    const std::string reason = describe_memory(plan_) + " have no room: could not " + shortage_.operation;
    throw_error(errc::out_of_memory, overlap_operation, reason.c_str(), shortage_.native_code, shortage_.native_name);
  }

  OverlapResult run() {
    {
      std::jthread finisher{[this] { finish_all(); }};
      submit_all();
    }
    if (failure_.cause == nullptr)
      for (const auto& lane : lanes_) lane->finish();
    lanes_.clear();  // waits for whatever a failure left on its way
    if (failure_.cause != nullptr) throw_overlap_error(failure_.chunk, failure_.step, failure_.cause);
    result_.time = OverlapClock::now() - start_;
    result_.strategy = plan_.strategy;
    result_.chunk = plan_.chunk;
    result_.in_flight = plan_.in_flight;
    return std::move(result_);
  }

 private:
  struct Failure {
    std::size_t chunk = 0;
    const char* step = "";
    std::exception_ptr cause;
  };

  /// Makes the lanes, with the plan's sizes or with the largest smaller ones that can be allocated. False if there are none.
  [[nodiscard]] bool try_sizes() {
    do {
      if (try_lanes()) return true;
    } while (shrink(plan_, options_));
    return false;
  }
  [[nodiscard]] bool try_lanes() try {
    for (const Device device : plan_.devices) lanes_.push_back(std::make_unique<OverlapLane>(plan_, device, options_.record_times, start_));
    return true;
  } catch (const OverlapShortage& shortage) {
    for (const auto& lane : lanes_) lane->drop_memory();
    lanes_.clear();
    shortage_ = shortage;
    return false;
  }
  /// Where that fails, the allocations that follow say so. Not where streams have been captured: it would end a capture.
  void wait_for_devices() const noexcept {
    if (if_captures_met()) return;
    for (const Device device : plan_.devices) try {
        device.synchronize();
      } catch (...) {
      }
  }

  [[nodiscard]] OverlapLane& lane(std::size_t chunk) noexcept { return *lanes_[chunk % lanes_.size()]; }
  [[nodiscard]] std::size_t in_lane(std::size_t chunk) const noexcept { return chunk / lanes_.size(); }
  [[nodiscard]] OverlapPlace& place(std::size_t chunk) noexcept { return lane(chunk).place(in_lane(chunk)); }
  [[nodiscard]] std::chrono::nanoseconds since_start() const { return OverlapClock::now() - start_; }

  // In the calling thread.
  void submit_all() {
    const char* step = "reading";
    std::size_t chunk = 0;
    try {
      for (; wait_for_place(chunk); ++chunk) {
        step = "reading";
        if (!begin(chunk)) break;
        step = "sending it on its way";
        lane(chunk).submit(in_lane(chunk), function_);
        publish();
      }
    } catch (...) {
      fail(chunk, step, std::current_exception());
    }
    const std::lock_guard lock{mutex_};
    all_submitted_ = true;
    changed_.notify_all();
  }

  /// Describes the chunk in its place and reads it, where it has to be read. False at the end.
  [[nodiscard]] bool begin(std::size_t chunk) {
    OverlapPlace& here = place(chunk);
    here.times = {.chunk = chunk, .buffer = in_lane(chunk) % plan_.slots, .device = lane(chunk).device().ordinal()};
    const std::chrono::nanoseconds reading = since_start();
    const std::size_t first = next_item_;
    const std::size_t before = std::min(plan_.halo, first);
    std::optional<std::size_t> end = plan_.items;  // of what there is, as far as it is known and fits
    if (end) end = std::min(*end, first + plan_.chunk + plan_.halo);
    for (std::size_t i = 0; i < plan_.inputs.size(); ++i) {
      if (plan_.inputs[i].kind != OverlapEnd::Kind::function) continue;
      const std::size_t here_end = read(i, chunk, first - before, end.value_or(first + plan_.chunk + plan_.halo));
      if (end && (plan_.items || i > 0) && here_end != *end)
        throw_error(errc::invalid_argument, overlap_operation, "the inputs do not have the same number of items");
      end = here_end;
    }
    const std::size_t count = std::min(plan_.chunk, *end - first);
    if (count == 0) return false;
    if (plan_.has_source()) here.times.read = {reading, since_start()};
    here.chunk.emplace(OverlapChunk{.index = chunk,
                                    .first = first,
                                    .count = count,
                                    .before = before,
                                    .after = std::min(plan_.halo, *end - first - count),
                                    .buffer = here.times.buffer,
                                    .device = lane(chunk).device()});
    next_item_ = first + count;
    place_output(here);
    return true;
  }

  /// Brings a source's items from `first` up to `end`, or to its own end, into the chunk's place; returns which end it was.
  [[nodiscard]] std::size_t read(std::size_t input, std::size_t chunk, std::size_t first, std::size_t end) {
    const OverlapEnd& source = plan_.inputs[input];
    const std::size_t item = source.width * source.element_bytes;
    std::byte* to = place(chunk).in[input].data();
    auto& [until, ended] = read_[input];
    // What the halo has in common with the chunk before was read with that.
    if (until > first) {
      const OverlapChunk& last = *place(chunk - 1).chunk;
      std::memmove(to, place(chunk - 1).in[input].data() + (first - (last.first - last.before)) * item, (until - first) * item);
    }
    if (ended || end <= until) return std::min(until, end);
    const std::size_t asked = (end - until) * source.width;
    const std::size_t got = source.read(source.function, to + (until - first) * item, asked);
    if (got > asked) throw_error(errc::invalid_argument, overlap_operation, "the source says that it wrote more than there was room for");
    if (got % source.width != 0) throw_error(errc::invalid_argument, overlap_operation, "the source ended within an item");
    ended = got < asked;
    until += got / source.width;
    return until;
  }

  void place_output(OverlapPlace& here) {
    const OverlapEnd& out = plan_.output;
    if (!plan_.has_output() || out.filtered) return;
    here.out_elements = plan_.output_elements(here.chunk->count);
    here.out_first = out_submitted_;
    if (!plan_.has_sink() && here.out_elements > out.size - here.out_first)
      throw_error(errc::invalid_argument, overlap_operation, "the output is too small for what the source brings");
    out_submitted_ += here.out_elements;
  }

  // In the other thread.
  void finish_all() {
    std::size_t chunk = 0;
    const char* step = "computing";
    try {
      for (std::size_t counted = 0, finished = 0;;) {
        const std::optional<std::size_t> submitted = wait_for_chunk(finished);
        if (!submitted) return;
        step = "computing";
        // A filter's result is on its way back while the next one is waited for.
        if (plan_.output.filtered && counted < *submitted && counted - finished < 2) {
          chunk = counted++;
          count(chunk);
        } else {
          chunk = finished++;
          lane(chunk).wait(in_lane(chunk));
          step = "writing";
          write(place(chunk));
          give_back_place();
        }
      }
    } catch (...) {
      fail(chunk, step, std::current_exception());
    }
  }

  void count(std::size_t chunk) {
    OverlapPlace& here = place(chunk);
    here.out_first = out_submitted_;
    lane(chunk).submit_filtered(in_lane(chunk));
    out_submitted_ += here.out_elements;
  }

  void write(OverlapPlace& here) {
    lane(here.chunk->index).read_times(here);
    if (plan_.has_sink()) {
      const std::chrono::nanoseconds writing = since_start();
      if (here.out_elements != 0) plan_.output.write(plan_.output.function, here.out.data(), here.out_elements);
      here.times.write = {writing, since_start()};
    }
    ++result_.chunks;
    result_.items += here.chunk->count;
    result_.written += here.out_elements;
    if (options_.record_times && result_.times.size() < most_times_kept) result_.times.push_back(here.times);
    if (options_.progress) options_.progress({result_.chunks, result_.items, plan_.items});
  }

  // How the two threads hand places to each other.
  [[nodiscard]] bool wait_for_place(std::size_t chunk) {
    std::unique_lock lock{mutex_};
    const std::size_t places = plan_.places() * lanes_.size();
    const bool free = changed_.wait(lock, options_.stop, [&] { return failure_.cause != nullptr || chunk - finished_ < places; });
    if (!free || options_.stop.stop_requested()) {
      // What is stopped after its last chunk was not stopped.
      const bool sources_ended = std::any_of(read_.begin(), read_.end(), [&](const Read& r) { return r.ended && r.until == next_item_; });
      result_.stopped = plan_.items ? next_item_ < *plan_.items : !sources_ended;
      return false;
    }
    return failure_.cause == nullptr;
  }
  void publish() {
    const std::lock_guard lock{mutex_};
    ++submitted_;
    changed_.notify_all();
  }
  /// How many chunks are submitted, if there is one that is not finished; nothing when all is done.
  [[nodiscard]] std::optional<std::size_t> wait_for_chunk(std::size_t chunk) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return chunk < submitted_ || all_submitted_; });
    return chunk < submitted_ ? std::optional{submitted_} : std::nullopt;
  }
  void give_back_place() {
    const std::lock_guard lock{mutex_};
    ++finished_;
    changed_.notify_all();
  }
  /// Of two failures the one of the earlier chunk stays.
  void fail(std::size_t chunk, const char* step, std::exception_ptr cause) {
    const std::lock_guard lock{mutex_};
    if (failure_.cause == nullptr || chunk < failure_.chunk) failure_ = {chunk, step, std::move(cause)};
    changed_.notify_all();
  }

  OverlapPlan plan_;  // the lanes refer to it
  const OverlapOptions& options_;
  const OverlapFunction function_;
  const OverlapClock::time_point start_ = OverlapClock::now();

  // The calling thread's.
  std::size_t next_item_ = 0;
  struct Read {
    std::size_t until = 0;  // items
    bool ended = false;
  };
  std::vector<Read> read_;  // of each source

  std::size_t out_submitted_ = 0;  // of the thread that tells the streams to copy out
  OverlapResult result_;           // the other thread's, until it is joined; `stopped` the calling thread's

  std::mutex mutex_;  // guards what follows
  std::condition_variable_any changed_;
  std::size_t submitted_ = 0;
  std::size_t finished_ = 0;
  bool all_submitted_ = false;
  Failure failure_;

  std::vector<std::unique_ptr<OverlapLane>> lanes_;
  OverlapShortage shortage_;  // why the last lane could not be made
};

}  // namespace

OverlapResult run_overlap(const OverlapEnd* inputs, std::size_t input_count, const OverlapEnd& output, const OverlapOptions& options,
                          OverlapFunction function) {
  enter(overlap_operation);
  OverlapPlan plan = plan_overlap(inputs, input_count, output, options);
  if (plan.slots == 0) return {.strategy = plan.strategy, .chunk = plan.chunk, .in_flight = plan.in_flight};  // there is nothing to do
  return OverlapRun{std::move(plan), options, function}.run();
}

}  // namespace detail
}  // namespace runnel::inline RUNNEL_ABI
