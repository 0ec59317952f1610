// SPDX-License-Identifier: Apache-2.0
#include "engine.hpp"

#include <algorithm>
#include <thread>

#include "graph.hpp"
#include "settings.hpp"

namespace standin {

Engine& engine() {
  static Engine& instance = *new Engine;
  return instance;
}

bool& inside_host_function() {
  thread_local bool inside = false;
  return inside;
}

Engine::Engine()
    : scheduler_{settings().scheduler},
      patience_{settings().patience_ms},
      random_{static_cast<std::mt19937::result_type>(settings().seed)} {}

Engine::Channel* Engine::enter_channel(const Stream& stream) {
  const Settings& s = settings();
  if (s.channels == 0) return nullptr;
  Channel& channel = channels_[{stream.device, stream.id % s.channels}];
  Lock lock{mutex, std::adopt_lock};
  demand(channel.pending >= s.channel_depth ? channel.last : nullptr);
  done.wait(lock, [&] { return channel.pending < s.channel_depth; });
  static_cast<void>(lock.release());
  return &channel;
}

namespace {
void order(const OperationPtr& later, const OperationPtr& earlier) {
  if (earlier == nullptr || earlier->done) return;
  later->before.push_back(earlier);
  earlier->after.push_back(later);
}
}  // namespace

void Engine::prepare(Operation& operation, int device) {
  operation.number = next_number_++;
  operation.device = device;
  operation.due = Clock::now();
  if (scheduler_ == Scheduler::lazy) operation.due += patience_;
  if (scheduler_ == Scheduler::reverse) operation.due += std::chrono::milliseconds{2};
  if (scheduler_ == Scheduler::random) operation.due += std::chrono::microseconds{random_() % 300};
}

void Engine::enqueue(OperationPtr operation) {
  operation->unmet = operation->before.size();
  pending_.emplace(operation->number, operation);
  if (operation->unmet == 0) {
    ready_.push_back(std::move(operation));
    wake();
  }
}

void Engine::submit(Stream& stream, OperationPtr operation, const std::vector<OperationPtr>& also) {
  if (stream.capturing()) {
    add_node(stream, std::move(*operation));
    return;
  }
  Channel* const channel = enter_channel(stream);
  prepare(*operation, stream.device);
  operation->stream = stream.id;
  DeviceOrder& device_order = order_[stream.device];
  order(operation, stream.last);
  for (const OperationPtr& earlier : also) order(operation, earlier);
  if (stream.kind == StreamKind::legacy) {
    for (const auto& [id, last] : device_order.blocking) order(operation, last);
    // later work is ordered after them through the legacy stream's last operation
    device_order.blocking.clear();
    device_order.legacy = operation;
  } else if (stream.kind == StreamKind::blocking) {
    order(operation, device_order.legacy);
    stream.legacy_before = device_order.legacy;
    device_order.blocking[stream.id] = operation;
  }
  if (channel != nullptr) {
    order(operation, channel->last);
    channel->last = operation;
    operation->counted = &channel->pending;
    ++channel->pending;
  }
  stream.last = operation;
  if (operation->kind != Kind::mark) stream.last_work = operation;
  if (operation->kind == Kind::host_function) stream.host_function = operation;
  enqueue(std::move(operation));
}

void Engine::submit_unordered(int device, uint64_t stream, OperationPtr operation,
                              const std::vector<OperationPtr>& before) {
  prepare(*operation, device);
  operation->stream = stream;
  for (const OperationPtr& earlier : before) order(operation, earlier);
  enqueue(std::move(operation));
}

void Engine::demand(const OperationPtr& operation) {
  std::vector<OperationPtr> open{operation};
  bool found = false;
  while (!open.empty()) {
    const OperationPtr next = std::move(open.back());
    open.pop_back();
    if (next == nullptr || next->done || next->demanded) continue;
    next->demanded = true;
    found = found || next->unmet == 0;
    open.insert(open.end(), next->before.begin(), next->before.end());
  }
  if (found) wake();
}

void Engine::wait(Lock& lock, const OperationPtr& operation) {
  if (operation == nullptr) return;
  demand(operation);
  done.wait(lock, [&] { return operation->done; });
}

void Engine::wait_for_device(Lock& lock, int device) {
  std::vector<OperationPtr> all;
  for (const auto& [number, operation] : pending_) {
    if (device < 0 || operation->device == device) all.push_back(operation);
  }
  for (const OperationPtr& operation : all) wait(lock, operation);
}

std::vector<OperationPtr> Engine::legacy_tails(int device) const {
  std::vector<OperationPtr> tails;
  const auto order = order_.find(device);
  if (order == order_.end()) return tails;
  if (order->second.legacy != nullptr) tails.push_back(order->second.legacy);
  for (const auto& [id, last] : order->second.blocking) tails.push_back(last);
  return tails;
}

bool Engine::legacy_is_idle(int device) const {
  const auto tails = legacy_tails(device);
  return std::ranges::all_of(tails, [](const OperationPtr& operation) { return operation->done; });
}

bool Engine::untouched_by_pending(Range range) const {
  return std::ranges::none_of(pending_, [&](const auto& entry) {
    const Operation& operation = *entry.second;
    return operation.opaque || std::ranges::any_of(operation.touches, [&](Range other) {
             return overlap(range, other);
           });
  });
}

void Engine::drop_host_functions() {
  for (const auto& [number, operation] : pending_) {
    if (operation->kind == Kind::host_function && !operation->begun) operation->run = nullptr;
  }
}

void Engine::wake() {
  if (idle_ > 0) {
    work_.notify_one();
    return;
  }
  // One new thread at a time: it calls wake() itself if it leaves something ready. Without this,
  // each operation that becomes ready before the new thread has the mutex would start another one,
  // hundreds on a busy machine.
  if (starting_) return;
  std::thread{[this] { work(); }}.detach();
  starting_ = true;
}

bool Engine::runnable(const Operation& operation, Clock::time_point now) const {
  const size_t at_a_time = settings().host_functions;
  if (operation.kind == Kind::host_function && at_a_time != 0 && host_functions_ >= at_a_time)
    return false;
  if (operation.due <= now) return true;
  return operation.demanded && scheduler_ != Scheduler::random;
}

size_t Engine::choose(Clock::time_point now, Clock::time_point& next) {
  std::vector<size_t> found;
  for (size_t i = 0; i < ready_.size(); ++i) {
    if (runnable(*ready_[i], now)) {
      found.push_back(i);
    } else if (ready_[i]->due > now) {
      next = std::min(next, ready_[i]->due);
    }
  }
  if (found.empty()) return ready_.size();
  if (scheduler_ == Scheduler::random) return found[random_() % found.size()];
  const auto older = [&](size_t a, size_t b) { return ready_[a]->number < ready_[b]->number; };
  return scheduler_ == Scheduler::reverse ? *std::ranges::max_element(found, older)
                                          : *std::ranges::min_element(found, older);
}

// Each running operation has a thread of its own, so a host function that blocks does not delay
// other streams.
void Engine::work() {
  constexpr int idle_at_most = 4;
  Lock lock{mutex};
  starting_ = false;
  for (;;) {
    Clock::time_point next = Clock::now() + std::chrono::hours{1};
    const size_t i = choose(Clock::now(), next);
    if (i == ready_.size()) {
      if (idle_ >= idle_at_most) return;
      ++idle_;
      work_.wait_until(lock, next);
      --idle_;
      continue;
    }
    const OperationPtr operation = ready_[i];
    ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(i));
    operation->begun = true;
    if (operation->kind == Kind::host_function) ++host_functions_;
    if (!ready_.empty()) wake();
    lock.unlock();
    const Clock::time_point begin = Clock::now();
    if (operation->run) {
      inside_host_function() = operation->kind == Kind::host_function;
      operation->run();
      inside_host_function() = false;
      operation->run = nullptr;
    }
    tell_watcher(*operation, begin);
    lock.lock();
    if (operation->kind == Kind::host_function) --host_functions_;
    complete(*operation);
  }
}

void Engine::tell_watcher(const Operation& operation, Clock::time_point begin) const {
  const StandinWatcher told = watcher.load();
  const bool is_work = operation.kind == Kind::copy || operation.kind == Kind::fill ||
                       operation.kind == Kind::kernel;
  if (told == nullptr || !is_work) return;
  const auto nanoseconds = [](Clock::time_point time) {
    return static_cast<uint64_t>(std::chrono::nanoseconds{time.time_since_epoch()}.count());
  };
  const StandinWork work{
      operation.kind == Kind::kernel ? 'k' : (operation.kind == Kind::copy ? 'c' : 'f'),
      operation.name,
      operation.device,
      operation.stream,
      operation.bytes,
      nanoseconds(begin),
      nanoseconds(Clock::now())};
  told(&work);
}

void Engine::complete(Operation& operation) {
  operation.done = true;
  if (operation.counted != nullptr) --*operation.counted;
  operation.finished = Clock::now();
  operation.before.clear();
  for (OperationPtr& later : operation.after) {
    if (--later->unmet == 0) {
      ready_.push_back(std::move(later));
      wake();
    }
  }
  operation.after.clear();
  pending_.erase(operation.number);
  done.notify_all();
}

}  // namespace standin
