// SPDX-License-Identifier: Apache-2.0
#include "exhaustion.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <string_view>

using std::size_t;

namespace sweep::exhaustion {
namespace {

constexpr long never = std::numeric_limits<long>::max();
enum class What { none, memory, threads };

/// The code of some loaded files: one, or one and what is built upon it.
struct Code {
  struct Range {
    std::uintptr_t begin = 0, end = 0;
  };
  std::array<Range, 2> files{};
  bool contains(const void* address) const noexcept {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    return std::any_of(files.begin(), files.end(),
                       [&](Range each) { return each.begin <= at && at < each.end; });
  }
};

constinit Code library, runtime, program;
constinit bool counting = false;  // set before the first thread starts
constinit What what = What::none;
constinit bool lasting = false;
constinit std::atomic_long planned_call{never};
constinit std::atomic_bool recovered{false};
constinit std::atomic_long allocations{0};
constinit std::atomic_long threads{0};
constinit std::atomic_int faults{0};
constinit std::atomic<size_t> blocks{0};
constinit char where[256] = "";
thread_local constinit int paused = 0;

int note_file(dl_phdr_info* info, size_t, void*) {
  const std::string_view name = info->dlpi_name;
  const auto has = [&](const char* part) { return name.find(part) != name.npos; };
  const bool is_first = name.empty() && program.files[0].begin == 0;
  Code* const code =
      is_first                                                                         ? &program
      : has("/librunnel-")                                                             ? &library
      : has("/libcudart") || has("/libamdhip64") || has("/libnccl") || has("/librccl") ? &runtime
                                                                                       : nullptr;
  if (code == nullptr) return 0;
  Code::Range& range = code->files[code->files[0].begin == 0 ? 0 : 1];
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    range.begin = info->dlpi_addr + part.p_vaddr;
    range.end = range.begin + part.p_memsz;
  }
  return 0;
}

/// The place in the library that made the call which returns to `caller`; null if another file made
/// it. A call through the C++ library belongs to the file that called the C++ library.
const void* place_in_library(const void* caller) noexcept {
  if (library.contains(caller)) return caller;
  if (program.contains(caller) || runtime.contains(caller)) return nullptr;
  std::array<void*, 32> frames{};
  const auto end = frames.begin() + backtrace(frames.data(), static_cast<int>(frames.size()));
  // The first frames are those of this file, which is a part of the program.
  auto frame = std::find(frames.begin(), end, caller);
  while (frame != end && !library.contains(*frame) && !program.contains(*frame) &&
         !runtime.contains(*frame))
    ++frame;
  return frame != end && library.contains(*frame) ? *frame : nullptr;
}

void note_place(const void* place) noexcept {
  if (faults.fetch_add(1) > 0) return;
  Dl_info found{};
  if (dladdr(place, &found) == 0 || found.dli_fname == nullptr) return;
  const char* const slash = std::strrchr(found.dli_fname, '/');
  std::snprintf(where, sizeof where, "%s+%#zx", slash == nullptr ? found.dli_fname : slash + 1,
                static_cast<size_t>(static_cast<const char*>(place) -
                                    static_cast<const char*>(found.dli_fbase)));
}

/// Counts a call that the library makes at `place`. True if it has to fail.
bool must_fail(What kind, std::atomic_long& count, const void* place) noexcept {
  const long number = count.fetch_add(1) + 1;
  if (kind != what) return false;
  const long planned = planned_call.load();
  const bool fails = lasting ? number >= planned && !recovered.load() : number == planned;
  if (fails) note_place(place);
  return fails;
}

/// What precedes each block of operator new.
struct Prefix {
  bool of_library;
};
constexpr size_t least_unit = 16;

void* allocate(size_t bytes, size_t unit, const void* caller) {
  const void* const place = counting && paused == 0 ? place_in_library(caller) : nullptr;
  if (place != nullptr && must_fail(What::memory, allocations, place)) throw std::bad_alloc{};
  unit = std::max(unit, least_unit);
  void* memory = nullptr;
  if (posix_memalign(&memory, unit, unit + bytes) != 0) throw std::bad_alloc{};
  auto* const base = static_cast<unsigned char*>(memory);
  new (base + unit - sizeof(Prefix)) Prefix{place != nullptr};
  if (place != nullptr) blocks.fetch_add(1);
  return base + unit;
}

void release(void* block, size_t unit) noexcept {
  if (block == nullptr) return;
  auto* const bytes = static_cast<unsigned char*>(block);
  if (reinterpret_cast<Prefix*>(bytes - sizeof(Prefix))->of_library) blocks.fetch_sub(1);
  std::free(bytes - std::max(unit, least_unit));
}

void read_plan() {
  const char* const text = std::getenv("SWEEP_EXHAUST");
  if (text == nullptr) return;
  char kind[16] = {}, form[16] = {};
  long call = 0;
  if (std::sscanf(text, "what=%15[a-z];call=%ld;form=%15[a-z]", kind, &call, form) != 3) {
    std::fprintf(stderr, "SWEEP_EXHAUST=%s is not understood\n", text);
    std::exit(2);
  }
  what = std::strcmp(kind, "threads") == 0 ? What::threads : What::memory;
  lasting = std::strcmp(form, "lasting") == 0;
  planned_call = call;
}

}  // namespace

void begin() {
  std::array<void*, 4> frames{};
  static_cast<void>(backtrace(frames.data(), 4));  // its first call allocates
  dl_iterate_phdr(note_file, nullptr);
  if (library.files[0].begin == 0) {
    std::printf(
        "the library is a part of the program, so its calls cannot be told from those of the "
        "program\n");
    std::exit(77);
  }
  read_plan();
  counting = true;
}

bool is_planned() noexcept { return what != What::none; }
View view() noexcept {
  return {allocations.load(),
          threads.load(),
          faults.load(),
          lasting && faults.load() > 0 && !recovered.load(),
          where,
          blocks.load()};
}
void recover() noexcept { recovered = true; }
long calls() noexcept { return what == What::threads ? threads.load() : allocations.load(); }
void plan_again(long distance) noexcept { planned_call = calls() + distance; }

Pause::Pause() noexcept { ++paused; }
Pause::~Pause() { --paused; }

}  // namespace sweep::exhaustion

// The library uses these replacements of the program, and so does the C++ library, whose forms for
// arrays call them.
using sweep::exhaustion::allocate;
using sweep::exhaustion::release;
void* operator new(size_t bytes) { return allocate(bytes, 1, __builtin_return_address(0)); }
void* operator new(size_t bytes, std::align_val_t unit) {
  return allocate(bytes, static_cast<size_t>(unit), __builtin_return_address(0));
}
void operator delete(void* block) noexcept { release(block, 1); }
void operator delete(void* block, size_t) noexcept { release(block, 1); }
void operator delete(void* block, std::align_val_t unit) noexcept {
  release(block, static_cast<size_t>(unit));
}
void operator delete(void* block, size_t, std::align_val_t unit) noexcept {
  release(block, static_cast<size_t>(unit));
}

extern "C" void* aligned_alloc(size_t unit, size_t bytes) noexcept {
  using namespace sweep::exhaustion;
  const void* const place =
      counting && paused == 0 ? place_in_library(__builtin_return_address(0)) : nullptr;
  void* block = nullptr;
  if (place != nullptr && must_fail(What::memory, allocations, place)) return nullptr;
  return posix_memalign(&block, unit, bytes) == 0 ? block : nullptr;
}

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) noexcept {
  using namespace sweep::exhaustion;
  const void* const place =
      counting && paused == 0 ? place_in_library(__builtin_return_address(0)) : nullptr;
  if (place != nullptr && must_fail(What::threads, threads, place)) return EAGAIN;
  static const auto next =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return next(thread, attributes, start, argument);
}
