// SPDX-License-Identifier: Apache-2.0
#include "comm/ccl_state.hpp"

#include <runnel/error.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

using Item = Together::Operations::Item;

/// The operations of one serial order. All run on the stream of the first one: the library enqueues
/// them all at once, so there is no event between them for which another stream could wait.
struct OrderedGroup {
  StreamRef leader;
  std::vector<StreamRef> others = {};
  std::unique_ptr<SerialOrder::Entry> entry = {};
};
/// Sorted by address, so that all threads lock the orders in the same sequence.
using OrderedGroups = std::map<SerialOrder*, OrderedGroup, std::less<>>;

[[nodiscard]] OrderedGroups groups_of(const std::vector<Item>& items) {
  OrderedGroups groups;
  for (const Item& item : items) {
    if (item.is_captured) continue;
    OrderedGroup& group =
        groups.try_emplace(&item.state->order(), OrderedGroup{item.stream}).first->second;
    if (group.leader != item.stream &&
        std::ranges::find(group.others, item.stream) == group.others.end())
      group.others.push_back(item.stream);
  }
  return groups;
}

StreamRef stream_of(const Item& item, const OrderedGroups& groups) {
  return item.is_captured ? item.stream : groups.at(&item.state->order()).leader;
}

/// Locks the communicators sorted by address, so that all threads take these locks in the same
/// sequence.
[[nodiscard]] std::vector<std::unique_lock<sync::Mutex>> lock_calls(
    const std::vector<Item>& items) {
  std::set<CclState*> states;
  for (const Item& item : items) states.insert(item.state.get());
  std::vector<std::unique_lock<sync::Mutex>> locks;
  for (CclState* const each : states) locks.emplace_back(each->calls);
  return locks;
}

/// @throws the error of the library. All communicators are broken then, also those whose operations
/// were not posted, because the ranks wait for each other
void post_all(const std::vector<Item>& items, const OrderedGroups& groups) {
  auto locks = lock_calls(items);
  for (const Item& item : items)
    if (item.state->ccl_communicator == nullptr) item.state->check();
  const ccl::status posted = in_group(items.size(), [&](size_t i) {
    return items[i].state->post(stream_of(items[i], groups), items[i].steps);
  });
  locks.clear();
  for (const Item& item : items)
    item.state->break_if_failed(posted, operation_of(item.steps.front().verb));
  if (posted != ccl::ok) items.back().state->check();
}

void make_others_wait(const OrderedGroups& groups) {
  for (const auto& [order, group] : groups)
    for (const StreamRef other : group.others) other.wait_stream(group.leader);
}

/// As post_all(). After an error the other streams wait for the leaders, because the library may
/// have enqueued some operations, which use the memory until they are aborted.
void post_all_or_order(const std::vector<Item>& items, const OrderedGroups& groups) try {
  post_all(items, groups);
} catch (...) {
  try {
    make_others_wait(groups);
  } catch (const std::exception&) {  // The first error is more useful.
  }
  throw;
}

/// Called if the operations are enqueued, but not all that must follow them. Breaks all
/// communicators, because the ranks wait for each other.
void break_all(const std::vector<Item>& items, const char* reason) {
  std::vector<std::shared_ptr<CclState>> broken;
  for (const Item& item : items) {
    item.state->break_with(errc::communicator_broken, operation_of(item.steps.front().verb),
                           "a part could not be enqueued: ", reason);
    broken.push_back(item.state);
  }
  abort_in_background(broken);
}

}  // namespace

thread_local constinit Together::Operations* Together::Operations::of_this_thread = nullptr;

bool is_in_together() noexcept { return Together::Operations::of_this_thread != nullptr; }

Together::Together() : operations_{std::make_unique<Operations>()} {
  if (is_in_together()) refuse_nested_together();
  Operations::of_this_thread = operations_.get();
}

Together::~Together() {
  if (operations_ != nullptr) Operations::of_this_thread = nullptr;
}

void Together::enqueue() {
  Operations::of_this_thread = nullptr;
  const auto operations = std::exchange(operations_, nullptr);
  std::vector<Item>& items = operations->items;
  if (items.empty()) return;
  for (Item& item : items) item.is_captured = item.stream.is_capturing();
  OrderedGroups groups = groups_of(items);
  for (auto& [order, group] : groups) {
    group.entry = std::make_unique<SerialOrder::Entry>(*order, group.leader);
    for (const StreamRef other : group.others) group.leader.wait_stream(other);
  }
  std::vector<std::pair<Watch, StreamRef>> watches;
  for (const Item& item : items) {
    const StreamRef stream = stream_of(item, groups);
    item.state->record_stream(item.stream);
    item.state->record_stream(stream);
    if (item.is_captured) continue;
    declare_accesses(*item.state, stream, item.steps);
    watches.emplace_back(begin_watch(*item.state, stream, operation_of(item.steps.front().verb)),
                         stream);
  }
  post_all_or_order(items, groups);
  try {
    make_others_wait(groups);
    for (auto& [watch, stream] : watches) end_watch(std::move(watch), stream);
  } catch (const std::exception& error) {
    break_all(items, error.what());
    throw;
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
