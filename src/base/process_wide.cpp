// SPDX-License-Identifier: Apache-2.0
#include <runnel/detail/process_wide.hpp>

#include "base/announce.hpp"
#include "base/sync.hpp"

#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

struct Named {
  std::string name;
  void* object = nullptr;
  Named* next = nullptr;
};
constinit sync::Mutex mutex;
constinit Named* all = nullptr;  // never freed: the objects may be in use until the process ends

// The C++ library compares and copies the names, unseen: they are the library's own.
[[nodiscard]] const Named* find(const char* name) {
  const sync::Unseen unseen;
  const Named* each = all;
  while (each != nullptr && each->name != name) each = each->next;
  return each;
}
[[nodiscard]] std::unique_ptr<Named> describe(const char* name) {
  const sync::Unseen unseen;
  return std::make_unique<Named>(Named{name});
}

}  // namespace

void* process_wide(const char* name, void* (*make)()) {
  const std::lock_guard lock{mutex};
  if (const Named* const found = find(name)) {
    sync::happens_after(found);
    return found->object;
  }
  std::unique_ptr<Named> added = describe(name);
  added->object = make();
  sync::happens_before(added.get());
  added->next = all;
  all = added.release();
  return all->object;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
