// SPDX-License-Identifier: Apache-2.0
/// Data larger than the device through the device: copy in, compute, copy out, chunk after chunk, all three at the same time.
#pragma once

#include <runnel/detail/callback.hpp>
#include <runnel/device.hpp>
#include <runnel/error.hpp>
#include <runnel/memory.hpp>
#include <runnel/overlap_ends.hpp>
#include <runnel/overlap_times.hpp>
#include <runnel/stream.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <optional>
#include <stop_token>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI {

/// How steps are laid onto streams.
enum class OverlapStrategy {
  automatic,          ///< chosen by choose_overlap_strategy()
  stream_per_chunk,   ///< A: a stream for each chunk in flight, which does all three steps of it
  copy_compute_copy,  ///< B: one stream for each step, ordered by events
};

/// What `OverlapOptions::progress` hears.
struct OverlapProgress {
  std::size_t chunks;                ///< finished
  std::size_t items;                 ///< in them
  std::optional<std::size_t> total;  ///< items in all; nothing where a source decides
};

/// How overlap() goes about it. All of it may be left out.
struct OverlapOptions {
  std::size_t chunk = 0;      ///< items that travel together; 0: 16 MiB (64 MiB in ordinary memory), less if input or device is small
  std::size_t in_flight = 0;  ///< chunks in each device's memory at once; 0: 4, fewer if the device is small or its memory is in use
  OverlapStrategy strategy = OverlapStrategy::automatic;  ///< A or B
  std::size_t streams = 0;           ///< of `stream_per_chunk`: streams that take turns; 0: one for each chunk in flight
  std::size_t halo = 0;              ///< neighbouring items that the function sees on either side of its chunk, where there are any
  std::vector<Device> devices = {};  ///< chunks go to them in turn; none: the current device
  std::stop_token stop = {};         ///< once requested no chunk is begun; those in flight are finished
  detail::Callback<const OverlapProgress&> progress = {};  ///< after each chunk, in order, on a thread of overlap()'s own
  bool record_times = false;                               ///< fills OverlapResult::times
};

/// Which part of the whole the function has before it. Items are elements, or by_rows() of elements.
struct OverlapChunk {
  std::size_t index;   ///< 0 for the first chunk
  std::size_t first;   ///< the chunk's first item in the whole
  std::size_t count;   ///< items, those of the halo not counted
  std::size_t before;  ///< items of the halo at the beginning of each input's span
  std::size_t after;   ///< and at its end
  std::size_t buffer;  ///< which of the device's chunk buffers it is in, 0 to in_flight - 1; chunks in one buffer run one after the other
  Device device;       ///< that it is computed on
};

/// What overlap() did.
struct OverlapResult {
  std::size_t chunks = 0;           ///< finished
  std::size_t items = 0;            ///< in them
  std::size_t written = 0;          ///< elements of the output
  bool stopped = false;             ///< `OverlapOptions::stop` ended it: what is counted here is the beginning
  std::chrono::nanoseconds time{};  ///< from beginning to end

  // What was chosen where the options left it open.
  OverlapStrategy strategy = OverlapStrategy::automatic;  ///< never automatic
  std::size_t chunk = 0;                                  ///< items
  std::size_t in_flight = 0;                              ///< on each device

  /// In order; of more than 2^20 chunks only the first.
  std::vector<OverlapChunkTimes> times = {};
};

/// What went wrong with one chunk. The cause, which may be an exception of your own, is nested: `std::rethrow_if_nested()`. `code()` is the
/// cause's, errc::out_of_memory for a `std::bad_alloc`, else errc::function_failed. What is thrown is also a `std::system_error`, except
/// out of memory, which is also a `std::bad_alloc`, as with every `Error`.
class OverlapError : public Error, public std::nested_exception {
 public:
  ~OverlapError() override;
  /// Its index.
  [[nodiscard]] std::size_t chunk() const noexcept { return chunk_; }

 protected:
  ///@{ Made and copied by what is really thrown.
  OverlapError(std::size_t chunk, const Error* cause) noexcept;
  OverlapError(const OverlapError&) = default;
  OverlapError& operator=(const OverlapError&) = default;
  ///@}

 private:
  std::size_t chunk_;
};

/// The rule of `OverlapStrategy::automatic`: B where the device copies both ways at once (two copy engines), there are chunks to overlap,
/// and a chunk is large enough (1 MiB, in and out) to be worth the events between three streams. A otherwise, and for ranges in ordinary
/// memory: their copies are carried by threads, which several streams at once keep busier.
[[nodiscard]] OverlapStrategy choose_overlap_strategy(Device device, std::size_t chunk_bytes, std::size_t in_flight, bool pageable_memory);

namespace detail {

struct OverlapBuffers {
  void* const* in;
  const std::size_t* in_elements;
  void* out;
  std::size_t out_elements;
  std::size_t* count;
};
struct OverlapFunction {
  void* function;
  void (*run)(void* function, StreamRef stream, const OverlapBuffers& buffers, const OverlapChunk& chunk);
};
OverlapResult run_overlap(const OverlapEnd* inputs, std::size_t input_count, const OverlapEnd& output, const OverlapOptions& options,
                          OverlapFunction function);

template <class F, class... Arguments>
void call_with_chunk(F& function, const OverlapChunk& chunk, Arguments... arguments) {
  if constexpr (std::is_invocable_v<F&, Arguments..., const OverlapChunk&>)
    static_cast<void>(function(arguments..., chunk));
  else if constexpr (std::is_invocable_v<F&, Arguments...>)
    static_cast<void>(function(arguments...));
  else
    static_assert(sizeof(F) == 0,
                  "overlap: the function takes (StreamRef, DeviceSpan<const In> for each input, DeviceSpan<Out> unless there is "
                  "no_output, DeviceSpan<std::size_t> if filtered, and, if it likes, const OverlapChunk&)");
}

/// Of a function its address, which is an object to point to as any other callable is.
template <class F>
[[nodiscard]] decltype(auto) as_object(F& function) {
  if constexpr (std::is_function_v<F>)
    return &function;
  else
    return (function);
}

/// Calls the user's function with spans of its own types.
template <class F, bool filtered, class Out, class... In>
struct OverlapCall {
  static void run(void* function, StreamRef stream, const OverlapBuffers& b, const OverlapChunk& chunk) {
    call(*static_cast<F*>(function), stream, b, chunk, std::index_sequence_for<In...>{});
  }

 private:
  template <std::size_t... i>
  static void call(F& function, StreamRef stream, const OverlapBuffers& b, const OverlapChunk& chunk, std::index_sequence<i...>) {
    const auto in = [&]<std::size_t k, class T>() { return DeviceSpan<const T>{static_cast<const T*>(b.in[k]), b.in_elements[k]}; };
    if constexpr (std::is_void_v<Out>)
      call_with_chunk(function, chunk, stream, in.template operator()<i, In>()...);
    else if constexpr (filtered)
      call_with_chunk(function, chunk, stream, in.template operator()<i, In>()...,
                      DeviceSpan<Out>{static_cast<Out*>(b.out), b.out_elements}, DeviceSpan<std::size_t>{b.count, 1});
    else
      call_with_chunk(function, chunk, stream, in.template operator()<i, In>()...,
                      DeviceSpan<Out>{static_cast<Out*>(b.out), b.out_elements});
  }
};
template <class T>
inline constexpr bool is_filtered = false;
template <class End>
inline constexpr bool is_filtered<OverlapFiltered<End>> = true;

}  // namespace detail

/// Calls `f(stream, in, out)` for each chunk of `input`, in order, on the calling thread: f enqueues work on `stream` that reads the
/// DeviceSpan<const In> and writes the DeviceSpan<Out>, and must not wait. The results arrive in `output`, which has as many elements as
/// the input or a whole multiple of that many. Both sides may be in any memory; what lies in pinned memory needs no detour. While f runs,
/// its stream is the current one.
///
/// Other shapes: by_rows(), zipped(), from_source(), to_sink(), per_chunk(), filtered(), no_output; f may take a `const OverlapChunk&`
/// last. Input and output may be the same memory unless there is a halo.
///
/// Returns when all is done. Device memory is `in_flight` times a chunk's input and output; where a source or a sink is, as much pinned
/// memory of that side. On shortage, sizes that the options leave open become smaller; then the call waits for work of other streams,
/// which may free memory, before it throws. If f, a source, a sink or a chunk fails, no further chunk is begun and nothing is in flight any
/// more when the exception arrives. @throws OverlapError; errc::invalid_argument, errc::out_of_memory and the like before anything moves
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
        using Call = detail::OverlapCall<Function, detail::is_filtered<std::remove_cvref_t<Output>>, Out,
                                         std::remove_const_t<typename In::element>...>;
        const detail::OverlapEnd ends[] = {in...};
        return detail::run_overlap(ends, sizeof...(In), out, options,
                                   {const_cast<void*>(static_cast<const void*>(std::addressof(object))), &Call::run});
      },
      ins);
}
/// The same with nothing asked for.
template <class Input, class Output, class F>
OverlapResult overlap(Input&& input, Output&& output, F&& f) {
  return runnel::overlap(std::forward<Input>(input), std::forward<Output>(output), OverlapOptions{}, std::forward<F>(f));
}

}  // namespace runnel::inline RUNNEL_ABI
