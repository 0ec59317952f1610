// SPDX-License-Identifier: Apache-2.0
#include "processes.hpp"

#include "complaint.hpp"
#include "progress.hpp"

#include <runnel/copy.hpp>
#include <runnel/memory.hpp>
#include <runnel/mpi.hpp>
#include <runnel/stream.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <mutex>

namespace tool {

namespace {

using namespace std::chrono_literals;

/// The message that each process sends to all others ten times a second.
struct Heartbeat {
  enum class State : std::int32_t { working, done, failed };
  State state = State::working;
  std::int32_t status = 0;  // The exit status, if the process has failed.
  std::uint64_t bytes = 0;
};

/// Calls `work` on a new thread. If no thread can be started, the future contains the error.
std::future<int> start(const std::function<int()>& work) try {
  return std::async(std::launch::async, work);
} catch (...) {
  std::promise<int> without_thread;
  without_thread.set_exception(std::current_exception());
  return without_thread.get_future();
}

}  // namespace

struct Processes::State {
  /// The processes exchange heartbeats through MPI directly, which works without a device, and
  /// while an operation of `all` waits.
  MPI_Comm calls = MPI_COMM_NULL;
  runnel::World world;
  std::optional<runnel::Communicator> all;
  std::atomic<std::uint64_t> bytes{0};
  std::mutex showing;
  std::optional<Progress> bar;

  std::vector<Heartbeat> heartbeats;  // Of all processes. Allocated once, so that the exchange
                                      // cannot fail for lack of memory.

  void exchange(const Heartbeat& mine) {
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, heartbeats.data(), sizeof mine, MPI_BYTE, calls);
  }
  void show() {
    std::uint64_t sum = 0;
    for (const Heartbeat& heartbeat : heartbeats) sum += heartbeat.bytes;
    const std::lock_guard lock{showing};
    if (bar) bar->update(sum);
  }
  /// Terminates the process. All processes call it. Other threads that still work, or wait for a
  /// pipe, end with the process.
  [[noreturn]] void end(int status, const Complaint* complaint) {
    {
      const std::lock_guard lock{showing};
      bar.reset();
    }
    if (complaint != nullptr) print(*complaint);
    MPI_Barrier(calls);  // The message is printed before the launcher notices the failure.
    if (all) all->abort();
    MPI_Finalize();
    std::_Exit(status);
  }
};

Processes::Processes(char**) : state_{std::make_unique<State>()} {
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_dup(MPI_COMM_WORLD, &state_->calls);
  state_->world = runnel::mpi::world();
  state_->heartbeats.resize(static_cast<std::size_t>(size()));
  try {
    // The timeout is needed because abort() ends waiting operations only if there is one.
    state_->all.emplace(state_->world,
                        runnel::CommunicatorOptions{
                            .engine = runnel::Engine::mpi, .timeout = 24h * 365, .name = "runnel"});
  } catch (...) {  // All processes fail in the same way.
    const Complaint complaint = complaint_of(std::current_exception());
    state_->end(complaint.status, rank() == 0 ? &complaint : nullptr);
  }
}
Processes::~Processes() {
  MPI_Comm_free(&state_->calls);
  MPI_Finalize();
}

int Processes::rank() const noexcept { return state_->world.rank; }
int Processes::size() const noexcept { return state_->world.size; }
int Processes::local_rank() const noexcept { return state_->world.local_rank; }

int Processes::together(const std::function<int()>& work) {
  std::future<int> result = start(work);
  Complaint complaint{};
  int status = 0;
  for (Heartbeat mine;;) {
    // A process whose work is complete waits for the others in exchange().
    if (mine.state == Heartbeat::State::working &&
        result.wait_for(100ms) == std::future_status::ready)
      try {
        mine.state = Heartbeat::State::done;
        status = result.get();
      } catch (...) {
        complaint = complaint_of(std::current_exception());
        mine.state = Heartbeat::State::failed;
        mine.status = complaint.status;
      }
    mine.bytes = state_->bytes;
    state_->exchange(mine);
    const std::vector<Heartbeat>& heartbeats = state_->heartbeats;
    const auto failed = std::ranges::find(heartbeats, Heartbeat::State::failed, &Heartbeat::state);
    if (failed != heartbeats.end())
      state_->end(failed->status, failed - heartbeats.begin() == rank() ? &complaint : nullptr);
    if (std::ranges::count(heartbeats, Heartbeat::State::done, &Heartbeat::state) == size())
      return status;
    state_->show();
  }
}

void Processes::gather_bytes(runnel::Device device, const void* mine, void* all,
                             std::size_t bytes) {
  const runnel::Stream stream{device};
  const auto count = bytes * static_cast<std::size_t>(size());
  runnel::DeviceBuffer<std::byte> in{bytes, stream}, out{count, stream};
  runnel::copy(stream, in, std::span{static_cast<const std::byte*>(mine), bytes});
  state_->all->all_gather(stream, in, out);
  runnel::copy(stream, std::span{static_cast<std::byte*>(all), count}, out);
  stream.synchronize();
}

void Processes::show_progress(std::optional<std::uint64_t> total, bool always) {
  const std::lock_guard lock{state_->showing};
  if (rank() == 0) state_->bar.emplace(total, always);
}
void Processes::report(std::uint64_t bytes) { state_->bytes = bytes; }
void Processes::hide_progress() {
  const std::lock_guard lock{state_->showing};
  state_->bar.reset();
}

}  // namespace tool
