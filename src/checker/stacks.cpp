// SPDX-License-Identifier: Apache-2.0
#include "checker/stacks.hpp"

#include "base/never_destroyed.hpp"
#include "base/sync.hpp"
#include "base/thread_end.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <unwind.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI::checker {
namespace {

constexpr size_t max_frames = 20;  // including the library's own, which are not shown
constexpr size_t max_shown = 6;

/// Return addresses, the innermost first, padded with null.
using Frames = std::array<void*, max_frames>;

struct Stacks {
  sync::Mutex mutex;
  std::map<Frames, StackId> numbers;
  std::vector<Frames> frames;
};
Stacks& stacks() { return detail::never_destroyed<Stacks>(); }

StackId number_of(const Frames& frames) {
  const std::lock_guard lock{stacks().mutex};
  const auto [found, is_new] =
      stacks().numbers.try_emplace(frames, static_cast<StackId>(stacks().frames.size()));
  if (is_new) stacks().frames.push_back(frames);
  return found->second;
}

/// The result of a stack walk, with the stack addresses of its return addresses. If these still
/// hold the same return addresses, the stack is the same. This check is a hundred times faster than
/// a walk.
struct Walk {
  Frames frames{};
  std::array<void* const*, max_frames> locations{};
  size_t count = 0;
  bool has_locations = true;  // Each address was found where an x86-64 call stores it.
  StackId id = 0;
};

_Unwind_Reason_Code add_frame(_Unwind_Context* context, void* data) noexcept {
  Walk& walk = *static_cast<Walk*>(data);
  if (walk.count == max_frames) return _URC_END_OF_STACK;
  void* const address = reinterpret_cast<void*>(_Unwind_GetIP(context));
  if (address == nullptr) return _URC_END_OF_STACK;
  if (walk.count > 0) {  // The first frame is in this file.
    auto* const location = reinterpret_cast<void* const*>(_Unwind_GetCFA(context)) - 1;
#ifdef __x86_64__
    walk.has_locations = walk.has_locations && *location == address;
#else
    walk.has_locations = false;
#endif
    walk.locations[walk.count] = location;
  }
  walk.frames[walk.count++] = address;
  return _URC_NO_REASON;
}

bool is_same(const Walk& walk) noexcept {
  for (size_t i = 1; i < walk.count; ++i)
    if (*walk.locations[i] != walk.frames[i]) return false;
  return walk.has_locations && walk.count > 1;
}

struct SourceLine {
  std::string function;
  std::string text;
};

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text{
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free};
  return text != nullptr ? text.get() : name;
}

/// The functions at one return address, the innermost inlined one first.
using SourceLines = std::vector<SourceLine>;

struct ReturnAddress {
  const char* module = nullptr;
  uintptr_t offset = 0;
  SourceLines lines{};
};

/// For a function without a known source line.
[[nodiscard]] SourceLine line_in_module(const std::string& function, const ReturnAddress& call) {
  std::ostringstream text;
  text << function << " (" << call.module << "+0x" << std::hex << call.offset << ")";
  return {function, text.str()};
}

/// Reads the output of addr2line: for each call the address, and then "function at file:line" for
/// each inlined function and for the function itself.
void read_lines(std::FILE* from, const std::vector<ReturnAddress*>& calls) {
  constexpr std::string_view inlined = " (inlined by) ";
  char text[4096];
  auto next = calls.begin();
  ReturnAddress* call = nullptr;
  while (std::fgets(text, sizeof text, from) != nullptr) {
    std::string line{text};
    if (line.ends_with('\n')) line.pop_back();
    if (line.starts_with("0x")) {
      if (next == calls.end()) return;
      call = *next++;
      line.erase(0, line.find(' ') + 1);  // With -p the first function is on the same line.
    }
    if (line.starts_with(inlined)) line.erase(0, inlined.size());
    const size_t at = line.rfind(" at ");
    if (call == nullptr || at == std::string::npos) continue;
    const std::string function = line.substr(0, at);
    if (line.compare(at, 6, " at ??") != 0)
      call->lines.push_back({function, line});
    else if (function != "??")  // a program without debug information
      call->lines.push_back(line_in_module(function, *call));
  }
}

/// Runs addr2line, if it is installed, for calls in one module.
void find_source_lines(const char* module, const std::vector<ReturnAddress*>& calls) {
  if (std::strchr(module, '\'') != nullptr) return;
  std::ostringstream command;
  command << "addr2line -aCfip -e '" << module << "'" << std::hex;
  for (const ReturnAddress* const call : calls) command << " 0x" << call->offset;
  command << " 2>/dev/null";
  std::FILE* const output = popen(command.str().c_str(), "r");
  if (output == nullptr) return;
  read_lines(output, calls);
  pclose(output);
}

/// The functions of each return address. A return address lies after its call, so the byte before
/// it is looked up.
[[nodiscard]] std::vector<ReturnAddress> find_calls(const Frames& frames) {
  std::vector<ReturnAddress> calls(frames.size());
  std::map<std::string_view, std::vector<ReturnAddress*>> by_module;
  std::vector<Dl_info> symbols(frames.size());
  for (size_t i = 1; i < frames.size() && frames[i] != nullptr; ++i) {
    char* const address = static_cast<char*>(frames[i]) - 1;
    if (dladdr(address, &symbols[i]) == 0 || symbols[i].dli_fname == nullptr) continue;
    calls[i] = {symbols[i].dli_fname,
                static_cast<uintptr_t>(address - static_cast<char*>(symbols[i].dli_fbase)),
                {}};
    by_module[calls[i].module].push_back(&calls[i]);
  }
  for (const auto& [module, of_module] : by_module)
    find_source_lines(of_module.front()->module, of_module);
  for (size_t i = 0; i < calls.size(); ++i)
    if (calls[i].module != nullptr && calls[i].lines.empty())
      calls[i].lines.push_back(line_in_module(
          symbols[i].dli_sname != nullptr ? demangled(symbols[i].dli_sname) : "?", calls[i]));
  return calls;
}

/// Whether the function is one of this library, by its name without return type, template arguments
/// and parameters.
bool is_of_library(const SourceLine& line) {
  const std::string name = line.function.substr(0, line.function.find_first_of("<("));
  return name.compare(name.rfind(' ') + 1, 8, "runnel::") == 0;
}

/// Whether the call is in the library's shared object. addr2line omits the namespace of some
/// functions.
bool is_in_library(const ReturnAddress& call) noexcept {
  const std::string_view path = call.module;
  return path.substr(path.rfind('/') + 1).starts_with("librunnel");
}

using CachedWalks = std::array<Walk, 32>;  // the last walk for each hash of the addresses
thread_local constinit CachedWalks* cached_walks = nullptr;

/// The cache entry for a walk that begins at this frame. Hooks that are called alternately, as for
/// allocations and frees, may have the same frame address; `caller` gives them different entries.
[[nodiscard]] Walk& cached_walk(void* frame, void* caller) {
  if (cached_walks == nullptr) {
    cached_walks = new CachedWalks{};
    detail::at_thread_end([](void*) noexcept { delete std::exchange(cached_walks, nullptr); },
                          nullptr);
  }
  const uintptr_t sum =
      reinterpret_cast<uintptr_t>(frame) / 16 + reinterpret_cast<uintptr_t>(caller);
  return (*cached_walks)[sum % cached_walks->size()];
}

}  // namespace

__attribute__((noinline)) StackId capture_stack() {
  void* const frame = __builtin_frame_address(0);
  Walk& last = cached_walk(frame, __builtin_return_address(0));
  if (last.frames[0] == frame && is_same(last)) return last.id;
  Walk walk;
  _Unwind_Backtrace(add_frame, &walk);
  Frames frames = walk.frames;
  frames[0] = nullptr;
  walk.frames[0] = frame;  // replaces the address in this function
  walk.id = number_of(frames);
  last = walk;
  return walk.id;
}

std::string text_of(StackId stack) {
  if (stack == no_stack) return {};
  Frames frames{};
  {
    const std::lock_guard lock{stacks().mutex};
    frames = stacks().frames[stack];
  }
  std::string text;
  size_t shown = 0;
  for (ReturnAddress& call : find_calls(frames)) {
    SourceLines& lines = call.lines;
    if (shown == 0 && !lines.empty() && (is_in_library(call) || is_of_library(lines.back())))
      continue;
    while (shown == 0 && !lines.empty() && is_of_library(lines.front())) lines.erase(lines.begin());
    for (const SourceLine& line : lines) {
      if (shown > 0 && line.function == "?") continue;
      text += "      " + line.text + "\n";
      if (++shown == max_shown || line.function == "main") return text;
    }
  }
  return text;
}

}  // namespace runnel::inline RUNNEL_ABI::checker
