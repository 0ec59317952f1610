// SPDX-License-Identifier: Apache-2.0
/// Compiled only in a build with the option find_races.
#include "base/announce_races.hpp"

#include <unwind.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <new>

// ThreadSanitizer's interface. An instrumented program defines these functions; in other programs
// they are null.
extern "C" {
[[gnu::weak]] void __tsan_acquire(void*);
[[gnu::weak]] void __tsan_release(void*);
[[gnu::weak]] void __tsan_read_range(void*, unsigned long);
[[gnu::weak]] void __tsan_write_range(void*, unsigned long);
[[gnu::weak]] void __tsan_func_entry(void*);
[[gnu::weak]] void __tsan_func_exit();
[[gnu::weak]] void AnnotateIgnoreWritesBegin(const char*, int);
[[gnu::weak]] void AnnotateIgnoreWritesEnd(const char*, int);
[[gnu::weak]] void AnnotateIgnoreSyncBegin(const char*, int);
[[gnu::weak]] void AnnotateIgnoreSyncEnd(const char*, int);
// The beginning and the end of this library's code, defined by the linker.
[[gnu::visibility("hidden")]] extern const char __ehdr_start;
[[gnu::visibility("hidden")]] extern const char etext;
}

namespace runnel::inline RUNNEL_ABI::sync {

void happens_before(const void* address) noexcept {
  if (__tsan_release != nullptr && address != nullptr) __tsan_release(const_cast<void*>(address));
}
void happens_after(const void* address) noexcept {
  if (__tsan_acquire != nullptr && address != nullptr) __tsan_acquire(const_cast<void*>(address));
}
void reads(const void* from, std::size_t bytes) noexcept {
  if (__tsan_read_range != nullptr) __tsan_read_range(const_cast<void*>(from), bytes);
}
void writes(void* to, std::size_t bytes) noexcept {
  if (__tsan_write_range != nullptr) __tsan_write_range(to, bytes);
}

Token Token::make() noexcept {
  if (__tsan_release == nullptr) return {};
  Token token;
  try {
    token.address_ = std::make_shared<char>();
  } catch (const std::bad_alloc&) {
  }
  return token;
}

// Ignoring writes ignores reads, too.
TsanIgnore::TsanIgnore() noexcept {
  if (AnnotateIgnoreWritesBegin == nullptr) return;
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
}
TsanIgnore::~TsanIgnore() {
  if (AnnotateIgnoreWritesEnd == nullptr) return;
  AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
}

namespace {

bool is_in_library(std::uintptr_t address) noexcept {
  return address >= reinterpret_cast<std::uintptr_t>(&__ehdr_start) &&
         address < reinterpret_cast<std::uintptr_t>(&etext);
}

_Unwind_Reason_Code note_frame(_Unwind_Context* context, void* data) {
  CallStack& stack = *static_cast<CallStack*>(data);
  const std::uintptr_t address = _Unwind_GetIP(context);
  if (is_in_library(address)) return _URC_NO_REASON;
  stack.addresses[stack.count++] = reinterpret_cast<void*>(address);
  return stack.count < CallStack::most ? _URC_NO_REASON : _URC_END_OF_STACK;
}

}  // namespace

void CallStack::read() noexcept {
  count = 0;
  if (__tsan_func_entry == nullptr) return;
  const TsanIgnore ignore;
  _Unwind_Backtrace(note_frame, this);
}

CalledBy::CalledBy(const CallStack& stack) noexcept : count_{stack.count} {
  for (std::size_t i = stack.count; i-- > 0;) __tsan_func_entry(stack.addresses[i]);
}
CalledBy::~CalledBy() {
  for (std::size_t i = 0; i < count_; ++i) __tsan_func_exit();
}

}  // namespace runnel::inline RUNNEL_ABI::sync

// ThreadSanitizer intercepts some functions of the C and C++ libraries, for all callers. The linker
// redirects this library's calls to the wrappers below (--wrap, src/meson.build), so that accesses
// to the library's own memory are ignored. std::aligned_alloc and std::free stay intercepted: the
// library uses them for user memory only.
using runnel::sync::TsanIgnore;

/// Defines the wrapper of one function.
#define RUNNEL_HIDE(result, name, parameters, arguments) \
  result __real_##name parameters;                       \
  result __wrap_##name parameters {                      \
    const TsanIgnore ignore;                             \
    return __real_##name arguments;                      \
  }

extern "C" {

RUNNEL_HIDE(void*, memcpy, (void* to, const void* from, std::size_t bytes), (to, from, bytes))
RUNNEL_HIDE(void*, memmove, (void* to, const void* from, std::size_t bytes), (to, from, bytes))
RUNNEL_HIDE(void*, memset, (void* to, int value, std::size_t bytes), (to, value, bytes))
RUNNEL_HIDE(int, memcmp, (const void* a, const void* b, std::size_t bytes), (a, b, bytes))
RUNNEL_HIDE(void*, memchr, (const void* in, int value, std::size_t bytes), (in, value, bytes))
RUNNEL_HIDE(int, strcmp, (const char* a, const char* b), (a, b))
RUNNEL_HIDE(int, strncmp, (const char* a, const char* b, std::size_t size), (a, b, size))
RUNNEL_HIDE(std::size_t, strlen, (const char* text), (text))
[[gnu::format(printf, 3, 4)]] int __wrap_snprintf(char* to, std::size_t size, const char* format,
                                                  ...) {
  const TsanIgnore ignore;
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(to, size, format, arguments);
  va_end(arguments);
  return length;
}

RUNNEL_HIDE(void*, _Znwm, (std::size_t bytes), (bytes))
RUNNEL_HIDE(void*, _ZnwmSt11align_val_t, (std::size_t bytes, std::size_t to), (bytes, to))
RUNNEL_HIDE(void*, _ZnwmRKSt9nothrow_t, (std::size_t bytes, const std::nothrow_t& tag),
            (bytes, tag))
RUNNEL_HIDE(void*, _Znam, (std::size_t bytes), (bytes))
RUNNEL_HIDE(void, _ZdlPv, (void* block), (block))
RUNNEL_HIDE(void, _ZdlPvm, (void* block, std::size_t bytes), (block, bytes))
RUNNEL_HIDE(void, _ZdlPvmSt11align_val_t, (void* block, std::size_t bytes, std::size_t to),
            (block, bytes, to))
RUNNEL_HIDE(void, _ZdaPv, (void* block), (block))
RUNNEL_HIDE(void, _ZdaPvm, (void* block, std::size_t bytes), (block, bytes))

RUNNEL_HIDE(int, __cxa_guard_acquire, (void* guard), (guard))
RUNNEL_HIDE(void, __cxa_guard_release, (void* guard), (guard))

}  // extern "C"

#undef RUNNEL_HIDE
