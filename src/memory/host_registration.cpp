// SPDX-License-Identifier: Apache-2.0
#include <runnel/host_registration.hpp>

#include "base/check.hpp"
#include "base/never_destroyed.hpp"
#include "base/operation.hpp"
#include "base/populate.hpp"
#include "base/process.hpp"
#include "base/sync.hpp"
#include "device/device_table.hpp"
#include "memory/memory_facts.hpp"
#include "memory/pinned_pages.hpp"
#include "memory/releaser.hpp"

#include <runnel/memory.hpp>

#include <sys/mman.h>

#include <cerrno>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace runnel::inline RUNNEL_ABI {

using namespace detail;

namespace {

constexpr const char* operation = "pin memory that is there already";

struct Range {
  uintptr_t begin, end;
  [[nodiscard]] void* pointer() const noexcept { return reinterpret_cast<void*>(begin); }
  size_t bytes() const noexcept { return end - begin; }
};

uintptr_t page_of(uintptr_t address) noexcept { return address / page_bytes() * page_bytes(); }
uintptr_t next_page(uintptr_t address) noexcept { return page_of(address) + page_bytes(); }

// All registrations of the process. The runtimes refuse registrations that share a page, but with
// different errors, and some of them not reliably.
struct Registrations {
  struct Entry {
    uintptr_t end;
    uint64_t owner;  // The number of the HostRegistration that owns it; 0 while it is being
                     // unregistered.
    bool is_registered = false;
  };
  sync::Mutex mutex;
  std::map<uintptr_t, Entry> all;  // By begin.
  uint64_t owners = 0;

  /// The first entry that ends behind the address. Requires: the mutex is locked.
  [[nodiscard]] auto behind(uintptr_t at) {
    auto found = all.upper_bound(at);
    if (found != all.begin() && std::prev(found)->second.end > at) --found;
    return found;
  }
};
Registrations& registrations() { return never_destroyed<Registrations>(); }
constinit sync::Atomic<bool> has_registered{false};  // true from the first registration on

void remove(uintptr_t begin) noexcept {
  const std::lock_guard lock{registrations().mutex};
  registrations().all.erase(begin);
}

/// Enters the parts of the range that no registration covers, for a new owner, and returns them.
/// Next to an existing registration they begin and end at a page boundary. Returns nothing, and
/// leaves `owner` at 0, if a registration that overlaps the range is being unregistered.
[[nodiscard]] std::vector<Range> reserve_gaps(Range range, uint64_t& owner) {
  Registrations& known = registrations();
  const std::lock_guard lock{known.mutex};
  std::vector<Range> gaps;
  uintptr_t at = range.begin;
  auto each = known.behind(at);
  const auto add_gap = [&](uintptr_t end) {
    if (end > at) gaps.push_back({at, end});
  };
  for (; each != known.all.end() && each->first < range.end; ++each) {
    if (each->second.owner == 0) return {};
    add_gap(page_of(each->first));
    at = next_page(each->second.end - 1);
  }
  add_gap(range.end);
  owner = ++known.owners;
  // All of them, or none.
  std::map<uintptr_t, Registrations::Entry> entries;
  for (const Range gap : gaps) entries.emplace(gap.begin, Registrations::Entry{gap.end, owner});
  known.all.merge(entries);
  has_registered.store(true, std::memory_order_release);
  return gaps;
}

void mark_registered(Range range) noexcept {
  const std::lock_guard lock{registrations().mutex};
  registrations().all.find(range.begin)->second.is_registered = true;
}

/// Returns the owner's first registered range, and marks it as being unregistered. Removes the
/// owner's entries before it that were not registered.
[[nodiscard]] std::optional<Range> take_range(uint64_t owner, Range within) noexcept {
  Registrations& known = registrations();
  const std::lock_guard lock{known.mutex};
  for (auto each = known.all.lower_bound(within.begin);
       each != known.all.end() && each->first < within.end;) {
    const auto here = each++;
    if (here->second.owner != owner) continue;
    here->second.owner = 0;
    if (here->second.is_registered) return Range{here->first, here->second.end};
    known.all.erase(here);
  }
  return std::nullopt;
}

/// Describes the pinning or unpinning of memory of the program.
Operation about(OperationKind kind, const char* name, Range range) noexcept {
  return {.kind = kind,
          .is_of_program = true,
          .name = name,
          .to = range.pointer(),
          .bytes = range.bytes(),
          .to_kind = MemoryKind::pinned};
}

/// Removes the entry only after the runtime's call: until then the runtime would refuse a new
/// registration of the memory.
backend::status unregister(void* memory) noexcept {
  const backend::status s = backend::unregister_host(memory);
  remove(reinterpret_cast<uintptr_t>(memory));
  return s;
}

/// Unregisters all ranges of the owner.
void unregister_all(uint64_t owner, Range within) noexcept {
  constexpr const char* ending = "unpin memory";
  while (const auto range = take_range(owner, within)) {
    emit([&] { return about(OperationKind::deallocation, ending, *range); });
    release_and_wait(ending, {unregister, range->pointer(), 0}, -1);
  }
}

/// Whether other code or a pool has pinned the first and the last byte.
/// @throws errc::invalid_argument if one of them is device or managed memory
bool is_pinned_already(Range gap, uintptr_t begin) {
  bool is_pinned = true;
  for (const uintptr_t at : {gap.begin, gap.end - 1}) {
    const MemoryKind kind = pointer_info(reinterpret_cast<const void*>(at)).kind;
    is_pinned = is_pinned && kind == MemoryKind::pinned;
    if (kind == MemoryKind::pageable || kind == MemoryKind::pinned) continue;
    throw_formatted(errc::invalid_argument, operation, backend::ok, "byte %zu of it is %s",
                    static_cast<size_t>(at - begin),
                    kind == MemoryKind::managed ? "managed memory" : "a device's memory");
  }
  return is_pinned;
}

/// Whether the process may read all pages and may not write at least one of them. It parses the
/// system's list of mappings, which is slow, so it is called only if a runtime has refused the
/// memory.
bool is_read_only(Range range) noexcept {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> maps{std::fopen("/proc/self/maps", "re"),
                                                             &std::fclose};
  if (maps == nullptr) return false;
  bool writable = true;
  char line[5 * 4096];  // a path of at most 4 KiB, in which a newline takes four characters
  while (range.begin < range.end && std::fgets(line, sizeof line, maps.get()) != nullptr) {
    uintptr_t begin = 0, end = 0;
    char rights[5] = {};
    const int read = std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, rights);
    if (read != 3 || end <= range.begin) continue;
    if (begin > range.begin || rights[0] != 'r') return false;
    writable = writable && rights[1] == 'w';
    range.begin = end;
  }
  return range.begin >= range.end && !writable;
}

/// Registers the pages. Registers them for reading only if the process may only read them.
void register_pages(Range range) {
  const auto plainly = [&] { return backend::register_host(range.pointer(), range.bytes()); };
  const backend::status s = allocate_behind_releases(operation, plainly);
  if (s == backend::ok || !is_read_only(range)) return check(s, operation);
  backend::forget_error(s);
  const Device device = Device::current();
  if (!device.can_pin_read_only_memory())
    throw_formatted(errc::not_supported, operation, backend::ok,
                    "a part of it is read-only, and device %d cannot pin such memory",
                    device.ordinal());
  const auto for_reading = [&] {
    return backend::register_host_read_only(range.pointer(), range.bytes());
  };
  check(allocate_behind_releases(operation, for_reading), operation);
}

/// Pins a range that was entered.
void pin(Range range) {
  const ScopedEvent event{[&] { return about(OperationKind::allocation, operation, range); }};
  populate_for_registration(range.pointer(), range.bytes());
  register_pages(range);
  mark_registered(range);
}

/// Whether all of these addresses are mapped.
bool is_mapped(uintptr_t begin, uintptr_t end) noexcept {
  const uintptr_t first = page_of(begin);
  // With MS_ASYNC the system only checks the mappings.
  return msync(reinterpret_cast<void*>(first), end - first, MS_ASYNC) == 0 || errno != ENOMEM;
}

}  // namespace

bool detail::has_registered_part(const void* pointer, size_t bytes) noexcept {
  if (!has_registered.load(std::memory_order_acquire)) return false;
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  const std::lock_guard lock{registrations().mutex};
  const auto found = registrations().behind(begin);
  return found != registrations().all.end() && found->first < begin + bytes;
}

HostRegistration::HostRegistration(const void* pointer, size_t bytes) {
  enter(operation);
  watch_main_thread();
  require_device(0, operation);
  if (pointer == nullptr || bytes == 0)
    throw_invalid_argument(operation, "there is no memory: null, or 0 bytes");
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  uintptr_t end = 0;
  if (__builtin_add_overflow(begin, bytes, &end))
    throw_invalid_argument(operation, "the size runs past the end of the address space");
  if (!is_mapped(begin, end))
    throw_invalid_argument(operation, "there is no memory at a part of these addresses");
  const Range range{begin, end};
  uint64_t owner = 0;
  std::vector<Range> gaps = reserve_gaps(range, owner);
  if (owner == 0) {
    wait_for_releases(operation, release_timeout);
    gaps = reserve_gaps(range, owner);
  }
  if (owner == 0) throw_invalid_argument(operation, "a part of the memory is being unpinned");
  try {
    for (const Range gap : gaps)
      if (!is_pinned_already(gap, begin)) pin(gap);
  } catch (...) {
    unregister_all(owner, range);
    throw;
  }
  pointer_ = range.pointer();
  bytes_ = bytes;
  owner_ = owner;
}

HostRegistration::~HostRegistration() {
  if (pointer_ == nullptr || release_mode_before_wait() == Release::never) return;
  const auto begin = reinterpret_cast<uintptr_t>(pointer_);
  unregister_all(owner_, {begin, begin + bytes_});
}

void* HostRegistration::device_pointer(Device device) const {
  return pointer_ != nullptr ? mapped_pointer(pointer_, device) : nullptr;
}

}  // namespace runnel::inline RUNNEL_ABI
