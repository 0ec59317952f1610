// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi_state.hpp"

#include "comm/mpi_process.hpp"

#include <runnel/detail/capturing.hpp>
#include <runnel/device.hpp>
#include <runnel/error.hpp>

#include <algorithm>
#include <mutex>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

namespace {

/// The handle does not show it, because MPICH has negative handles.
bool is_of_mpi(const World& world) noexcept { return *world.mpi_library != '\0'; }

/// Enqueues the steps as one host function, for devices whose memory is host memory.
void enqueue_task(const std::shared_ptr<MpiState>& state, StreamRef stream,
                  std::span<const Exchange> steps) {
  if (steps.size() == 1)
    stream.launch_host_func([state, step = steps.front()] { run_in_mpi(*state, {&step, 1}); });
  else
    stream.launch_host_func([state, all = std::vector<Exchange>(steps.begin(), steps.end())] {
      run_in_mpi(*state, all);
    });
}

}  // namespace

std::shared_ptr<CommunicatorState> make_mpi_state(const World& world,
                                                  const CommunicatorOptions& options) {
  if (!is_of_mpi(world))
    throw_invalid_argument(making_communicator,
                           "the world names no MPI communicator: mpi::world() makes one that does");
  prepare_mpi(making_communicator, world.mpi_library);
  return std::make_shared<MpiState>(MPI_Comm_f2c(world.mpi_communicator), options);
}

bool do_share_devices(const World& world) {
  if (!is_of_mpi(world)) return false;
  prepare_mpi(making_communicator, world.mpi_library);
  const MpiUse use{making_communicator};
  using Name = std::array<char, 64>;
  Name own{};
  Device::current().uuid().copy(own.data(), own.size());
  std::vector<Name> all(static_cast<size_t>(world.size));
  constexpr int bytes = static_cast<int>(sizeof own);
  check_mpi(MPI_Allgather(own.data(), bytes, MPI_CHAR, all.data(), bytes, MPI_CHAR,
                          MPI_Comm_f2c(world.mpi_communicator)),
            making_communicator);
  std::ranges::sort(all);
  return std::ranges::adjacent_find(all) != all.end();
}

MpiState::MpiState(MPI_Comm parent, const CommunicatorOptions& given)
    : CommunicatorState{Engine::mpi, given} {
  const MpiUse use{making_communicator};
  check_mpi(MPI_Comm_dup(parent, &operations), making_communicator);
  check_mpi(MPI_Comm_dup(parent, &calls), making_communicator);
  for (MPI_Comm each : {operations, calls})
    check_mpi(MPI_Comm_set_errhandler(each, MPI_ERRORS_RETURN), making_communicator);
  MPI_Comm_rank(operations, &rank);
  MPI_Comm_size(operations, &size);
  mpi_communicator = MPI_Comm_c2f(operations);
}

MpiState::~MpiState() {
  if (stager != nullptr) close_stager(*stager);
  // A broken communicator is leaked: a process may have sent a message that no process has
  // received. MPICH reuses the number of a freed communicator, and would deliver the message to the
  // new one.
  if (is_broken()) return;
  free_communicator(operations);
  free_communicator(calls);
}

void MpiState::require_engine(const char* operation) const { require_mpi(operation); }

void MpiState::enqueue(StreamRef stream, std::span<const Exchange> steps) {
  if (const char* const operation = operation_of(steps.front().verb);
      is_capturing(stream, operation))
    throw_error(errc::capture, operation, "MPI runs on the host, so that a graph cannot repeat it");
  const auto self = std::static_pointer_cast<MpiState>(shared_from_this());
  const Device device = stream.device();
  SerialOrder& order = own_order != nullptr ? *own_order : order_of_device(device);
  // Streams without hardware queues run on threads of the host, which can access the memory.
  const bool is_host_memory = device.hardware_queues() == 0;
  const std::lock_guard lock{enqueue_lock_};
  if (last_order_ != nullptr && last_order_ != &order) last_order_->make_wait(stream);
  const SerialOrder::Entry entry{order, stream};
  last_order_ = &order;
  declare_accesses(*this, stream, steps);
  is_host_memory ? enqueue_task(self, stream, steps) : enqueue_staged(self, stream, steps);
}

std::shared_ptr<CommunicatorState> MpiState::split(int color, int key) {
  constexpr const char* operation = "split a communicator";
  MPI_Comm part = MPI_COMM_NULL;
  {
    const MpiUse use{operation};
    check_mpi(MPI_Comm_split(calls, color, key, &part), operation);
  }
  auto made = std::make_shared<MpiState>(part, options);
  free_communicator(part);
  return made;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
