// SPDX-License-Identifier: Apache-2.0
#include "comm/ccl_state.hpp"

#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "base/thrown.hpp"
#include "slot/slots.hpp"

#include <runnel/copy.hpp>
#include <runnel/detail/access.hpp>
#include <runnel/error.hpp>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

using namespace std::chrono_literals;

constexpr const char* splitting = "split a communicator";

/// The library's reason for the error.
[[nodiscard]] ErrorLine reason_of(ccl::status status) noexcept {
  const char* const more = ccl::last_error();
  const bool has_more = *more != '\0';
  ErrorLine reason;
  std::snprintf(reason.chars, sizeof reason.chars, "%s%s%s%s", ccl::error_text(status),
                has_more ? " (" : "", more, has_more ? ")" : "");
  return reason;
}

void check_making(ccl::status status, const char* operation) {
  if (status != ccl::ok) throw_error(errc::communicator_broken, operation, reason_of(status).chars);
}

[[nodiscard]] std::shared_ptr<CclState> take_over(NewCommunicator communicator,
                                                  const CommunicatorOptions& options, Device device,
                                                  int rank, int size) {
  auto state = std::make_shared<CclState>(options, device, communicator.get(), rank, size);
  static_cast<void>(communicator.release());
  register_state(state);
  return state;
}

void require_options_of_ccl(const CommunicatorOptions& options) {
  if (options.checked)
    throw_error(errc::not_supported, making_communicator,
                "operations of NCCL and RCCL run on the device, where nothing compares their "
                "arguments: leave out `checked`");
}

/// What rank 0 sends to the other ranks.
struct SharedId {
  ccl::status status;
  ccl::UniqueId id;
};

[[nodiscard]] std::shared_ptr<CclState> join(const CommunicatorOptions& options,
                                             const SharedId& shared_id, int rank, int size,
                                             const char* operation) {
  check_making(shared_id.status, operation);
  const Device device = Device::current();
  const auto make = [=] {
    const DeviceGuard guard{device};
    ccl::Handle made = nullptr;
    check_making(ccl::init_rank(made, size, shared_id.id, rank), operation);
    return NewCommunicator{made};
  };
  // The library waits for all ranks, without a limit if one of them has failed.
  auto made = options.timeout.count() == 0
                  ? make()
                  : make_within(options.timeout, std::packaged_task<NewCommunicator()>{make});
  if (!made) throw_error(errc::timed_out, operation, late_text(options).c_str());
  auto state = take_over(std::move(*made), options, device, rank, size);
  state->check_call(state->post_connection(), making_communicator);
  state->wait_for_connection({&state, 1});
  return state;
}

}  // namespace

bool has_ccl() noexcept { return true; }

std::shared_ptr<CommunicatorState> make_ccl_state(const World& world,
                                                  const CommunicatorOptions& options) {
  require_options_of_ccl(options);
  if (world.size > 1 && !world.broadcast)
    throw_invalid_argument(making_communicator,
                           "the world has no `broadcast`: mpi::world(), World::from_file() and "
                           "World::from_environment() make one that has");
  static_cast<void>(
      Device::current());  // An error must be thrown before another process waits for this one.
  const RelaxedCapture relaxed;
  SharedId shared_id{};
  if (world.rank == 0) shared_id.status = ccl::make_unique_id(shared_id.id);
  if (world.size > 1) world.broadcast(&shared_id, sizeof shared_id);
  return join(options, shared_id, world.rank, world.size, making_communicator);
}

std::vector<std::shared_ptr<CommunicatorState>> make_ccl_states(
    std::span<const Device> devices, const CommunicatorOptions& options) {
  require_options_of_ccl(options);
  std::vector<int> ordinals;
  for (const Device each : devices) {
    if (std::ranges::find(ordinals, each.ordinal()) != ordinals.end())
      throw_invalid_argument(making_communicator, "a device is named twice");
    ordinals.push_back(each.ordinal());
  }
  if (ordinals.empty()) throw_invalid_argument(making_communicator, "no device is named");
  const DeviceGuard guard{devices.front()};
  const RelaxedCapture relaxed;
  const int size = static_cast<int>(ordinals.size());
  std::vector<ccl::Handle> handles(ordinals.size());
  std::vector<NewCommunicator> made(ordinals.size());
  check_making(ccl::init_all(handles.data(), size, ordinals.data()), making_communicator);
  std::ranges::transform(handles, made.begin(),
                         [](ccl::Handle each) { return NewCommunicator{each}; });
  std::vector<std::shared_ptr<CclState>> states;
  for (size_t i = 0; i < made.size(); ++i)
    states.push_back(take_over(std::move(made[i]), options, devices[i], static_cast<int>(i), size));
  const ccl::status posted =
      in_group(states.size(), [&](size_t i) { return states[i]->post_connection(); });
  for (const auto& each : states) each->break_if_failed(posted, making_communicator);
  states.front()->check();
  try {
    for (const auto& each : states) each->wait_for_connection(states);
  } catch (const std::exception&) {  // A rank that remains alone would wait without a limit.
    for (const auto& each : states)
      each->break_with(errc::communicator_broken, making_communicator,
                       "another rank could not be connected");
    abort_in_background(states);
    throw;
  }
  return {states.begin(), states.end()};
}

CclResources::CclResources(Device device, std::shared_ptr<SerialOrder> own)
    : stream{device},
      number{1, stream},
      own_order{std::move(own)},
      order{own_order != nullptr ? *own_order : order_of_device(device)} {}

CclState::CclState(const CommunicatorOptions& given, Device of, ccl::Handle made, int own_rank,
                   int ranks)
    : CommunicatorState{Engine::ccl, given},
      device{of},
      resources_{std::make_unique<CclResources>(of, own_order)} {
  rank = own_rank;
  size = ranks;
  fill(resources_->stream, resources_->number, 0U);
  ccl_communicator = made;
}

CclState::~CclState() {
  if (release_mode() == Release::never) return;
  resources_->communicator = ccl_communicator.exchange(nullptr);
  if (resources_->communicator != nullptr) destroy_in_background(std::move(resources_));
}

ccl::status CclState::post_connection() const noexcept {
  return post(resources_->stream, {&barrier_step, 1});
}

void CclState::wait_for_connection(std::span<const std::shared_ptr<CclState>> all) {
  const auto begin = sync::Clock::now();
  try {
    while (!resources_->stream.synchronize_for(20ms)) {
      for (const auto& each : all) {
        each->look_for_errors();
        each->check();
      }
      if (is_late(options, begin))
        fail_all(*this, errc::timed_out, making_communicator, late_text(options).c_str());
    }
  } catch (const std::exception& error) {  // The operation may be running.
    break_and_end(errc::communicator_broken, making_communicator,
                  "the ranks could not be connected: ", error.what());
    throw;
  }
  check();
}

void CclState::enqueue(StreamRef stream, std::span<const Exchange> steps) {
  const char* const operation = operation_of(steps.front().verb);
  if (stream.device() != device)
    throw_invalid_argument(operation, "the stream is of another device than the communicator");
  for (const Exchange& step : steps) require_supported(step);
  if (Together::Operations* const all = Together::Operations::of_this_thread) {
    all->items.push_back({self(), stream, {steps.begin(), steps.end()}});
    return;
  }
  const DeviceGuard guard{device};
  const auto post_all = [&] {
    std::unique_lock lock{calls};
    if (ccl_communicator == nullptr) check();
    const ccl::status status = post(stream, steps);
    lock.unlock();
    check_call(status, operation);
  };
  record_stream(stream);
  if (stream.is_capturing()) return post_all();
  const SerialOrder::Entry entry{order(), stream};
  declare_accesses(*this, stream, steps);
  Watch watch = begin_watch(*this, stream, operation);
  post_all();
  end_watch(std::move(watch), stream);
}

void CclState::record_stream(StreamRef stream) {
  const std::lock_guard lock{uses_lock_};
  if (!uses_.empty() && uses_.back() == stream) return;
  const auto found = std::ranges::find(uses_, stream);
  if (found != uses_.end()) return std::swap(*found, uses_.back());
  std::erase_if(uses_, [](StreamRef each) { return !each.is_valid(); });
  uses_.push_back(stream);
}

void CclState::notify_streams(const std::exception_ptr& reason) noexcept {
  const std::lock_guard lock{uses_lock_};
  for (const StreamRef each : uses_)
    keep_failure(Access::slot(each), each.id(), {.exception = reason});
}

void CclState::check_call(ccl::status status, const char* operation) {
  break_if_failed(status, operation);
  if (status != ccl::ok) check();
}

void CclState::break_if_failed(ccl::status status, const char* operation) noexcept {
  if (status == ccl::ok) [[likely]]
    return;
  // If the communicator is broken already, the abort has ended the call, and the error is ignored.
  break_and_end(ccl::classify(status), operation, reason_of(status).chars);
}

void CclState::end_operations() noexcept {
  const std::shared_ptr<CclState> own = self();
  abort_in_background({&own, 1});
}

void CclState::look_for_errors() {
  ccl::status error = ccl::ok;
  {
    const std::unique_lock lock{calls, std::try_to_lock};
    if (!lock.owns_lock() || ccl_communicator == nullptr) return;
    const ccl::status status = ccl::async_error(ccl_communicator, error);
    if (status != ccl::ok) error = status;
  }
  if (error == ccl::ok || ccl::is_in_progress(error)) return;
  fail_all(*this, ccl::classify(error), "run an operation", reason_of(error).chars);
}

/// Returns the objects of all ranks, in the order of the ranks.
template <class T>
std::vector<T> CclState::gather(const T& own) {
  const StreamRef stream = resources_->stream;
  // Pinned memory is not reused before the stream has completed its work, also if a call throws.
  PinnedBuffer<T> sent{1}, received{static_cast<size_t>(size)};
  sent[0] = own;
  DeviceBuffer<T> in{sent.size(), stream}, out{received.size(), stream};
  copy(stream, in, sent);
  const Exchange step = movement(stream, Verb::all_gather, in, out, 0);
  enqueue(stream, {&step, 1});
  copy(stream, received, out);
  stream.synchronize();
  check();  // An aborted operation has received nothing.
  return {received.begin(), received.end()};
}

std::shared_ptr<CommunicatorState> CclState::split(int color, int key) try {
  const DeviceGuard guard{device};
  const RelaxedCapture relaxed;
  struct Choice {
    int color, key;
  };
  const std::vector<Choice> choices = gather(Choice{color, key});
  std::vector<std::pair<int, int>> members;  // Keys and ranks.
  for (int each = 0; each < size; ++each)
    if (const Choice& choice = choices[static_cast<size_t>(each)]; choice.color == color)
      members.emplace_back(choice.key, each);
  std::ranges::sort(members);
  const int first = members.front().second;
  // The first rank of each part creates the id for its part.
  SharedId shared_id{};
  if (first == rank) shared_id.status = ccl::make_unique_id(shared_id.id);
  shared_id = gather(shared_id)[static_cast<size_t>(first)];
  const auto place = std::ranges::find(members, std::pair{key, rank}) - members.begin();
  return join(options, shared_id, static_cast<int>(place), static_cast<int>(members.size()),
              splitting);
} catch (const std::exception& error) {
  // The other ranks have performed a part of the split, so a second attempt would not match.
  if (size > 1)
    break_and_end(errc::communicator_broken, splitting, "a part could not be made: ", error.what());
  throw;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
