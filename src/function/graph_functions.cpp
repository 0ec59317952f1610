// SPDX-License-Identifier: Apache-2.0
#include "function/graph_functions.hpp"

#include "base/announce.hpp"
#include "base/process.hpp"
#include "device/scoped_device.hpp"
#include "slot/capture.hpp"

#include <runnel/detail/host_function.hpp>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <unordered_map>

namespace runnel::inline RUNNEL_ABI::detail {

GraphFunctions::~GraphFunctions() {
  // Runs that never happened, because the device was lost.
  end_runs(pending_runs_.load(std::memory_order_relaxed),
           pending_writers_.load(std::memory_order_relaxed));
}

void GraphFunctions::end_runs(size_t runs, size_t writers) noexcept {
  pending_runs_.fetch_sub(runs, std::memory_order_relaxed);
  pending_writers_.fetch_sub(writers, std::memory_order_relaxed);
  host_writers().end_functions(writers);
  counters.graph_runs.fetch_sub(runs, std::memory_order_release);
}

GraphFunctions::SharedFunction GraphFunctions::share(OwnedFunction function) {
  struct End {
    void operator()(HostFunction* ended) const noexcept {
      const bool is_writer = ended->is_writer;
      ended->destroy(ended);
      if (is_writer) host_writers().end_functions(1);
      count_down(counters.graph_functions);
    }
  };
  count_up(counters.graph_functions);
  count_ended(Count::ended_functions);  // A graph's function is not an enqueued one.
  return SharedFunction{function.release(), End{}};
}

void GraphFunctions::capture(const StreamCall& call, OwnedFunction function, bool is_writer) {
  // A refused function is destroyed without the lock: its destructor may use the stream.
  std::list<Function> fresh;
  Function& added = fresh.emplace_back(share(std::move(function)), *this, is_writer);
  const std::lock_guard lock{capturing_};
  check(backend::launch_host_func(call.handle(), &GraphFunctions::run, &added), call.operation());
  functions_.splice(functions_.end(), fresh);
  writers_ += is_writer ? 1 : 0;
}

namespace {
[[nodiscard]] backend::status add_node(const StreamCall& call, const EventUse& use) noexcept {
  return use.records ? backend::capture_event_record(use.event.get(), call.handle())
                     : backend::capture_event_wait(call.handle(), use.event.get());
}
}  // namespace

void GraphFunctions::capture(const StreamCall& call, EventUse use) {
  const std::lock_guard lock{capturing_};
  const backend::status s = add_node(call, events_.emplace_back(std::move(use)));
  if (s == backend::ok) return;
  events_.pop_back();
  throw_status(s, call.operation());
}

void GraphFunctions::emit_events(const StreamCall& call) const noexcept {
  for (const EventUse& each : events_)
    call.emit_event(each.records ? OperationKind::event_recorded : OperationKind::event_waited,
                    each.event.get(), true);
}

void GraphFunctions::keep(Kept* object) {
  const std::lock_guard lock{capturing_};
  kept_.push_back(std::make_shared<OwnedObject>());
  *kept_.back() = OwnedObject{object};
}

/// Other code has launched the native graph. An exception goes to the stream of the capture.
GraphFunctions::Launches GraphFunctions::launched_elsewhere(const HostFunction* function) noexcept {
  if (function == nullptr) return {};
  return {.stream = {static_cast<Slot*>(function->slot), function->id},
          .label = function->label,
          .epoch = after_all_completions};
}

/// Begins the next run of the function.
GraphFunctions::Run GraphFunctions::begin_run(Function& function) noexcept {
  const std::lock_guard lock{lock_};
  sync::happens_after(&function);
  const uint64_t number = function.runs.load(std::memory_order_relaxed) + 1;
  const auto later = std::find_if(launches_.begin(), launches_.end(),
                                  [&](const Launches& each) { return each.first > number; });
  const bool is_own = number <= count_ && std::prev(later)->is_running();
  if (!is_own) return {launched_elsewhere(function.called.get()), function.called};
  function.runs.store(number, std::memory_order_relaxed);
  return {*std::prev(later), function.called};
}

/// The runtime's callback. No exception may leave it.
void GraphFunctions::run(void* data) noexcept {
  Function& called = *static_cast<Function*>(data);
  bool ends_run = false;
  {
    auto [launch, function] = called.graph.begin_run(called);
    ends_run = launch.first != 0 && launch.span == Span::from_call;
    const InHostFunction within{0};
    if (function != nullptr) call(*function, launch);
    function = nullptr;
    sync::happens_before(&called);
  }
  if (ends_run) called.graph.end_runs(1, called.is_writer ? 1 : 0);
}

void GraphFunctions::call(HostFunction& function, const Launches& launch) noexcept {
  HostFunction of_this_launch{function};
  of_this_launch.slot = launch.stream.slot;
  of_this_launch.id = launch.stream.id;
  of_this_launch.label = launch.label;
  of_this_launch.epoch = launch.epoch;
  ScopedEvent event;
  if (function.operation != 0 && is_observed()) [[unlikely]]
    event.begin(about_run(of_this_launch));
  call_as(of_this_launch, function, event);
}

void GraphFunctions::discard() noexcept {
  for (Function& each : functions_) {
    SharedFunction called;  // destroyed outside the lock
    const std::lock_guard lock{lock_};
    called.swap(each.called);
  }
}

void GraphFunctions::capture(const StreamCall& call, GraphFunctions& child, native::graph graph) {
  std::list<Function> fresh;
  // The functions of the child, and their copies in this graph.
  using Copies = std::unordered_map<const void*, Function*>;
  Copies copies;
  for (Function& each : child.functions_)
    copies[&each] = &fresh.emplace_back(each.called, *this, each.is_writer);
  const auto relink = [](void* context, void (*function)(void*), void* data) noexcept -> void* {
    return function == &GraphFunctions::run ? static_cast<const Copies*>(context)->at(data) : data;
  };
  const std::lock_guard lock{capturing_};
  const size_t events = events_.size();
  events_.reserve(events + child.events_.size());
  for (const EventUse& each : child.events_) events_.push_back({each.event.share(), each.records});
  std::list<std::shared_ptr<OwnedObject>> kept{child.kept_};
  const backend::status s = backend::capture_graph(call.handle(), graph, relink, &copies);
  if (s != backend::ok) {
    events_.erase(events_.begin() + static_cast<std::ptrdiff_t>(events), events_.end());
    throw_status(s, call.operation());
  }
  functions_.splice(functions_.end(), fresh);
  writers_ += child.writers_;
  kept_.splice(kept_.end(), kept);
}

/// Requires: the lock is held.
void GraphFunctions::forget_old_launches() noexcept {
  // Each function has begun its run for launch `begun`, and may be about to look up the stream of
  // that launch.
  uint64_t begun = count_;
  for (const Function& each : functions_)
    begun = std::min(begun, each.runs.load(std::memory_order_relaxed));
  while (launches_.size() > 1 && std::next(launches_.begin())->first <= begun &&
         launches_.front().is_past())
    launches_.pop_front();
}

GraphFunctions::Launches& GraphFunctions::begin_launch(StreamKey stream) {
  const uint64_t epoch = stream.slot->timeline.epoch();
  const std::lock_guard lock{lock_};
  const Launches launch{this,   count_ + 1,
                        stream, host_function_label,
                        epoch,  is_shared() ? Span::not_reached : Span::from_call};
  if (launches_.empty() || !launches_.back().has_same(launch)) {
    forget_old_launches();
    launches_.push_back(launch);
  }
  ++count_;
  pending_runs_.fetch_add(functions_.size(), std::memory_order_relaxed);
  pending_writers_.fetch_add(writers_, std::memory_order_relaxed);
  counters.graph_runs.fetch_add(functions_.size(), std::memory_order_relaxed);
  host_writers().begin_functions(writers_);
  return launches_.back();
}

void GraphFunctions::undo_launch() noexcept {
  const std::lock_guard lock{lock_};
  if (launches_.back().first == count_)
    undone_.splice(undone_.end(), launches_, std::prev(launches_.end()));
  --count_;
  end_runs(functions_.size(), writers_);
}

/// The stream has reached the launch.
void GraphFunctions::reach(void* data) noexcept {
  auto& launch = *static_cast<Launches*>(data);
  const std::lock_guard lock{launch.graph->lock_};
  launch.span = Span::reached;
}

/// The stream has passed the launch, so that each function has had its run.
void GraphFunctions::pass(void* data) noexcept {
  auto& launch = *static_cast<Launches*>(data);
  GraphFunctions& graph = *launch.graph;
  const std::lock_guard lock{graph.lock_};
  for (Function& each : graph.functions_)
    if (each.runs.load(std::memory_order_relaxed) < launch.first)
      each.runs.store(launch.first, std::memory_order_relaxed);
  launch.span = Span::passed;
  graph.end_runs(graph.functions_.size(), graph.writers_);
}

void GraphFunctions::launch(const StreamCall& call, native::executable_graph executable) {
  const BlockingEnqueue enqueued;
  if (functions_.empty()) return call.check(backend::graph_launch(executable, call.handle()));
  Launches& launch = begin_launch(key_of(call.slot()));
  const bool is_marked = launch.span != Span::from_call;
  backend::status s =
      is_marked ? backend::launch_host_func(call.handle(), reach, &launch) : backend::ok;
  const bool is_reached = s == backend::ok && is_marked;
  if (s == backend::ok) s = backend::graph_launch(executable, call.handle());
  // Without this mark the runs end with the graph, and copies wait for the stream's order until
  // then.
  if (is_reached) succeeded_or_forget(backend::launch_host_func(call.handle(), pass, &launch));
  if (s == backend::ok) return;
  if (!is_reached) undo_launch();
  call.check(s);
}

std::shared_ptr<GraphFunctions> functions_of_capture(const StreamCall& call) {
  uint64_t number = 0;
  call.check(backend::stream_capture_number(call.handle(), number));
  if (number == 0) throw_broken_capture(call.operation());
  return find_capture(number).functions;
}

namespace {

[[noreturn]] void throw_without_owner(const StreamCall& call, const char* what) {
  throw_formatted(
      errc::capture, call.operation(), backend::ok,
      "the capture was not begun by runnel::capture(), so that no Graph would own the %s", what);
}

/// Makes the graph that other code captures own an object, as one of its owners.
void give_to_graph(const StreamCall& call, std::shared_ptr<void> object, const char* what) {
  const auto destroy = [](void* owner) {
    // The runtime calls this where it must not be called itself.
    const bool outer = std::exchange(in_host_function, true);
    delete static_cast<std::shared_ptr<void>*>(owner);
    in_host_function = outer;
  };
  const backend::status s =
      backend::capture_owner(call.handle(), new std::shared_ptr<void>{std::move(object)}, destroy);
  if (s == backend::ok) return;
  if (backend::classify(s) != errc::not_supported) throw_status(s, call.operation());
  backend::forget_error(s);
  throw_without_owner(call, what);
}

}  // namespace

std::shared_ptr<GraphFunctions> require_own_capture(const StreamCall& call, const char* what) {
  std::shared_ptr<GraphFunctions> functions = functions_of_capture(call);
  if (functions == nullptr) throw_without_owner(call, what);
  return functions;
}

void add_to_capture(const StreamCall& call, OwnedFunction function, bool is_writer) {
  if (const auto graph = functions_of_capture(call))
    return graph->capture(call, std::move(function), is_writer);
  function->operation = 0;
  function->epoch = after_all_completions;
  const GraphFunctions::SharedFunction shared = GraphFunctions::share(std::move(function));
  // The library does not see the launches: it may run as long as the graph lives.
  if (is_writer) host_writers().begin_functions(1);
  shared->is_writer = is_writer;
  give_to_graph(call, shared, "function");
  call.check(backend::launch_host_func(call.handle(), run_again, shared.get()));
}

void add_to_capture(const StreamCall& call, EventUse use) {
  if (const auto graph = functions_of_capture(call)) return graph->capture(call, std::move(use));
  const auto shared = std::make_shared<EventUse>(std::move(use));
  give_to_graph(call, shared, "event");
  call.check(add_node(call, *shared));
}

void add_to_capture(const StreamCall& call, Kept* object) {
  if (const auto graph = functions_of_capture(call)) return graph->keep(object);
  const auto owned = std::make_shared<OwnedObject>();
  give_to_graph(call, owned, "object");
  owned->reset(object);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
