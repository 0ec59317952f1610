// SPDX-License-Identifier: Apache-2.0
#include "handles.hpp"

#include "arguments.hpp"
#include "completions.hpp"
#include "waits.hpp"

#include <runnel/error.hpp>
#include <runnel/keep.hpp>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace binding {

namespace {

/// What is under way, by its stream's id. Who completes it takes it out before it ends.
struct UnderWay {
  std::mutex mutex;
  std::map<std::uint64_t, Link> streams;
  std::size_t most = 16;  // streams, before those are dropped that have nothing
  std::atomic<std::size_t> count = 0;
};
[[nodiscard]] UnderWay& under_way() {
  static auto* const made = new UnderWay;  // threads may outlive static objects
  return *made;
}

/// Requires: the mutex.
void take_out(Link& link) {
  link.older->newer = link.newer;
  link.newer->older = link.older;
  link.newer = link.older = &link;
  --under_way().count;
}

/// Whether the library refuses the question here, as in a host function.
[[nodiscard]] bool is_refused(const runnel::Error& error) noexcept {
  return error.code() == runnel::errc::not_permitted || error.code() == runnel::errc::capture;
}

}  // namespace

void give_back() noexcept {
  UnderWay& known = under_way();
  if (known.count.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock{known.mutex};
  for (auto& [stream, ring] : known.streams) {
    // Threads that share a stream may have entered in another order than their copies.
    constexpr int few = 8;
    int pending = 0;
    for (Link* each = ring.newer; each != &ring && pending < few;) {
      auto& progress = static_cast<Progress&>(*std::exchange(each, each->newer));
      if (progress.try_give_back())
        take_out(progress);
      else
        ++pending;
    }
  }
}

void hold_under_way(bool is_held, bool is_child) {
  if (is_held) return under_way().mutex.lock();
  if (is_child) {
    new std::map{std::exchange(under_way().streams, {})};  // the parent's
    under_way().count = 0;
  }
  under_way().mutex.unlock();
}

Progress::Progress() noexcept
    : Completion{[](Completion& self, const runnel::Outcome& outcome) {
                   static_cast<Progress&>(self).complete(outcome.error());
                 },
                 [](Completion* self) noexcept {
                   const auto last = std::move(static_cast<Progress*>(self)->self_);
                 }} {}

void Progress::follow(const std::shared_ptr<Progress>& progress, runnel::StreamRef stream) {
  progress->self_ = progress;
  runnel::detail::submit_completion(stream, progress->mark_, progress.get());
  // Not before: a mark that is not recorded says that all is complete.
  progress->enter(stream);
  if (progress->is_complete_) progress->leave();
}

void Progress::enter(runnel::StreamRef stream) {
  UnderWay& known = under_way();
  const std::lock_guard lock{known.mutex};
  if (known.streams.size() > known.most) {
    std::erase_if(known.streams, [](const auto& each) { return each.second.is_alone(); });
    known.most = 16 + 2 * known.streams.size();
  }
  newer = &known.streams[stream.id()];
  older = std::exchange(newer->older, this);
  older->newer = this;
  ++known.count;
}

void Progress::leave() {
  const std::lock_guard lock{under_way().mutex};
  if (!is_alone()) take_out(*this);
}

void Progress::complete(const std::exception_ptr& error) {
  std::vector<Done> told;
  {
    const std::lock_guard lock{mutex_};
    arrays.reset();
    error_ = error;
    is_complete_ = true;
    told.swap(waiting_);
  }
  leave();
  changed_.notify_all();
  for (const Done& each : told) each(error);
}

bool Progress::wait_for(std::chrono::steady_clock::duration time) {
  if (!is_complete_) try {
      if (!mark_.synchronize_for(time)) return false;
      give_back();
    } catch (const runnel::Error& error) {
      if (!is_refused(error)) throw;
      std::unique_lock lock{mutex_};
      if (!changed_.wait_for(lock, time, [this] { return is_complete_.load(); })) return false;
    }
  const std::lock_guard lock{mutex_};
  const std::exception_ptr error = is_complete_ ? error_ : runnel::detail::failure_of(*this);
  if (error != nullptr) std::rethrow_exception(error);
  return true;
}

bool Progress::try_give_back() noexcept {
  try {
    if (!is_complete_ && !mark_.query()) return false;
  } catch (const runnel::Error&) {  // the library's thread tells then
    return false;
  }
  give_back();
  return true;
}

void Progress::give_back() {
  const std::lock_guard lock{mutex_};
  arrays.reset();
}

void Progress::when_complete(Done done) {
  if (!is_complete_) {
    refuse_child(born);
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

}  // namespace

std::shared_ptr<Progress> keep_arrays(runnel::StreamRef stream, Kept& arrays) {
  auto progress = std::make_shared<Progress>();
  progress->arrays = std::move(arrays);
  try {
    if (stream.is_capturing()) {
      progress->is_captured = true;
      runnel::keep(stream, EndsWithGraph{progress});
    } else {
      Progress::follow(progress, stream);
    }
  } catch (...) {
    std::error_code code;
    stream.synchronize(code);
    throw;
  }
  return progress;
}

namespace {

[[nodiscard]] nb::str name_of(const PyCopy& copy) { return nb::str{name(copy.result)}; }

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
  return copy.progress->wait_for(time);
}

[[nodiscard]] bool is_done(PyCopy& copy) {
  refuse_unknown(copy);
  return ask([&] { return wait_some(copy, {}); });
}
[[nodiscard]] bool is_source_done(PyCopy& copy) {
  if (copy.progress == nullptr) return true;
  const runnel::detail::StagedSources& sources = copy.progress->sources;
  if (sources.bytes != 0 && copy.progress->born == forks() && sources.are_read()) return true;
  return is_done(copy);
}

void bind_as_text(nb::class_<PyCopy>& type) {
  type.def_prop_ro(
          "kind", &name_of,
          "The word for what was done: ``'direct'`` or ``'staged'`` (enqueued), ``'inlined'`` "
          "(small),\n"
          "``'blocked'`` (the caller was held), ``'nothing'``.")
      .def("__str__", &name_of)
      .def("__repr__", [](const PyCopy& self) { return nb::repr(name_of(self)); })
      .def(
          "__format__",
          [](const PyCopy& self, nb::handle how) {
            return nb::borrow<nb::str>(name_of(self).attr("__format__")(how));
          },
          nb::arg("spec").none(), nb::sig("def __format__(self, spec: str) -> str"));
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
      "What ``copy()`` returns: it tells how far the copy is, and is printed as the word for what "
      "was done.\n"
      "``await`` returns when the copy is complete. It keeps no array, and is equal to no other."};
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
          [](PyCopy& copy, Seconds timeout) {
            refuse_unknown(copy);
            wait_in_slices(timeout.of("timeout"), "the copy is not complete",
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
