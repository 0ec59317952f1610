// SPDX-License-Identifier: Apache-2.0
#include "overlap.hpp"

#include "arrays.hpp"
#include "blocks.hpp"
#include "current.hpp"
#include "devices.hpp"
#include "errors.hpp"
#include "references.hpp"
#include "waits.hpp"

#include <runnel/overlap_bytes.hpp>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace binding {
namespace {

/// The bytes that a source says it wrote, or a sink that it took: a sink that returns None has
/// taken all. A source's None may be that of a file that does not block, which has not ended.
/// @throws TypeError, ValueError
[[nodiscard]] std::size_t count_of(nb::handle result, std::size_t most, bool is_source) {
  if (result.is_none() && !is_source) return most;
  const bool is_number = PyIndex_Check(result.ptr()) != 0 && PyBool_Check(result.ptr()) == 0;
  const Py_ssize_t count = is_number ? index_of(result, nullptr) : -1;
  if (count < 0) {
    refuse(PyExc_TypeError,
           is_source
               ? "the source returned %R: it returns how many bytes it wrote, and 0 at the end. "
                 "A file that does not block returns None where it has no data yet: give "
                 "overlap() its own readinto, which it waits for"
               : "the sink returned %R: it returns how many bytes it took, or None for all",
           result.ptr());
  }
  if (static_cast<std::size_t>(count) > most)
    refuse_value(is_source ? "the source says that it wrote more bytes than the memoryview has"
                           : "the sink says that it took more bytes than the memoryview has");
  return static_cast<std::size_t>(count);
}

/// Refuses that the memory outlives its call in a program's view of it. @throws ValueError
void refuse_exports(const Block::Memory& memory, const char* reason) {
  if (memory.exports == 0) return;
  nb::module_::import_("gc").attr("collect")();
  drop_now();
  if (memory.exports != 0) refuse_value(reason);
}

/// Ends a memoryview, unless an array shows it: whoever uses it later is told.
struct EndView {
  explicit EndView(nb::handle of) noexcept : view{of} {}
  EndView(const EndView&) = delete;
  EndView& operator=(const EndView&) = delete;
  ~EndView() {
    PyObject* const done = PyObject_CallMethod(view.ptr(), "release", nullptr);
    done != nullptr ? Py_DECREF(done) : PyErr_Clear();
  }
  nb::handle view;
};

/// Calls a source or a sink with a memoryview that ends with the call. @throws PythonFailure
[[nodiscard]] std::size_t call_with_view(const SharedObject& function, void* data,
                                         std::size_t bytes, bool is_source) {
  std::size_t count = bytes;
  call_python(function, [&](nb::handle f) {
    const auto memory = std::make_shared<Block::Memory>();
    memory->data = static_cast<std::byte*>(data);
    memory->bytes = bytes;
    const nb::object view = view_of(memory, !is_source);
    nb::object result = [&] {
      const EndView end{view};  // also if the function throws: the traceback keeps the view
      return f(view);
    }();
    refuse_exports(
        *memory, is_source ? "the source keeps a part of its memoryview, or an array of it, "
                             "whose memory ends with the call: write to it before you return"
                           : "the sink keeps a part of its memoryview, or an array of it, whose "
                             "memory ends with the call: keep bytes(view) or a copy of the array");
    count = count_of(result, bytes, is_source);
    check_signals();
    return result;
  });
  return count;
}

using Read = std::function<std::size_t(std::span<std::byte>)>;
using Write = std::function<std::size_t(std::span<const std::byte>)>;
using Sink = runnel::OverlapSink<std::byte, Write>;
/// An input or the output. It stays where it is while overlap() runs.
struct End {
  std::unique_ptr<Array> array;  // null for a function
  std::optional<runnel::OverlapSource<std::byte, Read>> source;
  std::variant<std::monostate, Sink, runnel::OverlapPerChunk<Sink>, runnel::OverlapFiltered<Sink>>
      sink;
};

void open_array(End& end, nb::handle object, bool is_written) {
  end.array = std::make_unique<Array>();
  end.array->open(object, is_written);
  if (!end.array->is_contiguous) refuse_value("overlap() takes arrays that are contiguous");
}

[[nodiscard]] runnel::AnyOverlapEnd open_input(End& end, nb::handle object, std::size_t item) {
  if (PyCallable_Check(object.ptr()) == 0) {
    open_array(end, object, false);
    return runnel::by_rows(
        std::span{static_cast<const std::byte*>(end.array->data), end.array->bytes}, item);
  }
  const SharedObject function = share(object);
  const Read read = [function](std::span<std::byte> to) {
    return call_with_view(function, to.data(), to.size(), true);
  };
  return end.source.emplace(runnel::from_source<std::byte>(read, item));
}

/// How much a chunk gives: results for every item; a number of results for the chunk; or as many as
/// the function says.
enum class Amount : int { items, per_chunk, filtered };

/// `bytes`: of the results of an item, or of the chunk.
[[nodiscard]] runnel::AnyOverlapEnd open_array_output(End& end, nb::handle object,
                                                      std::size_t bytes, Amount amount) {
  open_array(end, object, true);
  const std::span all{static_cast<std::byte*>(end.array->data), end.array->bytes};
  switch (amount) {
    case Amount::per_chunk:
      return runnel::per_chunk(all, bytes);
    case Amount::filtered:
      return runnel::filtered(all, bytes);
    default:
      return runnel::by_rows(all, bytes);
  }
}
[[nodiscard]] runnel::AnyOverlapEnd open_sink(End& end, nb::handle object, std::size_t bytes,
                                              Amount amount) {
  const SharedObject function = share(object);
  const Write write = [function](std::span<const std::byte> from) {
    return call_with_view(function, const_cast<std::byte*>(from.data()), from.size(), false);
  };
  switch (amount) {
    case Amount::per_chunk:
      return end.sink.emplace<2>(runnel::per_chunk(runnel::to_sink<std::byte>(write), bytes));
    case Amount::filtered:
      return end.sink.emplace<3>(runnel::filtered(runnel::to_sink<std::byte>(write, bytes)));
    default:
      return end.sink.emplace<1>(runnel::to_sink<std::byte>(write, bytes));
  }
}
[[nodiscard]] runnel::AnyOverlapEnd open_output(End& end, nb::handle object, std::size_t bytes,
                                                Amount amount) {
  if (object.is_none()) return runnel::no_output;
  return PyCallable_Check(object.ptr()) == 0 ? open_array_output(end, object, bytes, amount)
                                             : open_sink(end, object, bytes, amount);
}

struct PyChunk {
  nb::object stream;
  std::size_t index, first, count, before, after, buffer;
};

/// The chunk's memory as a block that ends with the run.
[[nodiscard]] Block chunk_block(std::vector<std::shared_ptr<Block::Memory>>& made, const void* data,
                                std::size_t bytes, runnel::StreamRef stream) {
  auto memory = std::make_shared<Block::Memory>();
  memory->data = static_cast<std::byte*>(const_cast<void*>(data));
  memory->bytes = bytes;
  made.push_back(memory);
  return {std::move(memory), stream};
}

/// Ends a chunk's blocks: their functions refuse from then on.
struct EndBlocks {
  std::vector<std::shared_ptr<Block::Memory>> blocks;
  void end() noexcept {
    for (const auto& block : blocks) block->is_live = false;
  }
};

void call_function(const SharedObject& function, EndBlocks& blocks, bool has_output,
                   runnel::StreamRef stream, const runnel::OverlapBytes& bytes,
                   const runnel::OverlapChunk& chunk) {
  call_python(function, [&](nb::handle f) {
    const nb::object of_stream = nb::cast(new PyStream{stream}, nb::rv_policy::take_ownership);
    nb::list arguments;
    arguments.append(nb::cast(PyChunk{of_stream, chunk.index, chunk.first, chunk.count,
                                      chunk.before, chunk.after, chunk.buffer}));
    for (const auto& in : bytes.in)
      arguments.append(nb::cast(chunk_block(blocks.blocks, in.data(), in.size(), stream)));
    if (has_output)
      arguments.append(
          nb::cast(chunk_block(blocks.blocks, bytes.out.data(), bytes.out.size(), stream)));
    if (!bytes.count.empty())
      arguments.append(
          nb::cast(chunk_block(blocks.blocks, bytes.count.data(), sizeof(std::size_t), stream)));
    nb::object result = made_by(PyObject_Call(f.ptr(), nb::tuple(arguments).ptr(), nullptr));
    check_signals();
    return result;
  });
}

[[nodiscard]] runnel::OverlapResult run(const nb::list& inputs, nb::object output,
                                        const std::vector<std::size_t>& items,
                                        std::size_t out_bytes, Amount amount, nb::callable function,
                                        const runnel::OverlapOptions& options) {
  drop_now();
  std::vector<End> ends(nb::len(inputs) + 1);
  std::vector<runnel::AnyOverlapEnd> in;
  for (std::size_t i = 0; i < nb::len(inputs); ++i)
    in.push_back(open_input(ends[i], inputs[i], items.at(i)));
  const runnel::AnyOverlapEnd out = open_output(ends.back(), output, out_bytes, amount);
  const SharedObject called = share(function);
  const bool has_output = !output.is_none();
  EndBlocks blocks;
  struct AtEnd {
    EndBlocks& blocks;
    ~AtEnd() { blocks.end(); }
  } at_end{blocks};
  return unlocked([&] {
    return runnel::overlap_bytes(in, out, options,
                                 [&](runnel::StreamRef stream, const runnel::OverlapBytes& bytes,
                                     const runnel::OverlapChunk& chunk) {
                                   call_function(called, blocks, has_output, stream, bytes, chunk);
                                 });
  });
}

void bind_result(nb::module_& module) {
  using Result = runnel::OverlapResult;
  nb::class_<Result>(module, "OverlapResult", "What ``overlap()`` did.")
      .def_ro("chunks", &Result::chunks, "Chunks that were finished.")
      .def_ro("items", &Result::items, "Items in those chunks.")
      .def_ro("written", &Result::written, "Bytes written to the output.")
      .def_ro("chunk", &Result::chunk, "Items of a chunk.")
      .def_ro("in_flight", &Result::in_flight, "Chunks in flight on each device.")
      .def_prop_ro(
          "seconds", [](const Result& r) { return std::chrono::duration<double>{r.time}.count(); },
          "How long it took.")
      .def_prop_ro(
          "strategy",
          [](const Result& r) {
            return r.strategy == runnel::OverlapStrategy::copy_compute_copy ? "B" : "A";
          },
          "``'A'`` or ``'B'``.")
      .def_prop_ro(
          "hidden", [](const Result& r) { return runnel::measure_overlap(r.times).hidden_share(); },
          "How much of the transfer time computing hid, 0 to 1, with ``record_times=True``.")
      .def("__repr__", [](const Result& r) {
        return "<runnel.OverlapResult: " + std::to_string(r.items) + " items in " +
               std::to_string(r.chunks) + " chunks of " + std::to_string(r.chunk) + ", " +
               std::to_string(r.in_flight) + " in flight, strategy " +
               (r.strategy == runnel::OverlapStrategy::copy_compute_copy ? "B" : "A") + ", " +
               std::to_string(std::chrono::duration<double>{r.time}.count()) + " s>";
      });
}

void bind_chunk(nb::module_& module) {
  nb::class_<PyChunk>(module, "Chunk",
                      "The part of the data that one call of overlap()'s function gets.")
      .def_ro("stream", &PyChunk::stream, nb::sig("def stream(self) -> Stream"),
              "The stream in which the chunk is computed.")
      .def_ro("index", &PyChunk::index, "0 for the first chunk.")
      .def_ro("first", &PyChunk::first, "Number of its first item in the whole input.")
      .def_ro("count", &PyChunk::count, "Its items, without the halo.")
      .def_ro("before", &PyChunk::before, "Items of the halo at its beginning.")
      .def_ro("after", &PyChunk::after, "Items of the halo at its end.")
      .def_ro(
          "buffer", &PyChunk::buffer,
          "Which of the device's buffers it is in; chunks in one buffer run one after the other.")
      .def("__repr__", [](const PyChunk& c) {
        return "<runnel.Chunk " + std::to_string(c.index) + ": items " + std::to_string(c.first) +
               " to " + std::to_string(c.first + c.count) + ">";
      });
}

}  // namespace

void bind_overlap(nb::module_& module) {
  bind_chunk(module);
  bind_result(module);
  module.def(
      "_overlap",
      [](const nb::list& inputs, nb::object output, const std::vector<std::size_t>& items,
         std::size_t out_bytes, int amount, nb::callable function, std::size_t chunk,
         std::size_t in_flight, std::size_t halo, int strategy, nb::object devices,
         nb::object progress, bool record_times) {
        runnel::OverlapOptions options;
        options.chunk = chunk;
        options.in_flight = in_flight;
        options.halo = halo;
        options.strategy = static_cast<runnel::OverlapStrategy>(strategy);
        options.record_times = record_times;
        if (!devices.is_none())
          for (nb::handle each : nb::iter(devices)) options.devices.push_back(device_of(each));
        if (!progress.is_none())
          options.progress = [told = share(progress)](const runnel::OverlapProgress& now) {
            call_python(told, [&](nb::handle f) { return f(now.items, now.total); });
          };
        return run(inputs, output, items, out_bytes, static_cast<Amount>(amount), function,
                   options);
      },
      nb::arg("inputs"), nb::arg("output").none(), nb::arg("items"), nb::arg("out_bytes"),
      nb::arg("amount"), nb::arg("function"), nb::arg("chunk"), nb::arg("in_flight"),
      nb::arg("halo"), nb::arg("strategy"), nb::arg("devices").none(), nb::arg("progress").none(),
      nb::arg("record_times"),
      nb::sig("def _overlap(inputs: list[object], output: object, items: "
              "collections.abc.Sequence[int], out_bytes: int, amount: int, function: "
              "typing.Callable[..., object], chunk: int, in_flight: int, halo: int, strategy: int, "
              "devices: object, progress: object, "
              "record_times: bool) -> OverlapResult"));
  module.def(
      "_shape",
      [](Block& block, const std::string& dtype, const std::vector<std::int64_t>& shape,
         bool is_bytes, const std::vector<std::size_t>& order) {
        shape_block(block, dtype, shape, order);
        block.is_bytes = is_bytes;
      },
      nb::arg("block"), nb::arg("dtype"), nb::arg("shape"), nb::arg("is_bytes") = false,
      nb::arg("order") = std::vector<std::size_t>{});
}

}  // namespace binding
