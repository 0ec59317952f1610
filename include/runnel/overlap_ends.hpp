// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_overlap
/// Inputs and outputs of `overlap()` that are not plain ranges. Vectors, arrays, spans and buffers
/// are passed as they are.
#pragma once

#include <runnel/copy.hpp>

#include <tuple>

namespace runnel::inline RUNNEL_ABI {

namespace detail {
/// A function that fills a span and returns the number of elements written.
template <class F, class T>
concept ReaderOf = std::is_invocable_r_v<std::size_t, F&, std::span<T>>;
/// A function that takes a span of results.
template <class F, class T>
concept WriterOf = std::is_invocable_v<F&, std::span<const T>>;
}  // namespace detail

/// The result of by_rows(): a range whose items have `width` elements each.
template <class T>
struct OverlapRows {
  std::span<T> elements;  ///< all rows, end to end
  std::size_t width;      ///< elements in a row
};

/// A range whose items are rows of `width` elements, such as the rows of an image or the records of
/// a table. A row is never split between chunks, and chunks and halos are counted in rows. As an
/// output it has `width` elements for each item of the input. overlap() throws
/// errc::invalid_argument for a width of 0, and for an input whose size is not a multiple of the
/// width.
template <detail::memory_range R>
[[nodiscard]] auto by_rows(R&& range, std::size_t width) {
  return OverlapRows<detail::element_of<R>>{{std::data(range), std::size(range)}, width};
}

/// The result of from_source().
template <class T, class F>
struct OverlapSource {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>,
                "from_source: only trivially copyable elements can be moved as bytes");
  F read;             ///< fills a span and returns the number of elements written
  std::size_t width;  ///< elements in an item
};

/// An input that comes from a function, such as one that reads a file: `read(std::span<T>)` fills
/// the span from its beginning and returns the number of elements that it wrote. If it wrote fewer
/// than fit, it is called again for the others, as one does with the system's read(); 0 means the
/// end of the input. The thread that called overlap() calls `read`, in order. `width`: elements in
/// an item, as in by_rows().
template <class T, detail::ReaderOf<T> F>
[[nodiscard]] OverlapSource<T, F> from_source(F read, std::size_t width = 1) {
  return {std::move(read), width};
}

/// The result of to_sink().
template <class T, class F>
struct OverlapSink {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>,
                "to_sink: only trivially copyable elements can be moved as bytes");
  F write;            ///< receives each chunk's result
  std::size_t width;  ///< elements for each item of the input
};

/// An output that goes to a function: `write(std::span<const T>)` receives each chunk's result, in
/// order. If it returns an integer, that is the number of elements that it took: the others are
/// passed again, and overlap() fails if it takes none or returns a negative number, as the system's
/// write() does. Otherwise it has taken all. A thread of overlap() calls `write`, concurrently with
/// the thread that calls a source. `width`: elements for each item of the input.
template <class T, detail::WriterOf<T> F>
[[nodiscard]] OverlapSink<T, F> to_sink(F write, std::size_t width = 1) {
  return {std::move(write), width};
}

/// The result of per_chunk().
template <class End>
struct OverlapPerChunk {
  End end;               ///< where the results go
  std::size_t elements;  ///< elements for each chunk
};

/// The output of a reduction: each chunk writes `elements` elements, regardless of the number of
/// its items. `OverlapResult::written` is the total number.
template <detail::memory_range R>
[[nodiscard]] auto per_chunk(R&& range, std::size_t elements = 1) {
  return OverlapPerChunk<OverlapRows<detail::element_of<R>>>{
      {{std::data(range), std::size(range)}, 1}, elements};
}
/// The same for a sink.
template <class T, class F>
[[nodiscard]] OverlapPerChunk<OverlapSink<T, F>> per_chunk(OverlapSink<T, F> to,
                                                           std::size_t elements = 1) {
  return {std::move(to), elements};
}

/// The result of filtered().
template <class End>
struct OverlapFiltered {
  End end;  ///< where the results go
};

/// The output of a filter: each chunk writes a number of elements that the function determines, at
/// most `width` for each item. The results of the chunks are stored contiguously. The function gets
/// one more argument, a DeviceSpan<std::size_t> of one element, initially 0, into which it writes
/// the number of elements.
template <detail::memory_range R>
[[nodiscard]] auto filtered(R&& range, std::size_t width = 1) {
  return OverlapFiltered<OverlapRows<detail::element_of<R>>>{
      {{std::data(range), std::size(range)}, width}};
}
/// The same for a sink.
template <class T, class F>
[[nodiscard]] OverlapFiltered<OverlapSink<T, F>> filtered(OverlapSink<T, F> to) {
  return {std::move(to)};
}

/// The type of `no_output`.
struct OverlapNoOutput {};
/// No output: the function has no results to copy back.
inline constexpr OverlapNoOutput no_output{};

/// The result of zipped().
template <class... Ends>
struct OverlapInputs {
  std::tuple<Ends...> ends;  ///< ranges, rows and sources
};

namespace detail {

/// One type-erased input or output. Sizes are in elements unless their names say bytes.
struct OverlapEnd {
  enum class Kind : unsigned char { none, range, function } kind = Kind::none;
  std::size_t element_bytes = 1;
  std::size_t width = 0;  // Elements for each item (0 = follows from the sizes).
  std::size_t per_chunk =
      0;  // Elements for each chunk (0 = the output depends on the number of items).
  bool filtered = false;

  void* data = nullptr;
  std::size_t size = 0;
  std::optional<MemoryKind> memory = std::nullopt;

  void* function = nullptr;
  std::size_t (*read)(void* function, void* to, std::size_t elements) = nullptr;
  // Returns the number of elements that the function took.
  std::size_t (*write)(void* function, const void* from, std::size_t elements) = nullptr;
};

template <class T>
struct TypedEnd : OverlapEnd {
  using element = T;
};

template <class T>
[[nodiscard]] TypedEnd<T> range_end(T* data, std::size_t size, std::size_t width,
                                    std::optional<MemoryKind> memory = std::nullopt) {
  static_assert(std::is_trivially_copyable_v<T>,
                "overlap: only trivially copyable elements can be moved as bytes");
  TypedEnd<T> end;
  end.kind = OverlapEnd::Kind::range;
  end.element_bytes = sizeof(T);
  end.width = width;
  end.data = const_cast<std::remove_const_t<T>*>(data);  // Inputs are never written.
  end.size = size;
  end.memory = memory;
  return end;
}

template <class T, class F>
[[nodiscard]] TypedEnd<T> function_end(F& function, std::size_t width) {
  TypedEnd<T> end;
  end.kind = OverlapEnd::Kind::function;
  end.element_bytes = sizeof(T);
  end.width = width;
  end.function = const_cast<void*>(static_cast<const void*>(&function));
  return end;
}

/// Turns an argument of overlap() into an OverlapEnd. Requires: the argument outlives the result.
template <memory_range R>
[[nodiscard]] auto overlap_end(R& range) {
  return range_end(std::data(range), std::size(range), 0, kind_by_type<R>());
}
template <class T>
[[nodiscard]] auto overlap_end(const OverlapRows<T>& rows) {
  auto end = range_end(rows.elements.data(), rows.elements.size(), rows.width);
  if (rows.width == 0) throw_invalid_argument("overlap", "a row has no elements");
  return end;
}
template <class T, class F>
[[nodiscard]] auto overlap_end(OverlapSource<T, F>& source) {
  auto end = function_end<const T>(source.read, source.width);
  if (source.width == 0) throw_invalid_argument("overlap", "an item of the source has no elements");
  end.read = [](void* read, void* to, std::size_t elements) {
    return static_cast<std::size_t>(
        (*static_cast<F*>(read))(std::span<T>{static_cast<T*>(to), elements}));
  };
  return end;
}
template <class T, class F>
[[nodiscard]] auto overlap_end(OverlapSink<T, F>& sink) {
  auto end = function_end<T>(sink.write, sink.width);
  if (sink.width == 0) throw_invalid_argument("overlap", "the sink gets no elements of an item");
  end.write = [](void* function, const void* from, std::size_t elements) {
    F& write = *static_cast<F*>(function);
    const std::span<const T> all{static_cast<const T*>(from), elements};
    using Result = std::invoke_result_t<F&, std::span<const T>>;
    if constexpr (std::is_integral_v<Result> && !std::is_same_v<Result, bool>) {
      return static_cast<std::size_t>(write(all));
    } else {
      static_cast<void>(write(all));
      return elements;
    }
  };
  return end;
}
template <class End>
[[nodiscard]] auto overlap_end(OverlapPerChunk<End>& output) {
  auto end = overlap_end(output.end);
  if (output.elements == 0)
    throw_invalid_argument("overlap", "a chunk gives no elements: say no_output");
  end.per_chunk = output.elements;
  return end;
}
template <class End>
[[nodiscard]] auto overlap_end(OverlapFiltered<End>& output) {
  auto end = overlap_end(output.end);
  end.filtered = true;
  return end;
}
[[nodiscard]] inline auto overlap_end(const OverlapNoOutput&) { return TypedEnd<void>{}; }

template <class End>
[[nodiscard]] auto overlap_inputs(End& end) {
  return std::tuple{overlap_end(end)};
}
template <class... Ends>
[[nodiscard]] auto overlap_inputs(OverlapInputs<Ends...>& inputs) {
  return std::apply([](auto&... end) { return std::tuple{overlap_end(end)...}; }, inputs.ends);
}

}  // namespace detail

/// Several inputs that are read together: ranges, by_rows() and from_source(), all with the same
/// number of items. The function gets a span of each. A source is called for at most as many items
/// as the inputs before it, and all ranges, have.
template <class... Ends>
[[nodiscard]] auto zipped(Ends&&... ends) {
  return OverlapInputs<Ends...>{{std::forward<Ends>(ends)...}};
}

}  // namespace runnel::inline RUNNEL_ABI
