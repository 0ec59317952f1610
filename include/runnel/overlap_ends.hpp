// SPDX-License-Identifier: Apache-2.0
/// Where the data of `overlap()` comes from and where it goes to. A plain range (vector, array, span, buffer) needs none of this.
#pragma once

#include <runnel/copy.hpp>

#include <cstddef>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

/// A range whose items have `width` elements each: see by_rows().
template <class T>
struct OverlapRows {
  std::span<T> elements;  ///< all rows, end to end
  std::size_t width;      ///< elements of a row
};

/// The range in items of `width` elements, which stay together: the rows of an image, the records of a table. Chunks and halos are then
/// counted in rows. As an output, every item of the input gives `width` elements.
template <detail::memory_range R>
[[nodiscard]] auto by_rows(R&& range, std::size_t width) {
  return OverlapRows<detail::element_of<R>>{{std::data(range), std::size(range)}, width};
}

/// What from_source() makes.
template <class T, class F>
struct OverlapSource {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>, "source: only trivially copyable elements can be moved as bytes");
  F read;             ///< fills a span, and says how far
  std::size_t width;  ///< elements of an item
};

/// Input as it comes, from a file or a generator: `read(std::span<T>)` fills the span from its beginning and returns how many elements it
/// wrote; less than asked for is the end. It is called in order by the thread that called overlap(). `width`: as in by_rows().
template <class T, class F>
requires std::is_invocable_r_v<std::size_t, F&, std::span<T>>
[[nodiscard]] OverlapSource<T, F> from_source(F read, std::size_t width = 1) { return {std::move(read), width}; }

/// What to_sink() makes.
template <class T, class F>
struct OverlapSink {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>, "sink: only trivially copyable elements can be moved as bytes");
  F write;            ///< gets each chunk's result
  std::size_t width;  ///< elements for every item of the input
};

/// Output as it comes: `write(std::span<const T>)` gets each chunk's result, in order, on a thread of overlap()'s own beside the one that
/// reads. `width`: elements for every item of the input.
template <class T, class F>
requires std::is_invocable_v<F&, std::span<const T>>
[[nodiscard]] OverlapSink<T, F> to_sink(F write, std::size_t width = 1) { return {std::move(write), width}; }

/// What per_chunk() makes.
template <class End>
struct OverlapPerChunk {
  End end;               ///< where the results go
  std::size_t elements;  ///< of every chunk
};

/// Output of a reduction: `elements` elements for every chunk, however many items it has. `OverlapResult::written` says how many came.
template <detail::memory_range R>
[[nodiscard]] auto per_chunk(R&& range, std::size_t elements = 1) {
  return OverlapPerChunk<OverlapRows<detail::element_of<R>>>{{{std::data(range), std::size(range)}, 1}, elements};
}
/// The same for a sink.
template <class T, class F>
[[nodiscard]] OverlapPerChunk<OverlapSink<T, F>> per_chunk(OverlapSink<T, F> to, std::size_t elements = 1) {
  return {std::move(to), elements};
}

/// What filtered() makes.
template <class End>
struct OverlapFiltered {
  End end;  ///< where the results go
};

/// Output of a filter: of each chunk as many elements as the function says, at most `width` for every item, end to end in the order of
/// the chunks. The function gets a DeviceSpan<std::size_t> of one element more, 0 at first, to write the number into.
template <detail::memory_range R>
[[nodiscard]] auto filtered(R&& range, std::size_t width = 1) {
  return OverlapFiltered<OverlapRows<detail::element_of<R>>>{{{std::data(range), std::size(range)}, width}};
}
/// The same for a sink.
template <class T, class F>
[[nodiscard]] OverlapFiltered<OverlapSink<T, F>> filtered(OverlapSink<T, F> to) {
  return {std::move(to)};
}

/// The type of `no_output`.
struct OverlapNoOutput {};
/// For a function that leaves nothing to bring back.
inline constexpr OverlapNoOutput no_output{};

/// What zipped() makes.
template <class... Ends>
struct OverlapInputs {
  std::tuple<Ends...> ends;  ///< ranges, by_rows() and sources
};

namespace detail {

/// One end, without its types. Sizes are in elements.
struct OverlapEnd {
  enum class Kind : unsigned char { none, range, function } kind = Kind::none;
  std::size_t element_bytes = 1;
  std::size_t width = 0;      // for every item; 0: to be found from the sizes
  std::size_t per_chunk = 0;  // instead of for every item, if not 0
  bool filtered = false;

  void* data = nullptr;
  std::size_t size = 0;
  std::optional<MemoryKind> memory = std::nullopt;

  void* function = nullptr;
  std::size_t (*read)(void* function, void* to, std::size_t elements) = nullptr;
  void (*write)(void* function, const void* from, std::size_t elements) = nullptr;
};

template <class T>
struct TypedEnd : OverlapEnd {
  using element = T;
};

template <class T>
[[nodiscard]] TypedEnd<T> range_end(T* data, std::size_t size, std::size_t width, std::optional<MemoryKind> memory = std::nullopt) {
  static_assert(std::is_trivially_copyable_v<T>, "overlap: only trivially copyable elements can be moved as bytes");
  TypedEnd<T> end;
  end.kind = OverlapEnd::Kind::range;
  end.element_bytes = sizeof(T);
  end.width = width;
  end.data = const_cast<std::remove_const_t<T>*>(data);  // inputs are read only
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

/// What overlap() makes of its first two arguments. The arguments outlive the call.
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
    return static_cast<std::size_t>((*static_cast<F*>(read))(std::span<T>{static_cast<T*>(to), elements}));
  };
  return end;
}
template <class T, class F>
[[nodiscard]] auto overlap_end(OverlapSink<T, F>& sink) {
  auto end = function_end<T>(sink.write, sink.width);
  if (sink.width == 0) throw_invalid_argument("overlap", "the sink gets no elements of an item");
  end.write = [](void* write, const void* from, std::size_t elements) {
    static_cast<void>((*static_cast<F*>(write))(std::span<const T>{static_cast<const T*>(from), elements}));
  };
  return end;
}
template <class End>
[[nodiscard]] auto overlap_end(OverlapPerChunk<End>& output) {
  auto end = overlap_end(output.end);
  if (output.elements == 0) throw_invalid_argument("overlap", "a chunk gives no elements: say no_output");
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

/// Several inputs, which have the same number of items: ranges, by_rows() and sources. The function gets a span of each. A source is not
/// asked for more than the inputs before it, or any range, have.
template <class... Ends>
[[nodiscard]] auto zipped(Ends&&... ends) {
  return OverlapInputs<Ends...>{{std::forward<Ends>(ends)...}};
}

}  // namespace runnel::inline RUNNEL_ABI
