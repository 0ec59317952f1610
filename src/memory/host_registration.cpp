// SPDX-License-Identifier: Apache-2.0
#include <runnel/host_registration.hpp>

#include "base/check.hpp"
#include "base/exit_notice.hpp"
#include "base/hooks.hpp"
#include "base/immortal.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "base/sync.hpp"
#include "checker/hooks.hpp"
#include "device/call_quietly.hpp"
#include "device/device_table.hpp"
#include "memory/pinned_pages.hpp"
#include "memory/releaser.hpp"

#include <runnel/memory.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <map>
#include <mutex>

namespace runnel::inline RUNNEL_ABI {
namespace {

constexpr const char* operation = "pin memory that is there already";

// The runtimes refuse overlapping registrations too, but by page, with different errors, and some of them not always.
struct Registrations {
  sync::Mutex mutex;
  std::map<std::uintptr_t, std::uintptr_t> ends;  // by begin
};
Registrations& registrations() { return detail::immortal<Registrations>(); }

void remove(std::uintptr_t begin) noexcept {
  const std::lock_guard lock{registrations().mutex};
  registrations().ends.erase(begin);
}

/// Enters the range. Nothing if that is done; else why it cannot be.
[[nodiscard]] const char* try_add(std::uintptr_t begin, std::uintptr_t end) {
  const std::lock_guard lock{registrations().mutex};
  auto& ends = registrations().ends;
  const auto after = ends.lower_bound(begin);
  if (after != ends.end() && after->first == begin) return "the memory is registered already";
  if ((after != ends.end() && after->first < end) || (after != ends.begin() && std::prev(after)->second > begin))
    return "a part of the memory is registered already";
  ends.emplace_hint(after, begin, end);
  return nullptr;
}

/// The same; a registration that ended in a host function gets some time to end. @throws errc::invalid_argument
void add(std::uintptr_t begin, std::uintptr_t end) {
  const char* refusal = try_add(begin, end);
  if (refusal != nullptr && detail::are_releases_waiting()) {
    detail::wait_for_releases(operation, detail::release_patience);
    refusal = try_add(begin, end);
  }
  if (refusal != nullptr) detail::throw_error(errc::invalid_argument, operation, refusal);
}

/// The range stays entered until the runtime has forgotten it: it would refuse the next registration.
void unregister(const detail::Postponed& item) noexcept {
  detail::call_quietly(item.device, [&] { return backend::unregister_host(item.handle); });
  remove(reinterpret_cast<std::uintptr_t>(item.handle));
}

/// Whether the process has memory at all these addresses.
[[nodiscard]] bool is_mapped(std::uintptr_t begin, std::uintptr_t end) noexcept {
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = begin / page * page;
  // With MS_ASYNC the system does nothing else than look for the mappings.
  return msync(reinterpret_cast<void*>(first), end - first, MS_ASYNC) == 0 || errno != ENOMEM;
}

}  // namespace

HostRegistration::HostRegistration(void* pointer, std::size_t bytes) {
  detail::enter(operation);
  detail::watch_main_thread();
  detail::require_device(0, operation);
  if (pointer == nullptr || bytes == 0) detail::throw_error(errc::invalid_argument, operation, "there is no memory: null, or 0 bytes");
  const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
  std::uintptr_t end = 0;
  if (__builtin_add_overflow(begin, bytes, &end))
    detail::throw_error(errc::invalid_argument, operation, "the size runs past the end of the address space");
  if (!is_mapped(begin, end)) detail::throw_error(errc::invalid_argument, operation, "there is no memory at a part of these addresses");
  add(begin, end);
  detail::ToldAllocation told{operation, MemoryKind::pinned, bytes};
  told.made(pointer);
  try {
    for (const std::uintptr_t place : {begin, end - 1})
      if (runnel::pointer_info(reinterpret_cast<const void*>(place)).kind != MemoryKind::pageable)
        detail::throw_error(errc::invalid_argument, operation, "a part of the memory is pinned, managed or a device's");
    detail::populate_for_registration(pointer, bytes);
    const detail::RelaxedCapture relaxed;
    detail::check(detail::allocate_behind_releases(operation, [&] { return backend::register_host(pointer, bytes); }), operation);
  } catch (...) {
    remove(begin);
    throw;
  }
  pointer_ = pointer;
  bytes_ = bytes;
  if (detail::is_checking()) checker::pins(pointer, bytes);
}

HostRegistration::~HostRegistration() {
  constexpr const char* ending = "unpin memory";
  if (pointer_ == nullptr || detail::release_mode_of_wait() == detail::Release::never) return;
  if (detail::is_checking()) checker::unpins(pointer_, bytes_);
  detail::tell_free_outside(ending, MemoryKind::pinned, pointer_, bytes_);
  detail::release_and_wait(ending, {unregister, pointer_, 0}, -1);
}

void* HostRegistration::device_pointer(Device device) const {
  return pointer_ != nullptr ? detail::mapped_pointer(pointer_, device) : nullptr;
}

}  // namespace runnel::inline RUNNEL_ABI
