// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi_process.hpp"

#include "base/check.hpp"
#include "base/never_destroyed.hpp"
#include "base/operation.hpp"
#include "base/polling.hpp"
#include "base/sync.hpp"
#include "comm/serial_order.hpp"

#include <runnel/error.hpp>

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

struct MpiProcess {
  sync::Mutex lock;  // Guards `is_prepared`, and changes of `is_finalized`.
  bool is_prepared = false;
  sync::Atomic<bool> is_finalized{false};
  sync::Atomic<int> uses{0};
  std::vector<MPI_Comm> dropped;  // By free_communicator(), and guarded by `lock`.
};
MpiProcess& process() { return never_destroyed<MpiProcess>(); }

/// Requires: the caller has the lock.
void free_dropped() noexcept {
  for (MPI_Comm& each : process().dropped) MPI_Comm_free(&each);
  process().dropped.clear();
}

constexpr const char* finalized = "MPI is finalized";

/// MPI_Finalize() calls this first. It blocks as long as an operation that is enqueued cannot run.
int wait_for_operations(MPI_Comm, int, void*, void*) {
  const ScopedWait wait{"finalize MPI"};
  try {
    wait_for_all_orders();
  } catch (const std::exception&) {  // A device was lost: its streams have stopped, but threads may
                                     // still be calling MPI.
  }
  const std::lock_guard lock{process().lock};
  process().is_finalized = true;
  block_until([] { return process().uses == 0; });
  free_dropped();
  return MPI_SUCCESS;
}

const char* name_of_level(int level) noexcept {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    default:
      return "MPI_THREAD_SERIALIZED";
  }
}

void require_threads(const char* operation) {
  int level = MPI_THREAD_SINGLE;
  check_mpi(MPI_Query_thread(&level), operation);
  if (level == MPI_THREAD_MULTIPLE) return;
  throw_formatted(errc::not_supported, operation, backend::ok,
                  "MPI was initialised with %s: initialise it with MPI_Init_thread(..., "
                  "MPI_THREAD_MULTIPLE, ...), because streams call it from their threads",
                  name_of_level(level));
}

void require_same_library(const char* operation, const char* of_program) {
  char own[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  check_mpi(MPI_Get_library_version(own, &length), operation);
  if (std::strcmp(own, of_program) == 0) return;
  const auto begin_of = [](const char* text) {
    return std::string{text}.substr(0, std::min<size_t>(60, std::strcspn(text, ",\n")));
  };
  throw_formatted(errc::not_supported, operation, backend::ok,
                  "the program has another MPI library (%s) than runnel was built with (%s)",
                  begin_of(of_program).c_str(), begin_of(own).c_str());
}

}  // namespace

void prepare_mpi(const char* operation, const char* library_of_program) {
  int is_initialised = 0;
  MPI_Initialized(&is_initialised);
  if (is_initialised == 0)
    throw_error(errc::not_permitted, operation,
                "MPI is not initialised: call MPI_Init_thread() first");
  require_mpi(operation);
  require_threads(operation);
  require_same_library(operation, library_of_program);
  const std::lock_guard lock{process().lock};
  if (std::exchange(process().is_prepared, true)) return;
  int key = MPI_KEYVAL_INVALID;
  check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, wait_for_operations, &key, nullptr),
            operation);
  check_mpi(MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr), operation);
}

void require_mpi(const char* operation) {
  if (process().is_finalized) throw_error(errc::not_permitted, operation, finalized);
}

MpiUse::MpiUse(const char* operation) {
  ++process().uses;  // Before the check: either MPI_Finalize() sees this use, or this thread sees
                     // MPI_Finalize().
  if (!process().is_finalized) return;
  --process().uses;
  throw_error(errc::not_permitted, operation, finalized);
}
MpiUse::~MpiUse() {
  if (--process().uses != 0) return;
  const std::lock_guard lock{process().lock};
  if (process().uses == 0) free_dropped();
}

void free_communicator(MPI_Comm dropped) noexcept try {
  const std::lock_guard lock{process().lock};
  if (process().is_finalized) return;
  process().dropped.push_back(dropped);
  if (process().uses == 0) free_dropped();
} catch (const std::bad_alloc&) {  // Leaked, as said.
}

std::string text_of(int result) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(result, text, &length);
  return text;
}

void check_mpi(int result, const char* operation) {
  if (result != MPI_SUCCESS)
    throw_error(errc::communicator_broken, operation, text_of(result).c_str());
}

}  // namespace runnel::inline RUNNEL_ABI::detail
