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

/// What each process sends to all others ten times a second.
struct Beat {
  enum class State : std::int32_t { working, done, failed };
  State state = State::working;
  std::int32_t status = 0;  // the exit status, if it failed
  std::uint64_t bytes = 0;
};

/// Calls `work` in a new thread. If no thread can be started, the future holds that error.
std::future<int> start(const std::function<int()>& work) try {
  return std::async(std::launch::async, work);
} catch (...) {
  std::promise<int> without_thread;
  without_thread.set_exception(std::current_exception());
  return without_thread.get_future();
}

}  // namespace

struct Processes::State {
  /// Processes talk about failures by MPI itself, so that they can do so without a device, and
  /// while an operation of `all` waits.
  MPI_Comm calls = MPI_COMM_NULL;
  runnel::World world;
  std::optional<runnel::Communicator> all;
  std::atomic<std::uint64_t> bytes{0};
  std::mutex showing;
  std::optional<Progress> bar;

  std::vector<Beat> beats;  // of all processes; made once, so that no process can fail to take part

  void exchange(const Beat& mine) {
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, beats.data(), sizeof mine, MPI_BYTE, calls);
  }
  void show() {
    std::uint64_t sum = 0;
    for (const Beat& beat : beats) sum += beat.bytes;
    const std::lock_guard lock{showing};
    if (bar) bar->update(sum);
  }
  /// All processes come here. The work that other threads still do, such as waiting for a pipe,
  /// ends with the process.
  [[noreturn]] void end(int status, const Complaint* complaint) {
    {
      const std::lock_guard lock{showing};
      bar.reset();
    }
    if (complaint != nullptr) print(*complaint);
    MPI_Barrier(calls);  // the line is out before a launcher learns of the failure
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
  state_->beats.resize(static_cast<std::size_t>(size()));
  try {
    // abort() ends operations that wait only if there is a timeout.
    state_->all.emplace(state_->world,
                        runnel::CommunicatorOptions{
                            .engine = runnel::Engine::mpi, .timeout = 24h * 365, .name = "runnel"});
  } catch (...) {  // the same in all processes
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
  for (Beat mine;;) {
    // A process whose work is done waits for the others in exchange().
    if (mine.state == Beat::State::working && result.wait_for(100ms) == std::future_status::ready)
      try {
        mine.state = Beat::State::done;
        status = result.get();
      } catch (...) {
        complaint = complaint_of(std::current_exception());
        mine.state = Beat::State::failed;
        mine.status = complaint.status;
      }
    mine.bytes = state_->bytes;
    state_->exchange(mine);
    const std::vector<Beat>& beats = state_->beats;
    const auto failed = std::ranges::find(beats, Beat::State::failed, &Beat::state);
    if (failed != beats.end())
      state_->end(failed->status, failed - beats.begin() == rank() ? &complaint : nullptr);
    if (std::ranges::count(beats, Beat::State::done, &Beat::state) == size()) return status;
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
