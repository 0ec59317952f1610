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

}  // namespace

void* process_wide(const char* name, void* (*make)()) {
  const std::lock_guard lock{mutex};
  for (const Named* each = all; each != nullptr; each = each->next)
    if (each->name == name) {
      sync::happens_after(each);
      return each->object;
    }
  auto added = std::make_unique<Named>(Named{name, nullptr, all});
  added->object = make();
  sync::happens_before(added.get());
  all = added.release();
  return all->object;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
