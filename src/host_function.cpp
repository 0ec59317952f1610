// SPDX-License-Identifier: Apache-2.0
#include <runnel/detail/host_function.hpp>

#include "check.hpp"
#include "counters.hpp"
#include "process.hpp"
#include "stream_device.hpp"
#include "stream_slots.hpp"

#include <exception>
#include <memory>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

struct Destroy {
  void operator()(HostFunction* function) const noexcept {
    function->destroy(function);
    count_up(counters.host_functions_destroyed);
  }
};
using Owned = std::unique_ptr<HostFunction, Destroy>;

/// What the runtime calls. The callable is gone before the stream goes on, and nothing it throws meets a C frame.
void run_and_destroy(void* data) noexcept {
  Owned function{static_cast<HostFunction*>(data)};
  StreamSlot* const slot = function->slot;
  const std::uint64_t id = function->id;
  in_host_function = true;
  try {
    function->run(*function);
  } catch (...) {
    keep_failure(slot, id, std::current_exception());
  }
  function.reset();
  in_host_function = false;
}

}  // namespace

void launch(StreamSlot* base, std::uint64_t id, HostFunction* raw) {
  constexpr const char* operation = "launch a host function";
  count_up(counters.host_functions_made);
  Owned function{raw};
  enter(operation);
  Slot& slot = live_slot(Access::ref(base, id));
  function->slot = base;
  function->id = id;
  const StreamDevice on{slot, operation};
  check(driver::launch_host_func(slot.handle, run_and_destroy, function.get()), operation);
  static_cast<void>(function.release());
}

}  // namespace runnel::inline RUNNEL_ABI::detail
