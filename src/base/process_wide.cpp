// SPDX-License-Identifier: Apache-2.0
#include <runnel/detail/process_wide.hpp>

#include "base/announce.hpp"
#include "base/never_destroyed.hpp"
#include "base/sync.hpp"

#include <map>
#include <mutex>
#include <string>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

constinit sync::Mutex mutex;

/// Null if there is no object of that name yet.
[[nodiscard]] void*& object_named(const char* name) {
  // ThreadSanitizer must not see how the C++ library compares and copies these names: they are the
  // library's own memory.
  const sync::TsanIgnore ignore;
  return never_destroyed<std::map<std::string, void*>>()[name];
}

}  // namespace

void* process_wide(const char* name, void* (*make)()) {
  const std::lock_guard lock{mutex};
  void*& object = object_named(name);
  if (object == nullptr) {
    object = make();
    sync::happens_before(&object);
  }
  sync::happens_after(&object);
  return object;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
