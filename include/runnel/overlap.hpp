// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_overlap
/// overlap() streams data through a device in chunks: while one chunk is computed, the next one is
/// copied in and the previous one is copied out. The data may be larger than the device's memory.
#pragma once

#include <runnel/detail/callback.hpp>
#include <runnel/memory.hpp>
#include <runnel/overlap_ends.hpp>
#include <runnel/overlap_times.hpp>

#include <exception>
#include <stop_token>

namespace runnel::inline RUNNEL_ABI {

/// How the steps of a chunk are distributed over streams.
enum class OverlapStrategy {
  automatic,         ///< the strategy that choose_overlap_strategy() returns
  stream_per_chunk,  ///< A: each chunk in flight has a stream, which carries out all three steps of
                     ///< the chunk
  copy_compute_copy,  ///< B: one stream for each step; events order the steps of a chunk
};

/// The argument of `OverlapOptions::progress`.
struct OverlapProgress {
  std::size_t chunks;  ///< chunks that are finished
  std::size_t items;   ///< items in those chunks
  std::optional<std::size_t>
      total;  ///< the total number of items; empty if it depends on the length of a source
};

/// Options of overlap(). All of them have defaults.
struct OverlapOptions {
  /// Items in a chunk (0 = automatic, default: 32 MiB, 128 MiB in pageable memory, less if the
  /// input or the device is small).
  std::size_t chunk = 0;
  /// Chunks in flight: those in each device's memory at one time (0 = automatic, default: 4, fewer
  /// if the device is small or its memory is in use).
  std::size_t in_flight = 0;
  /// How the steps are distributed over streams (default: automatic).
  OverlapStrategy strategy = OverlapStrategy::automatic;
  /// The number of streams that `stream_per_chunk` uses in turn (0 = one for each chunk in flight,
  /// default).
  std::size_t streams = 0;
  /// Neighbouring items that the function also gets on each side of its chunk; fewer at the ends of
  /// the input (default: 0).
  std::size_t halo = 0;
  /// Devices to which chunks are assigned in turn (empty = the current device, default).
  std::vector<Device> devices = {};
  /// After a stop request, overlap() enqueues no further chunk, and finishes those that are
  /// enqueued: at most twice `in_flight`.
  std::stop_token stop = {};
  /// Called after each chunk, in order, on a thread of overlap().
  detail::Callback<const OverlapProgress&> progress = {};
  /// True: overlap() fills OverlapResult::times (default: false).
  bool record_times = false;
};

/// The chunk that one call of the function computes. Items are elements, or rows of elements with
/// by_rows().
struct OverlapChunk {
  std::size_t index;   ///< 0 for the first chunk
  std::size_t first;   ///< index of the chunk's first item in the whole input
  std::size_t count;   ///< items in the chunk, without the halo
  std::size_t before;  ///< halo items at the beginning of each input's span
  std::size_t after;   ///< halo items at the end of each input's span
  std::size_t buffer;  ///< the index of the device buffer that contains it, 0 to in_flight - 1;
                       ///< chunks in one buffer run one after the other
  Device device;       ///< the device that computes it
};

/// The result of overlap().
struct OverlapResult {
  std::size_t chunks = 0;   ///< chunks that were finished
  std::size_t items = 0;    ///< items in those chunks
  std::size_t written = 0;  ///< elements written to the output
  bool stopped = false;     ///< whether a stop request ended the run before the end of the input
  std::chrono::nanoseconds time{};  ///< duration of the run

  // The sizes and the strategy that were used: those of the options, or those that overlap() chose.
  OverlapStrategy strategy = OverlapStrategy::automatic;  ///< A or B, not automatic
  std::size_t chunk = 0;                                  ///< items in a chunk
  std::size_t in_flight = 0;                              ///< chunks in flight on each device

  /// The times of the chunks, in order, if OverlapOptions::record_times is true; at most those of
  /// the first 2^20 chunks.
  std::vector<OverlapChunkTimes> times = {};
};

/// Thrown if a chunk fails. The cause, which may be an exception of the caller's own type, is
/// nested: use `std::rethrow_if_nested()`. `code()` is the cause's code; errc::out_of_memory for a
/// `std::bad_alloc`; errc::function_failed for any other exception. As with every `Error`, the
/// thrown object is also a `std::system_error`, or, for out of memory, a `std::bad_alloc`.
class OverlapError : public Error, public std::nested_exception {
 public:
  ~OverlapError() override;
  /// The index of the chunk that failed.
  [[nodiscard]] std::size_t chunk() const noexcept { return chunk_; }

 protected:
  ///@{ For the classes of the thrown objects.
  OverlapError(std::size_t chunk, const Error* cause) noexcept;
  OverlapError(const OverlapError&) = default;
  OverlapError& operator=(const OverlapError&) = default;
  ///@}

 private:
  std::size_t chunk_;
};

/// Returns the strategy that `OverlapStrategy::automatic` chooses. It is B if the device has two
/// copy engines, more than one chunk is in flight, and a chunk is large enough; otherwise it is A.
/// Large enough means 1 MiB, in and out, which outweighs the cost of the events between three
/// streams; or 64 MiB if a range is in pageable memory, because threads stage its copies, and one
/// smaller copy in each direction does not keep them busy. `chunk_bytes`: bytes of a chunk, in and
/// out; `in_flight`: chunks on the device at one time. In pageable memory the host determines which
/// strategy is faster: `runnel bench` measures both.
[[nodiscard]] OverlapStrategy choose_overlap_strategy(Device device, std::size_t chunk_bytes,
                                                      std::size_t in_flight, bool pageable_memory);

namespace detail {

struct OverlapArguments {
  void* const* in;
  const std::size_t* in_elements;
  void* out;
  std::size_t out_elements;
  std::size_t* count;
};
struct OverlapFunction {
  void* function;
  void (*run)(void* function, StreamRef stream, const OverlapArguments& arguments,
              const OverlapChunk& chunk);
};
OverlapResult run_overlap(const OverlapEnd* inputs, std::size_t input_count,
                          const OverlapEnd& output, const OverlapOptions& options,
                          OverlapFunction function);

template <class F, class... Arguments>
void call_with_chunk(F& function, const OverlapChunk& chunk, Arguments... arguments) {
  if constexpr (std::is_invocable_v<F&, Arguments..., const OverlapChunk&>)
    static_cast<void>(function(arguments..., chunk));
  else if constexpr (std::is_invocable_v<F&, Arguments...>)
    static_cast<void>(function(arguments...));
  else
    static_assert(
        sizeof(F) == 0,
        "overlap: the function takes (StreamRef, DeviceSpan<const In> for each input, "
        "DeviceSpan<Out> unless there is "
        "no_output, DeviceSpan<std::size_t> if filtered, and, if it likes, const OverlapChunk&)");
}

/// Returns a pointer to a function, or the callable object itself: in both cases an object that has
/// an address.
template <class F>
[[nodiscard]] decltype(auto) as_object(F& function) {
  if constexpr (std::is_function_v<F>)
    return &function;
  else
    return (function);
}

/// Calls the user's function with spans of the user's types.
template <class F, bool filtered, class Out, class... In>
struct OverlapCall {
  static void run(void* function, StreamRef stream, const OverlapArguments& arguments,
                  const OverlapChunk& chunk) {
    call(*static_cast<F*>(function), stream, arguments, chunk, std::index_sequence_for<In...>{});
  }

 private:
  template <std::size_t... i>
  static void call(F& function, StreamRef stream, const OverlapArguments& arguments,
                   const OverlapChunk& chunk, std::index_sequence<i...>) {
    const auto in = [&]<std::size_t k, class T>() {
      return DeviceSpan<const T>{static_cast<const T*>(arguments.in[k]), arguments.in_elements[k]};
    };
    if constexpr (std::is_void_v<Out>)
      call_with_chunk(function, chunk, stream, in.template operator()<i, In>()...);
    else if constexpr (filtered)
      call_with_chunk(function, chunk, stream, in.template operator()<i, In>()...,
                      DeviceSpan<Out>{static_cast<Out*>(arguments.out), arguments.out_elements},
                      DeviceSpan<std::size_t>{arguments.count, 1});
    else
      call_with_chunk(function, chunk, stream, in.template operator()<i, In>()...,
                      DeviceSpan<Out>{static_cast<Out*>(arguments.out), arguments.out_elements});
  }
};
template <class T>
inline constexpr bool is_filtered = false;
template <class End>
inline constexpr bool is_filtered<OverlapFiltered<End>> = true;

}  // namespace detail

/// Streams `input` through a device in chunks and stores the results in `output`. For each chunk it
/// calls `f(stream, in, out)`, in order, on the calling thread. `f` enqueues work on `stream` that
/// reads `in`, a DeviceSpan<const In>, and writes `out`, a DeviceSpan<Out>; it must not wait. `f`
/// may take a `const OverlapChunk&` as an additional last argument. During the call of `f`,
/// `stream` is the current stream. overlap() returns when all results are in `output`.
///
/// `output` has as many elements as `input`, or an integer multiple of that number. For other
/// shapes see by_rows(), zipped(), from_source(), to_sink(), per_chunk(), filtered() and no_output.
/// Both may be in any kind of memory; pinned memory is the fastest. Input and output may be the
/// same memory unless there is a halo. Requires: no other stream still writes the input or uses the
/// output, because the streams of overlap() wait for no others.
///
/// The call allocates device memory for `in_flight` chunks, in and out, and as much pinned memory
/// for a source or a sink. If there is not enough memory, overlap() reduces the sizes that the
/// options do not set; if that does not suffice, it waits for work of other streams, which may free
/// memory; then it throws. If `f`, a source, a sink or a chunk fails, overlap() starts no further
/// chunk, and throws after all chunks in flight have ended.
/// @throws OverlapError for a failed chunk; errc::invalid_argument, errc::out_of_memory,
/// errc::capture on a thread that captures a stream, and other errors before any chunk is copied
template <class Input, class Output, class F>
OverlapResult overlap(Input&& input, Output&& output, const OverlapOptions& options, F&& f) {
  auto ins = detail::overlap_inputs(input);
  auto out = detail::overlap_end(output);
  using Out = typename decltype(out)::element;
  auto&& object = detail::as_object(f);
  using Function = std::remove_reference_t<decltype(object)>;
  static_assert(!std::is_const_v<Out>, "overlap: the output is read-only");
  return std::apply(
      [&]<class... In>(const In&... in) {
        static_assert(sizeof...(In) > 0, "overlap: there is no input");
        using Call = detail::OverlapCall<Function, detail::is_filtered<std::remove_cvref_t<Output>>,
                                         Out, std::remove_const_t<typename In::element>...>;
        const detail::OverlapEnd ends[] = {in...};
        return detail::run_overlap(
            ends, sizeof...(In), out, options,
            {const_cast<void*>(static_cast<const void*>(std::addressof(object))), &Call::run});
      },
      ins);
}
/// The same with default options.
template <class Input, class Output, class F>
OverlapResult overlap(Input&& input, Output&& output, F&& f) {
  return runnel::overlap(std::forward<Input>(input), std::forward<Output>(output), OverlapOptions{},
                         std::forward<F>(f));
}

}  // namespace runnel::inline RUNNEL_ABI
