// SPDX-License-Identifier: Apache-2.0
#include <runnel/detail/process_wide.hpp>

#include "base/announce.hpp"
#include "base/sync.hpp"

#include <memory>
#include <mutex>
#include <string>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {
namespace {

struct NamedObject {
  std::string name;
  void* object = nullptr;
  NamedObject* next = nullptr;
};
constinit sync::Mutex mutex;
constinit NamedObject* all =
    nullptr;  // never freed: the objects may be in use until the process ends

// ThreadSanitizer must not see how the C++ library compares and copies these names: they are the
// library's own memory.
[[nodiscard]] const NamedObject* find(const char* name) {
  const sync::TsanIgnore ignore;
  const NamedObject* each = all;
  while (each != nullptr && each->name != name) each = each->next;
  return each;
}
[[nodiscard]] std::unique_ptr<NamedObject> describe(const char* name) {
  const sync::TsanIgnore ignore;
  return std::make_unique<NamedObject>(NamedObject{name});
}

}  // namespace

void* process_wide(const char* name, void* (*make)()) {
  const std::lock_guard lock{mutex};
  if (const NamedObject* const found = find(name)) {
    sync::happens_after(found);
    return found->object;
  }
  std::unique_ptr<NamedObject> added = describe(name);
  added->object = make();
  sync::happens_before(added.get());
  added->next = all;
  all = added.release();
  return all->object;
}

}}}  // namespace runnel::RUNNEL_ABI::detail
