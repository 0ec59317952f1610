// SPDX-License-Identifier: Apache-2.0
#include "memory/pinned_pages.hpp"

#include "base/available_memory.hpp"
#include "base/check.hpp"
#include "base/never_destroyed.hpp"
#include "base/populate.hpp"
#include "base/sync.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

constexpr size_t registration_threshold = size_t{8}
                                          << 20;  // Smaller blocks would gain less than 3 ms.
constexpr size_t huge_page = size_t{2} << 20;
constexpr size_t bytes_per_thread = size_t{4} << 20;
constexpr size_t max_threads = 16;

/// The addresses and sizes of the blocks that map_and_register() has allocated.
struct RegisteredBlocks {
  sync::Mutex lock;
  std::map<void*, size_t> all;
};
RegisteredBlocks& registered_blocks() { return never_destroyed<RegisteredBlocks>(); }

size_t round_up(size_t bytes, size_t unit) noexcept { return (bytes + unit - 1) / unit * unit; }

/// Calls `f(first, last)` for parts of the range, on several threads if it is large.
template <class F>
void in_parts(uintptr_t begin, uintptr_t end, F f) noexcept {
  const size_t cores = std::max(1U, std::thread::hardware_concurrency());
  const size_t parts =
      std::clamp<size_t>((end - begin) / bytes_per_thread, 1, std::min(max_threads, cores));
  const size_t part = round_up((end - begin) / parts, huge_page);
  std::vector<std::thread> threads;
  uintptr_t at = begin;
  try {
    threads.reserve(parts);
    for (; end - at > part; at += part) threads.emplace_back(f, at, at + part);
  } catch (const std::system_error&) {  // No further thread can be started: this thread processes
                                        // the rest.
  } catch (const std::bad_alloc&) {
  }
  f(at, end);
  for (std::thread& each : threads) each.join();
}

/// Requires: the pages are new. Several times faster than populate(), in which threads wait for
/// each other.
void touch(uintptr_t begin, uintptr_t end) noexcept {
  for (uintptr_t at = begin; at < end; at += page_bytes())
    *reinterpret_cast<volatile unsigned char*>(at) = 0;
}

/// Maps new pages that are aligned to a huge page; returns null if the system has no memory.
[[nodiscard]] void* map_pages(size_t bytes) noexcept {
  void* const mapped =
      mmap(nullptr, bytes + huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const auto all = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t begin = round_up(all, huge_page);
  if (begin != all) munmap(mapped, begin - all);
  if (const size_t rest = all + huge_page - begin; rest != 0)
    munmap(reinterpret_cast<void*>(begin + bytes), rest);
  return reinterpret_cast<void*>(begin);
}

/// Returns false if there is no memory for the entry.
[[nodiscard]] bool add_registered(void* memory, size_t bytes) noexcept try {
  const std::lock_guard lock{registered_blocks().lock};
  registered_blocks().all.emplace(memory, bytes);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

/// Maps huge pages and registers them. Returns null if this fails; the caller then uses the
/// runtime's own allocation.
[[nodiscard]] void* map_and_register(size_t bytes) noexcept {
  if (bytes > available_memory().value_or(0) / 2) return nullptr;
  void* const memory = map_pages(bytes);
  if (memory == nullptr) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  static_cast<void>(madvise(memory, bytes, MADV_HUGEPAGE));
  in_parts(begin, begin + bytes, touch);
  if (succeeded_or_forget(backend::register_host(memory, bytes)) && add_registered(memory, bytes))
    return memory;
  // The registration may have succeeded even if it returned an error.
  succeeded_or_forget(backend::unregister_host(memory));
  munmap(memory, bytes);
  return nullptr;
}

}  // namespace

backend::status allocate_pinned_pages(void*& memory, size_t bytes) noexcept {
  if (bytes >= registration_threshold && backend::prefers_registered_pages())
    memory = map_and_register(round_up(bytes, page_bytes()));
  return memory != nullptr ? backend::ok : backend::malloc_host(memory, bytes);
}

backend::status free_pinned_pages(void* memory) noexcept {
  std::map<void*, size_t>::node_type block;
  {
    const std::lock_guard lock{registered_blocks().lock};
    block = registered_blocks().all.extract(memory);
  }
  if (block.empty()) return backend::free_host(memory);
  const backend::status s = backend::unregister_host(memory);
  // After an error the pages stay mapped, because they may still be registered: a new mapping at
  // their address could not be registered.
  if (s == backend::ok) munmap(memory, block.mapped());
  return s;
}

size_t machine_memory() noexcept {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * page_bytes();
}

void populate_for_registration(void* memory, size_t bytes) noexcept {
  const auto begin = reinterpret_cast<uintptr_t>(memory) / page_bytes() * page_bytes();
  const uintptr_t end = round_up(reinterpret_cast<uintptr_t>(memory) + bytes, page_bytes());
  if (end - begin >= registration_threshold && backend::prefers_registered_pages())
    in_parts(begin, end, [](uintptr_t from, uintptr_t to) noexcept {
      static_cast<void>(populate(from, to, PageUse::write));
    });
}

}  // namespace runnel::inline RUNNEL_ABI::detail
