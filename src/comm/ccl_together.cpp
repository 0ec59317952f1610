// SPDX-License-Identifier: Apache-2.0
#include "comm/together.hpp"

#include <runnel/error.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

using Item = Together::Operations::Item;

/// The operations of one baton. They run in the first one's stream, because the library posts them
/// all before any of them has an event that another stream could wait for.
struct Lane {
  StreamRef leader;
  std::vector<StreamRef> others = {};
  std::optional<Baton::Turn> turn = {};
};
/// In the order of the batons' addresses, in which all threads take their turns.
using Lanes = std::map<Baton*, Lane, std::less<>>;

[[nodiscard]] Lanes lanes_of(const std::vector<Item>& items) {
  Lanes lanes;
  for (const Item& item : items) {
    if (item.is_captured) continue;
    Lane& lane = lanes.try_emplace(&item.state->baton(), Lane{item.stream}).first->second;
    if (lane.leader != item.stream &&
        std::find(lane.others.begin(), lane.others.end(), item.stream) == lane.others.end())
      lane.others.push_back(item.stream);
  }
  return lanes;
}

[[nodiscard]] StreamRef stream_of(const Item& item, const Lanes& lanes) {
  return item.is_captured ? item.stream : lanes.at(&item.state->baton()).leader;
}

/// In the order of the communicators' addresses, in which all threads take these locks.
[[nodiscard]] std::vector<std::unique_lock<sync::Mutex>> lock_calls(
    const std::vector<Item>& items) {
  std::vector<CclState*> states;
  for (const Item& item : items) states.push_back(item.state.get());
  std::sort(states.begin(), states.end(), std::less<>{});
  states.erase(std::unique(states.begin(), states.end()), states.end());
  std::vector<std::unique_lock<sync::Mutex>> locks;
  for (CclState* const each : states) locks.emplace_back(each->calls);
  return locks;
}

/// @throws the error of the library. A communicator whose operation was not posted is broken, as
/// the others are: their ranks wait for it.
void post_all(const std::vector<Item>& items, const Lanes& lanes) {
  auto locks = lock_calls(items);
  for (const Item& item : items)
    if (item.state->ccl_communicator == nullptr) item.state->check();
  const ccl::status posted = in_group([&] {
    ccl::status status = ccl::ok;
    for (const Item& item : items)
      if (status == ccl::ok) status = item.state->post(stream_of(item, lanes), item.steps);
    return status;
  });
  locks.clear();
  for (const Item& item : items)
    item.state->note_call(posted, operation_of(item.steps.front().verb));
  if (posted != ccl::ok) items.back().state->check();
}

void let_others_follow(const Lanes& lanes) {
  for (const auto& [baton, lane] : lanes)
    for (const StreamRef other : lane.others) other.wait_stream(lane.leader);
}

/// As post_all(). After an error the library may have enqueued some operations, which use the
/// others' memory until they are aborted.
void post_all_or_follow(const std::vector<Item>& items, const Lanes& lanes) try {
  post_all(items, lanes);
} catch (...) {
  try {
    let_others_follow(lanes);
  } catch (const std::exception&) {  // the first error says more
  }
  throw;
}

/// The operations are enqueued, but not all that has to follow them. The ranks wait for each other,
/// so that all are ended.
void break_all(const std::vector<Item>& items, const char* reason) {
  std::vector<std::shared_ptr<CclState>> broken;
  for (const Item& item : items) {
    item.state->break_with(errc::communicator_broken, operation_of(item.steps.front().verb),
                           {"a part could not be enqueued: ", reason});
    broken.push_back(item.state);
  }
  abort_in_background(broken);
}

thread_local constinit Together::Operations* operations_of_this_thread = nullptr;

}  // namespace

bool is_in_together() noexcept { return operations_of_this_thread != nullptr; }
Together::Operations* Together::Operations::of_this_thread() noexcept {
  return operations_of_this_thread;
}
void Together::Operations::set_of_this_thread(Operations* operations) noexcept {
  operations_of_this_thread = operations;
}

Together::Together() : operations_{std::make_unique<Operations>()} {
  if (is_in_together()) refuse_nested_together();
  Operations::set_of_this_thread(operations_.get());
}

Together::~Together() {
  if (operations_ != nullptr) Operations::set_of_this_thread(nullptr);
}

void Together::enqueue() {
  Operations::set_of_this_thread(nullptr);
  const auto operations = std::exchange(operations_, nullptr);
  std::vector<Item>& items = operations->items;
  if (items.empty()) return;
  for (Item& item : items) item.is_captured = item.stream.is_capturing();
  Lanes lanes = lanes_of(items);
  for (auto& [baton, lane] : lanes) {
    lane.turn.emplace(*baton, lane.leader);
    for (const StreamRef other : lane.others) lane.leader.wait_stream(other);
  }
  std::vector<std::pair<Watch, StreamRef>> watches;
  for (const Item& item : items) {
    const StreamRef stream = stream_of(item, lanes);
    item.state->note_use(item.stream);
    item.state->note_use(stream);
    if (item.is_captured) continue;
    declare_accesses(*item.state, stream, item.steps);
    watches.emplace_back(begin_watch(*item.state, stream, operation_of(item.steps.front().verb)),
                         stream);
  }
  post_all_or_follow(items, lanes);
  for (auto& [baton, lane] : lanes) lane.turn->end();
  try {
    let_others_follow(lanes);
    for (auto& [watch, stream] : watches) end_watch(std::move(watch), stream);
  } catch (const std::exception& error) {
    break_all(items, error.what());
    throw;
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
