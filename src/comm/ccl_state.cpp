// SPDX-License-Identifier: Apache-2.0
#include "comm/ccl_state.hpp"

#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "comm/devices.hpp"
#include "comm/together.hpp"
#include "stream/slots.hpp"

#include <runnel/copy.hpp>
#include <runnel/error.hpp>

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

constexpr const char* splitting = "split a communicator";

[[nodiscard]] std::string reason_of(ccl::status status) {
  std::string reason = ccl::error_text(status);
  if (const std::string more = ccl::last_error(); !more.empty()) reason.append(" (").append(more).append(")");
  return reason;
}

void check_making(ccl::status status, const char* operation) {
  if (status != ccl::ok) throw_error(errc::communicator_broken, operation, reason_of(status).c_str());
}

void require_options_of_ccl(const CommunicatorOptions& options) {
  if (options.checked)
    throw_error(errc::not_supported, making_communicator,
                "operations of NCCL and RCCL run on the device, where nothing compares their arguments: leave out `checked`");
}

/// What process 0 sends to the others.
struct Invitation {
  ccl::status status;
  ccl::UniqueId id;
};

[[nodiscard]] std::shared_ptr<CclState> join(const CommunicatorOptions& options, const Invitation& invitation, int rank, int size,
                                             const char* operation) {
  check_making(invitation.status, operation);
  const Device device = Device::current();
  ccl::Handle made = nullptr;
  check_making(ccl::init_rank(made, size, invitation.id, rank), operation);
  auto state = std::make_shared<CclState>(options, device, made, rank, size);
  enlist(*state);
  state->connect();
  return state;
}

}  // namespace

bool has_ccl() noexcept { return true; }

std::shared_ptr<CommunicatorState> make_ccl_state(const World& world, const CommunicatorOptions& options) {
  require_options_of_ccl(options);
  if (world.size > 1 && !world.broadcast)
    throw_error(errc::invalid_argument, making_communicator,
                "the world has no `broadcast`: mpi::world(), World::from_file() and World::from_environment() make one that has");
  static_cast<void>(Device::current());  // before anybody waits for this process
  const RelaxedCapture relaxed;
  Invitation invitation{};
  if (world.rank == 0) invitation.status = ccl::make_unique_id(invitation.id);
  if (world.size > 1) world.broadcast(&invitation, sizeof invitation);
  return join(options, invitation, world.rank, world.size, making_communicator);
}

std::vector<std::shared_ptr<CommunicatorState>> make_ccl_states(std::span<const Device> devices, const CommunicatorOptions& options) {
  require_options_of_ccl(options);
  std::vector<int> ordinals;
  for (const Device each : devices) {
    if (std::find(ordinals.begin(), ordinals.end(), each.ordinal()) != ordinals.end())
      throw_error(errc::invalid_argument, making_communicator, "a device is named twice");
    ordinals.push_back(each.ordinal());
  }
  if (ordinals.empty()) throw_error(errc::invalid_argument, making_communicator, "no device is named");
  const DeviceGuard guard{devices.front()};
  const RelaxedCapture relaxed;
  const int size = static_cast<int>(ordinals.size());
  std::vector<ccl::Handle> handles(ordinals.size());
  check_making(ccl::init_all(handles.data(), size, ordinals.data()), making_communicator);
  std::vector<std::shared_ptr<CclState>> states;
  for (int rank = 0; rank < size; ++rank) {
    const auto place = static_cast<std::size_t>(rank);
    states.push_back(std::make_shared<CclState>(options, devices[place], handles[place], rank, size));
    enlist(*states.back());
  }
  check_making(ccl::group_start(), making_communicator);
  for (const auto& each : states) each->enqueue_connection();
  check_making(ccl::group_end(), making_communicator);
  for (const auto& each : states) each->wait_for_connection();
  return {states.begin(), states.end()};
}

CclState::CclState(const CommunicatorOptions& given, Device of, ccl::Handle made, int own_rank, int ranks)
    : CommunicatorState{given}, device{of}, stream_{of}, number_{1, stream_} {
  rank = own_rank;
  size = ranks;
  ccl_communicator = made;
}

CclState::~CclState() {
  if (release_mode() == Release::never) return;
  delist(*this);
  if (const ccl::Handle left = ccl_communicator.exchange(nullptr); left != nullptr)
    destroy_in_background(left, device, own_baton, std::move(number_));
}

Baton& CclState::baton() { return own_baton != nullptr ? *own_baton : communicating_device(device.ordinal()).baton; }

void CclState::connect() {
  enqueue_connection();
  wait_for_connection();
}

void CclState::enqueue_connection() {
  fill(stream_, number_, 0U);
  constexpr Transfer barrier{Verb::barrier, Element::bytes, Reduce::sum, 0, 1, nullptr, 0, nullptr, 0};
  check_call(post(stream_, {&barrier, 1}), making_communicator);
}

void CclState::wait_for_connection() {
  if (options.timeout.count() == 0) return stream_.synchronize();
  if (stream_.synchronize_for(options.timeout)) return;
  const std::string time = std::to_string(options.timeout.count());
  fail_all(*this, errc::timed_out, making_communicator, "another process did not take part within the timeout of " + time + " ms");
  check();
}

void CclState::enqueue(StreamRef stream, std::span<const Transfer> steps) {
  const char* const operation = operation_of(steps.front().verb);
  if (stream.device() != device) throw_error(errc::invalid_argument, operation, "the stream is of another device than the communicator");
  for (const Transfer& step : steps) require_supported(step);
  if (Together::Operations* const all = Together::Operations::of_this_thread()) return all->add(self(), stream, steps);
  const DeviceGuard guard{device};
  const auto post_all = [&] {
    const std::lock_guard lock{calls};
    if (ccl_communicator == nullptr) check();
    check_call(post(stream, steps), operation);
  };
  note_use(stream);
  if (stream.is_capturing()) return post_all();
  Baton::Turn turn{baton(), stream};
  declare_accesses(*this, stream, steps);
  auto watched = begin_watch(*this, stream, operation);
  post_all();
  end_watch(std::move(watched), stream);
  turn.end();
}

void CclState::note_use(StreamRef stream) {
  const std::lock_guard lock{uses_lock_};
  if (!uses_.empty() && uses_.back() == stream) return;
  const auto found = std::find(uses_.begin(), uses_.end(), stream);
  if (found != uses_.end()) return std::swap(*found, uses_.back());
  std::erase_if(uses_, [](StreamRef each) { return !each.valid(); });
  uses_.push_back(stream);
}

bool CclState::fail(errc code, const char* operation, std::string reason) {
  if (!break_with(code, operation, std::move(reason))) return false;
  tell_streams();
  return true;
}

void CclState::tell_streams() noexcept {
  const std::lock_guard lock{uses_lock_};
  try {
    check();
  } catch (...) {
    for (const StreamRef each : uses_) keep_failure(Access::slot(each), each.id(), {.exception = std::current_exception()});
  }
}

void CclState::check_call(ccl::status status, const char* operation) {
  if (status == ccl::ok) [[likely]]
    return;
  if (is_broken()) check();  // an abort has ended the call
  const std::string reason = reason_of(status);
  if (break_with(ccl::classify(status), operation, reason)) end_operations();
  check();
}

void CclState::end_operations() noexcept try {
  tell_streams();
  abort_in_background({self()});
} catch (const std::bad_alloc&) {  // the operations stay as they are
}

void CclState::look_for_errors() {
  ccl::status error = ccl::ok;
  {
    const std::unique_lock lock{calls, std::try_to_lock};
    if (!lock.owns_lock() || ccl_communicator == nullptr) return;
    const ccl::status status = ccl::async_error(ccl_communicator, error);
    if (status != ccl::ok) error = status;
  }
  if (error != ccl::ok && !ccl::is_in_progress(error)) fail_all(*this, ccl::classify(error), "run an operation", reason_of(error));
}

/// `bytes` bytes of each rank, one after the other.
std::vector<std::byte> CclState::gather(const void* own, std::size_t bytes) {
  DeviceBuffer<std::byte> in{bytes, stream_}, out{bytes * static_cast<std::size_t>(size), stream_};
  std::vector<std::byte> found(out.size());
  copy_bytes(stream_, in.data(), own, bytes);
  const Transfer step = movement(Verb::all_gather, in, out, 0);
  enqueue(stream_, {&step, 1});
  copy_bytes(stream_, found.data(), out.data(), found.size());
  stream_.synchronize();
  return found;
}

std::shared_ptr<CommunicatorState> CclState::split(int color, int key) {
  if (Together::Operations::of_this_thread() != nullptr)
    throw_error(errc::not_permitted, splitting, "it waits for the other processes, which together() would keep waiting");
  const DeviceGuard guard{device};
  const RelaxedCapture relaxed;
  struct Choice {
    int color, key;
  };
  const auto ranks = static_cast<std::size_t>(size);
  const Choice choice{color, key};
  std::vector<Choice> choices(ranks);
  std::memcpy(choices.data(), gather(&choice, sizeof choice).data(), ranks * sizeof choice);
  std::vector<int> members;
  for (int each = 0; each < size; ++each)
    if (choices[static_cast<std::size_t>(each)].color == color) members.push_back(each);
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return choices[static_cast<std::size_t>(a)].key < choices[static_cast<std::size_t>(b)].key; });
  // The first of each part invites the others.
  Invitation invitation{};
  if (members.front() == rank) invitation.status = ccl::make_unique_id(invitation.id);
  const auto all = gather(&invitation, sizeof invitation);
  std::memcpy(&invitation, all.data() + static_cast<std::size_t>(members.front()) * sizeof invitation, sizeof invitation);
  const auto place = std::find(members.begin(), members.end(), rank) - members.begin();
  return join(options, invitation, static_cast<int>(place), static_cast<int>(members.size()), splitting);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
