// SPDX-License-Identifier: Apache-2.0
#include <runnel/world.hpp>

#include "base/check.hpp"
#include "comm/rendezvous_file.hpp"

#include <runnel/error.hpp>

#include <charconv>
#include <cstdlib>
#include <string>

namespace runnel { inline namespace RUNNEL_ABI {

using namespace detail;
namespace {

constexpr const char* finding = "find the processes of this program";

/// The names of a launcher's variables.
struct Launcher {
  const char* rank;
  const char* size;
  const char* local_rank;
};
constexpr Launcher launchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"}};

/// Empty if the variable is not set.
[[nodiscard]] std::string text_of(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

[[nodiscard]] int number_of(const char* variable) {
  const std::string text = text_of(variable);
  int number = -1;
  const char* const end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, number);
  if (code == std::errc{} && rest == end && number >= 0) return number;
  const std::string reason =
      variable + (text.empty() ? " is not set" : " is no number from 0 to 2147483647: " + text);
  throw_invalid_argument(finding, reason.c_str());
}

void require_rank(int rank, int size) {
  if (rank >= 0 && rank < size) return;
  throw_formatted(errc::invalid_argument, finding, backend::ok, "there is no process %d of %d",
                  rank, size);
}

[[nodiscard]] World world_of(const Launcher& launcher) {
  const int rank = number_of(launcher.rank), size = number_of(launcher.size);
  require_rank(rank, size);
  World made;
  if (size > 1) {
    const std::string path = text_of("RUNNEL_WORLD_FILE");
    if (path.empty())
      throw_error(errc::not_supported, finding,
                  "RUNNEL_WORLD_FILE has to name a file in which the processes can meet");
    made = World::from_file(path, rank, size);
  }
  if (!text_of(launcher.local_rank).empty()) made.local_rank = number_of(launcher.local_rank);
  return made;
}

}  // namespace

World World::from_environment() {
  for (const Launcher& each : launchers)
    if (!text_of(each.rank).empty()) return world_of(each);
  throw_error(errc::not_supported, finding,
              "no launcher has set RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK or PMI_RANK");
}

World World::from_file(const std::string& path, int rank, int size,
                       std::chrono::milliseconds patience) {
  if (path.empty()) throw_invalid_argument(finding, "the path is empty");
  require_rank(rank, size);
  World made{.rank = rank, .size = size, .local_rank = rank};
  made.broadcast = [rendezvous = RendezvousFile{path, rank, size, patience}](
                       void* bytes, std::size_t count) { rendezvous.broadcast(bytes, count); };
  return made;
}

}}  // namespace runnel::RUNNEL_ABI
