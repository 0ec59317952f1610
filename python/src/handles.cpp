// SPDX-License-Identifier: Apache-2.0
#include "handles.hpp"

#include "completions.hpp"
#include "errors.hpp"
#include "waits.hpp"

#include <runnel/error.hpp>
#include <runnel/keep.hpp>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <string>

namespace binding {

void Progress::complete(const std::exception_ptr& error) {
  arrays.reset();
  std::vector<Done> told;
  {
    const std::lock_guard lock{mutex_};
    is_complete_ = true;
    error_ = error;
    told.swap(waiting_);
  }
  changed_.notify_all();
  for (const Done& each : told) each(error);
}

bool Progress::wait_for(std::chrono::steady_clock::duration time) {
  std::unique_lock lock{mutex_};
  return changed_.wait_for(lock, time, [this] { return is_complete_; });
}

std::exception_ptr Progress::error() {
  const std::lock_guard lock{mutex_};
  return error_;
}

void Progress::when_complete(Done done) {
  {
    const std::lock_guard lock{mutex_};
    if (!is_complete_) return waiting_.push_back(std::move(done));
  }
  done(error_);
}

namespace {

/// Completes a captured copy with its graph, which owns this.
struct EndsWithGraph {
  explicit EndsWithGraph(std::shared_ptr<Progress> of) noexcept : progress{std::move(of)} {}
  EndsWithGraph(EndsWithGraph&&) noexcept = default;
  EndsWithGraph& operator=(EndsWithGraph&&) noexcept = default;
  ~EndsWithGraph() {
    if (progress != nullptr) progress->arrays.reset();
  }
  std::shared_ptr<Progress> progress;
};

void keep_until_done(runnel::StreamRef stream, const std::shared_ptr<Progress>& progress) {
  if (stream.is_capturing()) {
    progress->is_captured = true;
    runnel::keep(stream, EndsWithGraph{progress});
    return;
  }
  stream.on_complete(
      [progress](const runnel::Outcome& outcome) { progress->complete(outcome.error()); });
}

}  // namespace

std::shared_ptr<Progress> keep_arrays(runnel::StreamRef stream, Kept& arrays) {
  auto progress = std::make_shared<Progress>();
  progress->arrays = std::move(arrays);
  try {
    keep_until_done(stream, progress);
  } catch (...) {
    std::error_code code;
    stream.synchronize(code);
    throw;
  }
  return progress;
}

namespace {

[[nodiscard]] nb::handle name_of(runnel::CopyResult result) {
  static const auto* const made = [] {
    auto* const names = new std::vector<nb::object>;
    for (int i = 0; i <= static_cast<int>(runnel::CopyResult::blocked); ++i)
      names->push_back(
          nb::steal(PyUnicode_InternFromString(name(static_cast<runnel::CopyResult>(i)))));
    return names;
  }();
  return (*made)[static_cast<std::size_t>(result)];
}

/// The mark of a small copy, behind which the stream has passed it.
[[nodiscard]] runnel::Event& mark_of(PyCopy& copy) {
  const std::lock_guard lock{copy.mutex};
  if (!copy.mark) copy.mark.emplace().record(copy.stream);
  return *copy.mark;
}

/// @throws Error for a copy of which nothing can be known here
void refuse_unknown(const PyCopy& copy) {
  if (copy.progress == nullptr) return;
  if (copy.progress->is_captured)
    refuse_value("the copy was captured: it is complete when its graph has run");
}

/// Waits at most that long, and tells whether the copy is complete. Requires: not the interpreter's
/// lock. @throws what failed
[[nodiscard]] bool wait_some(PyCopy& copy, std::chrono::steady_clock::duration time) {
  if (copy.progress == nullptr) {
    if (!copy.is_left_to_stream) return true;
    // Of a stream that has ended nobody can ask but the device.
    const bool can_ask = copy.stream.is_valid() || copy.mark.has_value();
    constexpr std::chrono::steady_clock::duration least = std::chrono::milliseconds{2};
    const bool is_complete = can_ask ? mark_of(copy).synchronize_for(time)
                                     : copy.device.synchronize_for(std::max(time, least));
    if (is_complete) copy.is_left_to_stream = false;
    return is_complete;
  }
  if (!copy.progress->wait_for(time)) {
    if (copy.progress->born != forks())
      runnel::detail::throw_error(runnel::errc::forked, "wait for a copy",
                                  "the parent's threads, which complete it, are not in this "
                                  "process");
    return false;
  }
  if (const std::exception_ptr error = copy.progress->error()) std::rethrow_exception(error);
  return true;
}

[[nodiscard]] bool is_done(PyCopy& copy) {
  refuse_unknown(copy);
  return unlocked([&] { return wait_some(copy, {}); });
}
[[nodiscard]] bool is_source_done(PyCopy& copy) {
  if (copy.progress == nullptr) return true;
  const runnel::detail::StagedSources& sources = copy.progress->sources;
  if (sources.bytes != 0 && copy.progress->born == forks() && sources.are_read()) return true;
  return is_done(copy);
}

void bind_as_text(nb::class_<PyCopy>& type) {
  type.def(
          "__eq__",
          [](nb::handle self, nb::handle other) {
            if (self.is(other)) return true;
            nb::object name = nb::borrow(other);
            if (nb::isinstance<PyCopy>(other))
              name = nb::borrow(name_of(nb::cast<const PyCopy&>(other).result));
            const int is_equal = PyObject_RichCompareBool(
                name_of(nb::cast<const PyCopy&>(self).result).ptr(), name.ptr(), Py_EQ);
            if (is_equal < 0) throw nb::python_error();
            return is_equal != 0;
          },
          nb::arg("other").none(), nb::sig("def __eq__(self, other: object) -> bool"))
      .def("__hash__", [](const PyCopy& self) { return PyObject_Hash(name_of(self.result).ptr()); })
      .def("__str__", [](const PyCopy& self) { return nb::borrow<nb::str>(name_of(self.result)); })
      .def("__repr__", [](const PyCopy& self) { return nb::repr(name_of(self.result)); })
      .def(
          "__format__",
          [](const PyCopy& self, nb::str how) {
            return nb::borrow<nb::str>(name_of(self.result).attr("__format__")(how));
          },
          nb::arg("spec"));
}

}  // namespace

void when_complete(PyCopy& copy, Progress::Done done) {
  if (copy.progress != nullptr) return copy.progress->when_complete(std::move(done));
  if (!copy.is_left_to_stream) return done(nullptr);
  mark_of(copy).on_complete(
      [done = std::move(done)](const runnel::Outcome& outcome) { done(outcome.error()); });
}

void bind_handles(nb::module_& module) {
  nb::class_<PyCopy> type{
      module, "Copy", nb::is_weak_referenceable(),
      "What ``copy()`` returns. It is equal to, and printed as, the word for what was done: "
      "``'direct'`` or\n"
      "``'staged'`` (enqueued), ``'inlined'`` (small), ``'blocked'`` (the caller was held), "
      "``'nothing'``. And it\n"
      "tells how far the copy is. ``await`` returns when it is complete. It keeps no array."};
  type.def("done", &is_done,
           "Whether the copy is complete. Never waits. Raises what failed, as ``wait()``.")
      .def("source_done", &is_source_done,
           "Whether the source may be written again: at once where a small copy has read it, for "
           "a large\n"
           "copy from memory that is not pinned once that has been read, and else when the copy "
           "is complete.\n"
           "Never waits.")
      .def(
          "wait",
          [](PyCopy& copy, std::optional<double> timeout) {
            refuse_unknown(copy);
            wait_in_slices(timeout, "the copy is not complete",
                           [&](auto time) { return wait_some(copy, time); });
          },
          nb::arg("timeout") = nb::none(),
          "Waits until the copy is complete, at most ``timeout`` seconds, and not for later work "
          "of the\n"
          "stream. Raises TimeoutError, KeyboardInterrupt at Ctrl-C, and what the stream's "
          "``synchronize()``\n"
          "would have raised then, which it still raises.");
  bind_as_text(type);
  bind_completions_of(type);
}

}  // namespace binding
