// SPDX-License-Identifier: Apache-2.0
#include "processes.hpp"

#include "complaint.hpp"
#include "failure.hpp"
#include "progress.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include <unistd.h>

namespace tool {

namespace {

/// The environment variables that identify a launcher: Open MPI's mpirun, launchers with PMI, and
/// srun.
struct Launcher {
  const char* size;
  const char* rank;
};
constexpr Launcher launchers[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                  {"PMI_SIZE", "PMI_RANK"},
                                  {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}};

int number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

/// Replaces this program by runnel-mpi, which is in the same folder if runnel was built with MPI.
[[noreturn]] void execute_runnel_mpi(char** argv, const Launcher& launcher) {
  std::error_code none;
  const auto program =
      std::filesystem::read_symlink("/proc/self/exe", none).replace_filename("runnel-mpi");
  ::execv(program.c_str(), argv);
  const int error = errno;
  if (number_in(launcher.rank) != 0) std::_Exit(failed_status);  // Process 0 prints the error.
  if (error == ENOENT)
    throw Failure(
        "this runnel was built without MPI, so that several processes cannot share the work; start "
        "one, or build again with -Dmpi=enabled");
  throw Failure("cannot run " + in_quotes(program.native()) + ": " + std::strerror(error));
}

}  // namespace

struct Processes::State {
  std::optional<Progress> bar;
};

Processes::Processes(char** argv) : state_{std::make_unique<State>()} {
  const std::string_view command = argv[0] != nullptr && argv[1] != nullptr ? argv[1] : "";
  if (command != "histogram" && command != "sum") return;
  for (const Launcher& launcher : launchers)
    if (number_in(launcher.size) > 1) execute_runnel_mpi(argv, launcher);
}
Processes::~Processes() = default;

int Processes::rank() const noexcept { return 0; }
int Processes::size() const noexcept { return 1; }
int Processes::local_rank() const noexcept { return 0; }

int Processes::together(const std::function<int()>& work) { return work(); }
void Processes::gather_bytes(runnel::Device, const void* mine, void* all, std::size_t bytes) {
  std::memcpy(all, mine, bytes);
}

void Processes::show_progress(std::optional<std::uint64_t> total, bool always) {
  state_->bar.emplace(total, always);
}
void Processes::report(std::uint64_t bytes) { state_->bar->update(bytes); }
void Processes::hide_progress() { state_->bar.reset(); }

}  // namespace tool
