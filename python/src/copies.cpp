// SPDX-License-Identifier: Apache-2.0
#include "copies.hpp"

#include "arguments.hpp"
#include "arrays.hpp"
#include "current.hpp"
#include "handles.hpp"
#include "waits.hpp"

#include <runnel/copy.hpp>
#include <runnel/copy_batch.hpp>
#include <runnel/detail/strided.hpp>
#include <runnel/event.hpp>
#include <runnel/memory_kind.hpp>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace binding {
namespace {

[[nodiscard]] runnel::Pageable pageable_of(nb::handle name) {
  const std::string text = PyUnicode_Check(name.ptr()) != 0 ? nb::cast<std::string>(name) : "";
  if (text == "stage") return runnel::Pageable::stage;
  if (text == "block") return runnel::Pageable::block;
  if (text == "refuse") return runnel::Pageable::refuse;
  refuse_value("pageable is 'stage', 'block' or 'refuse'");
}
[[nodiscard]] runnel::CopyOptions options_of(nb::handle pageable, nb::handle any_time) {
  runnel::CopyOptions options;
  if (!pageable.is_none()) options.pageable = pageable_of(pageable);
  if (any_time.is_none()) return options;
  if (PyBool_Check(any_time.ptr()) == 0)
    refuse_argument("any_time", any_time, "True, False or None");
  options.source = any_time.is(nb::handle(Py_True)) ? runnel::SourceAccess::any_time
                                                    : runnel::SourceAccess::stream_order;
  return options;
}

void refuse_sizes(const Array& to, const Array& from) {
  refuse(PyExc_ValueError,
         "the destination has %zu bytes and the source has %zu: a copy converts and "
         "broadcasts nothing",
         to.bytes, from.bytes);
}

[[nodiscard]] std::size_t to_size(std::ptrdiff_t stride) noexcept {
  return static_cast<std::size_t>(stride);
}

/// The strides of an array that is contiguous, for the shape and the elements of the other one: it
/// may be bytes, which do not know them.
void set_strides(Array& array, const Array& other) {
  if (!array.is_contiguous) return;
  array.item_bytes = other.item_bytes;
  array.dimensions = other.dimensions;
  array.shape = other.shape;
  std::ptrdiff_t step = static_cast<std::ptrdiff_t>(other.item_bytes);
  for (int i = other.dimensions - 1; i >= 0; --i) {
    array.strides[static_cast<std::size_t>(i)] = step;
    step *= other.shape[static_cast<std::size_t>(i)];
  }
}
using Dimensions = std::vector<runnel::detail::StridedDimension>;
/// @throws ValueError if one array has its rows where the other has its columns
void refuse_other_orders(Dimensions dimensions) {
  std::erase_if(dimensions, [](const auto& each) { return each.count <= 1; });
  std::sort(dimensions.begin(), dimensions.end(),
            [](const auto& a, const auto& b) { return a.to_stride < b.to_stride; });
  if (!std::is_sorted(dimensions.begin(), dimensions.end(),
                      [](const auto& a, const auto& b) { return a.from_stride < b.from_stride; }))
    refuse_value(
        "the arrays have their elements in different orders, as C's and Fortran's: "
        "numpy.ascontiguousarray(x), or a tensor's x.contiguous(), makes one of C's");
}
/// Drops the dimensions of one element.
void squeeze(Array& array) {
  if (array.is_contiguous) return;
  int kept = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(array.dimensions); ++i)
    if (array.shape[i] != 1) {
      array.shape[static_cast<std::size_t>(kept)] = array.shape[i];
      array.strides[static_cast<std::size_t>(kept++)] = array.strides[i];
    }
  array.dimensions = kept;
}
/// The dimensions of two arrays of which one at least is not contiguous. @throws ValueError
[[nodiscard]] Dimensions dimensions_of(Array& to, Array& from) {
  squeeze(to);
  squeeze(from);
  set_strides(to, from);
  set_strides(from, to);
  if (to.item_bytes != from.item_bytes ||
      !std::equal(to.shape.begin(), to.shape.begin() + to.dimensions, from.shape.begin(),
                  from.shape.begin() + from.dimensions))
    refuse_value("arrays that are not contiguous are copied if they have one shape");
  Dimensions made;
  for (std::size_t i = 0; i < static_cast<std::size_t>(from.dimensions); ++i) {
    if (from.shape[i] > 1 && (to.strides[i] <= 0 || from.strides[i] <= 0))
      refuse_value(
          "an array that runs backwards, or repeats itself, cannot be copied: "
          "numpy.ascontiguousarray(x), or a tensor's x.contiguous(), makes one that can");
    made.push_back({to_size(from.shape[i]), to_size(to.strides[i]), to_size(from.strides[i])});
  }
  refuse_other_orders(made);
  return made;
}
[[nodiscard]] runnel::CopyResult copy_strided(runnel::StreamRef stream, const Array& to,
                                              const Array& from, Dimensions dimensions,
                                              const runnel::CopyOptions& options) {
  return runnel::detail::copy_strided(stream, to.data, from.data, from.item_bytes, dimensions,
                                      options, "copy an array");
}

[[nodiscard]] bool is_pending(runnel::CopyResult result) noexcept {
  return result == runnel::CopyResult::direct || result == runnel::CopyResult::staged;
}
[[nodiscard]] bool is_pending(const runnel::CopyBatchResult& result) noexcept {
  return result.direct + result.staged > 0;
}
[[nodiscard]] bool is_blocked(runnel::CopyResult result) noexcept {
  return result == runnel::CopyResult::blocked;
}
[[nodiscard]] bool is_blocked(const runnel::CopyBatchResult& result) noexcept {
  return result.blocked > 0;
}
/// Whether the memory may be given out again before a stream has written it that has read the
/// source.
[[nodiscard]] bool is_freed_early(const Array& to, runnel::StreamRef stream) {
  return to.is_on_device && to.freed_in != stream;
}

/// Collects what a thread's copies note of their sources.
class NotedSources {
 public:
  NotedSources() noexcept { runnel::detail::noted_sources() = &sources_; }
  NotedSources(const NotedSources&) = delete;
  NotedSources& operator=(const NotedSources&) = delete;
  ~NotedSources() { runnel::detail::noted_sources() = nullptr; }
  /// Those of copies of that many bytes, if they are all.
  [[nodiscard]] runnel::detail::StagedSources all_of(std::size_t bytes) const noexcept {
    return sources_.bytes == bytes ? sources_ : runnel::detail::StagedSources{};
  }

 private:
  runnel::detail::StagedSources sources_;
};

/// Enqueues a copy of so many bytes and keeps its arrays if it is under way then, in one go without
/// the interpreter's lock. A copy that has read its source may still write its destination later:
/// `keeps_all` says that it is kept until then. A graph keeps all arrays.
template <class Result>
struct Enqueued {
  Result result;
  std::shared_ptr<Progress> progress;
};
template <class F>
[[nodiscard]] auto enqueue(runnel::StreamRef stream, Kept& arrays, std::size_t bytes,
                           bool keeps_all, F&& copy) {
  return unlocked([&] {
    const NotedSources noted;
    Enqueued<decltype(copy())> made{copy(), nullptr};
    if (is_pending(made.result)) {
      made.progress = keep_arrays(stream, arrays);
      made.progress->sources = noted.all_of(bytes);
    } else if (keeps_all || (is_blocked(made.result) && stream.is_capturing())) {
      static_cast<void>(keep_arrays(stream, arrays));
    }
    return made;
  });
}
/// The same for a copy of several parts: where one fails, those before it are under way.
template <class F>
[[nodiscard]] auto enqueue_parts(runnel::StreamRef stream, Kept& arrays, std::size_t bytes,
                                 bool keeps_all, F&& copy) {
  return enqueue(stream, arrays, bytes, keeps_all, [&] {
    try {
      return copy();
    } catch (...) {
      const std::exception_ptr failure = std::current_exception();
      try {
        static_cast<void>(keep_arrays(stream, arrays));
      } catch (...) {  // it has waited
      }
      std::rethrow_exception(failure);
    }
  });
}
[[nodiscard]] nb::object handle_of(runnel::StreamRef stream, runnel::CopyResult result,
                                   std::shared_ptr<Progress> progress, bool is_to_device) {
  // The runtime's blocking copy, too, returns once it has read the source.
  const bool is_left =
      is_to_device && (result == runnel::CopyResult::inlined ||
                       (result == runnel::CopyResult::blocked && !stream.is_capturing()));
  return nb::cast(new PyCopy{result, stream, stream.device(), std::move(progress), is_left},
                  nb::rv_policy::take_ownership);
}

/// Whether both arrays have no gaps and one order of their elements, so that their bytes go as one
/// block.
[[nodiscard]] bool is_one_block(const Array& to, const Array& from) {
  if (to.is_contiguous || from.is_contiguous) return to.is_contiguous && from.is_contiguous;
  if (to.dimensions != from.dimensions || to.item_bytes != from.item_bytes) return false;
  std::vector<std::pair<std::ptrdiff_t, std::ptrdiff_t>> steps;  // and counts
  for (std::size_t i = 0; i < static_cast<std::size_t>(to.dimensions); ++i) {
    if (to.shape[i] != from.shape[i]) return false;
    if (to.shape[i] == 1) continue;
    if (to.strides[i] != from.strides[i]) return false;
    steps.emplace_back(to.strides[i], to.shape[i]);
  }
  std::sort(steps.begin(), steps.end());
  auto expected = static_cast<std::ptrdiff_t>(to.item_bytes);
  for (const auto& [step, count] : steps) {
    if (step != expected) return false;
    expected *= count;
  }
  return true;
}

/// pageable='block' holds the caller until the work ahead is complete. Waits for that first, so
/// that Ctrl-C ends the wait. An event, since a wait for the stream would take an exception of a
/// host function.
void wait_ahead(runnel::StreamRef stream, const std::vector<const Array*>& arrays,
                const runnel::CopyOptions& options) {
  if (options.pageable != runnel::Pageable::block || stream.is_capturing()) return;
  const bool is_pageable = unlocked([&] {
    return std::any_of(arrays.begin(), arrays.end(), [](const Array* array) {
      const auto kind = array->kind ? *array->kind : runnel::pointer_info(array->data).kind;
      return kind == runnel::MemoryKind::pageable;
    });
  });
  if (!is_pageable) return;
  runnel::Event ahead;
  unlocked([&] { ahead.record(stream); });
  wait_in_slices(std::nullopt, "", [&](auto time) { return ahead.synchronize_for(time); });
}

[[nodiscard]] nb::object copy(nb::handle to, nb::handle from, nb::handle stream,
                              nb::handle pageable, nb::handle any_time, nb::handle unsafe) {
  drop_now();
  const bool is_unsafe = PyObject_IsTrue(unsafe.ptr()) > 0;
  auto arrays = std::make_unique<KeptArrays>();
  arrays->to.open(to, true);
  arrays->from.open(from, false);
  Array &into = arrays->to, &out_of = arrays->from;
  if (into.bytes != out_of.bytes) refuse_sizes(into, out_of);
  if (!is_unsafe) refuse_other_elements(into, out_of);
  const runnel::StreamRef in = stream_for(stream, into, out_of);
  runnel::CopyOptions options = options_of(pageable, any_time);
  options.to_kind = into.kind;
  options.from_kind = out_of.kind;
  if (options.pageable == runnel::Pageable::block) wait_ahead(in, {&into, &out_of}, options);
  const bool is_flat = is_one_block(into, out_of);
  const Dimensions dimensions = is_flat ? Dimensions{} : dimensions_of(into, out_of);
  into.count_write();
  const bool is_to_device = into.is_on_device;
  const std::size_t bytes = into.bytes;
  const bool keeps_all = is_freed_early(into, in);
  Kept kept{arrays.release()};  // from here on it is dropped by whoever has it last
  auto [result, progress] =
      is_flat
          ? enqueue(in, kept, bytes, keeps_all,
                    [&] { return runnel::copy_bytes(in, into.data, out_of.data, bytes, options); })
          : enqueue_parts(in, kept, bytes, keeps_all,
                          [&] { return copy_strided(in, into, out_of, dimensions, options); });
  if (progress == nullptr) delete kept.release();  // not later: nobody else has them
  return handle_of(in, result, std::move(progress), is_to_device);
}

/// What copy_many() keeps.
struct KeptPairs : Holder {
  std::vector<std::unique_ptr<KeptArrays>> pairs;
};

[[nodiscard]] std::unique_ptr<KeptArrays> open_pair(nb::handle pair, bool is_unsafe) {
  const nb::object items = nb::steal(PySequence_Tuple(pair.ptr()));
  if (!items.is_valid() || PyTuple_Size(items.ptr()) != 2)
    refuse(PyExc_TypeError, "it is no pair (destination, source)");
  auto arrays = std::make_unique<KeptArrays>();
  arrays->to.open(PyTuple_GetItem(items.ptr(), 0), true);
  arrays->from.open(PyTuple_GetItem(items.ptr(), 1), false);
  if (arrays->to.bytes != arrays->from.bytes) refuse_sizes(arrays->to, arrays->from);
  if (!is_unsafe) refuse_other_elements(arrays->to, arrays->from);
  return arrays;
}
/// Calls `f()`, and adds the pair's number to a refusal's text.
template <class F>
[[nodiscard]] auto of_pair(std::size_t at, F f) try {
  return f();
} catch (nb::python_error& error) {
  for (PyObject* const type : {PyExc_TypeError, PyExc_ValueError, PyExc_BufferError})
    if (error.type().is(type)) refuse(type, "copies[%zu]: %S", at, error.value().ptr());
  throw;
}

[[nodiscard]] nb::dict counts_of(const runnel::CopyBatchResult& result) {
  nb::dict made;
  made["nothing"] = result.nothing;
  made["direct"] = result.direct;
  made["staged"] = result.staged;
  made["inlined"] = result.inlined;
  made["blocked"] = result.blocked;
  return made;
}

struct StridedPair {
  const KeptArrays* arrays;
  Dimensions dimensions;
};
void count(runnel::CopyBatchResult& counts, runnel::CopyResult result) {
  using enum runnel::CopyResult;
  ++(result == nothing   ? counts.nothing
     : result == direct  ? counts.direct
     : result == staged  ? counts.staged
     : result == inlined ? counts.inlined
                         : counts.blocked);
}

/// The counts and the handle.
[[nodiscard]] nb::tuple copy_many(nb::handle copies, nb::handle stream, nb::handle pageable,
                                  nb::handle any_time, nb::handle unsafe) {
  drop_now();
  const bool is_unsafe = PyObject_IsTrue(unsafe.ptr()) > 0;
  auto kept = std::make_unique<KeptPairs>();
  for (nb::handle each : nb::iter(copies))
    kept->pairs.push_back(of_pair(kept->pairs.size(), [&] { return open_pair(each, is_unsafe); }));
  if (kept->pairs.empty())
    return nb::make_tuple(counts_of({}), handle_of(stream_of(stream), {}, nullptr, false));
  std::vector<runnel::CopyOperation> operations;
  operations.reserve(kept->pairs.size());
  std::vector<StridedPair> strided;
  for (std::size_t i = 0; i < kept->pairs.size(); ++i) {
    KeptArrays& pair = *kept->pairs[i];
    if (is_one_block(pair.to, pair.from))
      operations.push_back(
          {pair.to.data, pair.from.data, pair.to.bytes, pair.to.kind, pair.from.kind});
    else
      strided.push_back({&pair, of_pair(i, [&] { return dimensions_of(pair.to, pair.from); })});
  }
  const runnel::StreamRef in =
      stream_for(stream, kept->pairs.front()->to, kept->pairs.front()->from);
  const runnel::CopyOptions options = options_of(pageable, any_time);
  std::vector<const Array*> arrays;
  for (const auto& pair : kept->pairs) arrays.insert(arrays.end(), {&pair->to, &pair->from});
  wait_ahead(in, arrays, options);
  std::size_t bytes = 0;
  bool keeps_all = false;
  for (const auto& pair : kept->pairs) {
    pair->to.count_write();
    bytes += pair->to.bytes;
    keeps_all = keeps_all || is_freed_early(pair->to, in);
  }
  Kept holder{kept.release()};
  auto [result, progress] = enqueue_parts(in, holder, bytes, keeps_all, [&] {
    runnel::CopyBatchResult made = runnel::copy_batch(in, operations, options);
    for (const auto& [pair, dimensions] : strided) {
      runnel::CopyOptions known = options;
      known.to_kind = pair->to.kind;
      known.from_kind = pair->from.kind;
      count(made, copy_strided(in, pair->to, pair->from, dimensions, known));
    }
    return made;
  });
  const runnel::CopyResult worst =
      result.inlined > 0 ? runnel::CopyResult::inlined : runnel::CopyResult::blocked;
  return nb::make_tuple(counts_of(result), handle_of(in, worst, std::move(progress), true));
}

void fill(nb::handle array, Argument<int> byte, nb::handle stream) {
  drop_now();
  const int value = byte.of("value");
  if (value < 0 || value > 255) refuse_value("the value of a byte is 0 to 255");
  auto arrays = std::make_unique<KeptArrays>();
  arrays->to.open(array, true);
  if (!arrays->to.is_contiguous) refuse_value("the array is not contiguous");
  const runnel::StreamRef in = stream_for(stream, arrays->to, arrays->to);
  const Array& to = arrays->to;
  to.count_write();
  Kept kept{arrays.release()};
  unlocked([&] {
    runnel::fill_bytes(in, to.data, static_cast<unsigned char>(value), to.bytes);
    static_cast<void>(keep_arrays(in, kept));
  });
}

}  // namespace

// runnel/_calls.py has their documentation.
void bind_copies(nb::module_& module) {
  module.def("copy", &copy, nb::arg("dst").none(), nb::arg("src").none(), nb::arg("stream").none(),
             nb::arg("pageable").none(), nb::arg("any_time").none(), nb::arg("unsafe").none(),
             nb::sig("def copy(dst: object, src: object, stream: Stream | None, pageable: str | "
                     "None, any_time: bool | None, unsafe: bool) -> Copy"));
  module.def(
      "copy_many", &copy_many, nb::arg("copies").none(), nb::arg("stream").none(),
      nb::arg("pageable").none(), nb::arg("any_time").none(), nb::arg("unsafe").none(),
      nb::sig("def copy_many(copies: collections.abc.Iterable[tuple[object, object]], "
              "stream: Stream | None, pageable: str | None, any_time: bool | None, unsafe: bool) "
              "-> tuple[dict[str, int], Copy]"));
  module.def("fill", &fill, nb::arg("array").none(), nb::arg("value").none(),
             nb::arg("stream").none(),
             nb::sig("def fill(array: object, value: int, stream: Stream | None) -> None"));
}

}  // namespace binding
