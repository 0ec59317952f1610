// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_overlap
/// overlap() for inputs whose types and number are known only at run time, for example in an
/// interface to another language.
#pragma once

#include <runnel/overlap.hpp>

namespace runnel::inline RUNNEL_ABI {

class AnyOverlapEnd;

namespace detail {
template <class End>
inline constexpr bool calls_function = false;
template <class T, class F>
inline constexpr bool calls_function<OverlapSource<T, F>> = true;
template <class T, class F>
inline constexpr bool calls_function<OverlapSink<T, F>> = true;
template <class End>
inline constexpr bool calls_function<OverlapPerChunk<End>> = calls_function<End>;
template <class End>
inline constexpr bool calls_function<OverlapFiltered<End>> = calls_function<End>;
/// What an AnyOverlapEnd can be constructed from. It refers to containers, sources and sinks, so
/// these must not be temporaries; it copies views and the other forms.
template <class End>
concept OutlivesItsEnd = std::is_lvalue_reference_v<End> || memory_view<std::remove_cv_t<End>> ||
                         (!memory_range<End> && !calls_function<std::remove_cv_t<End>>);
template <class End>
concept ErasableEnd =
    !std::is_same_v<std::remove_cvref_t<End>, AnyOverlapEnd> && OutlivesItsEnd<End>;
/// The contents of an AnyOverlapEnd.
struct ErasedEnd : OverlapEnd {
  bool is_read_only = false;
};
template <class T>
[[nodiscard]] ErasedEnd erase_type(const TypedEnd<T>& end) {
  return {end, std::is_const_v<T>};
}
struct ErasedEnds;
}  // namespace detail

/// An input or an output of overlap_bytes(): a range, or a result of by_rows(), from_source(),
/// to_sink(), per_chunk() or filtered(), or `no_output`. It is cheap to copy. Requires: what it
/// refers to outlives it; sources and sinks must therefore be named objects.
class AnyOverlapEnd {
 public:
  /// Wraps any input or output that overlap() accepts.
  template <detail::ErasableEnd End>
  AnyOverlapEnd(End&& end)  // NOLINT: `overlap_bytes(inputs, no_output, ...)` is how it is written
      : end_{detail::erase_type(detail::overlap_end(end))} {}

 private:
  friend struct detail::ErasedEnds;
  detail::ErasedEnd end_;
};

/// The chunk's bytes on the device. The bytes of an item are contiguous.
struct OverlapBytes {
  std::span<const DeviceSpan<const std::byte>>
      in;                         ///< of each input, in the order of the inputs, with the halo
  DeviceSpan<std::byte> out;      ///< of the output; empty for no_output
  DeviceSpan<std::size_t> count;  ///< with filtered(): one element, to which the function writes
                                  ///< the number of elements; otherwise empty
};

namespace detail {
struct OverlapBytesFunction {
  void* function;
  void (*run)(void* function, StreamRef stream, const OverlapBytes& bytes,
              const OverlapChunk& chunk);
};
OverlapResult run_overlap_bytes(std::span<const AnyOverlapEnd> inputs, const AnyOverlapEnd& output,
                                const OverlapOptions& options, OverlapBytesFunction function);
}  // namespace detail

/// As overlap(), for inputs and an output whose types are not known at compile time. Calls
/// `f(stream, bytes, chunk)` for each chunk, with a `const OverlapBytes&` and a
/// `const OverlapChunk&`. @throws as overlap(); errc::invalid_argument if there is no input, if the
/// output is read-only, if a sink is passed as an input, or if a source is passed as the output
template <class F>
  requires std::is_invocable_v<F&, StreamRef, const OverlapBytes&, const OverlapChunk&>
OverlapResult overlap_bytes(std::span<const AnyOverlapEnd> inputs, const AnyOverlapEnd& output,
                            const OverlapOptions& options, F&& f) {
  auto&& object = detail::as_object(f);
  using Function = std::remove_reference_t<decltype(object)>;
  return detail::run_overlap_bytes(
      inputs, output, options,
      {const_cast<void*>(static_cast<const void*>(std::addressof(object))),
       [](void* function, StreamRef stream, const OverlapBytes& bytes, const OverlapChunk& chunk) {
         static_cast<void>((*static_cast<Function*>(function))(stream, bytes, chunk));
       }});
}

}  // namespace runnel::inline RUNNEL_ABI
