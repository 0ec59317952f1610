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

constexpr std::size_t most_frames = 20;  // of which the library's own are not shown
constexpr std::size_t most_shown = 6;

/// Addresses of calls, the innermost first; null behind the last.
using Frames = std::array<void*, most_frames>;

struct Stacks {
  sync::Mutex mutex;
  std::map<Frames, StackId> numbers;
  std::vector<Frames> frames;
};
Stacks& stacks() { return detail::never_destroyed<Stacks>(); }

[[nodiscard]] StackId number_of(const Frames& frames) {
  const std::lock_guard lock{stacks().mutex};
  const auto [found, is_new] =
      stacks().numbers.try_emplace(frames, static_cast<StackId>(stacks().frames.size()));
  if (is_new) stacks().frames.push_back(frames);
  return found->second;
}

/// A stack that was walked, and the places in memory from which its return addresses came. If the
/// same places hold the same addresses, it is the same stack: to look is a hundred times as fast as
/// to walk.
struct Walk {
  Frames frames{};
  std::array<void* const*, most_frames> places{};
  std::size_t count = 0;
  bool has_places = true;  // every address was found where an x86-64 call stores it
  StackId id = 0;
};

_Unwind_Reason_Code add_frame(_Unwind_Context* context, void* data) noexcept {
  Walk& walk = *static_cast<Walk*>(data);
  if (walk.count == most_frames) return _URC_END_OF_STACK;
  void* const address = reinterpret_cast<void*>(_Unwind_GetIP(context));
  if (address == nullptr) return _URC_END_OF_STACK;
  if (walk.count > 0) {  // the first frame is this file's own
    auto* const place = reinterpret_cast<void* const*>(_Unwind_GetCFA(context)) - 1;
#ifdef __x86_64__
    walk.has_places = walk.has_places && *place == address;
#else
    walk.has_places = false;
#endif
    walk.places[walk.count] = place;
  }
  walk.frames[walk.count++] = address;
  return _URC_NO_REASON;
}

[[nodiscard]] bool is_same(const Walk& walk) noexcept {
  for (std::size_t i = 1; i < walk.count; ++i)
    if (*walk.places[i] != walk.frames[i]) return false;
  return walk.has_places && walk.count > 1;
}

struct Line {
  std::string function;
  std::string text;
};

[[nodiscard]] std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text{
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free};
  return text != nullptr ? text.get() : name;
}

/// The functions of one return address, the innermost inlined one first.
using Lines = std::vector<Line>;

struct Call {
  const char* module = nullptr;
  std::uintptr_t offset = 0;
  Lines lines{};
};

/// A function whose source line is not known.
[[nodiscard]] Line line_in_module(const std::string& function, const Call& call) {
  std::ostringstream text;
  text << function << " (" << call.module << "+0x" << std::hex << call.offset << ")";
  return {function, text.str()};
}

/// Reads what addr2line says of each call: the address, and then "function at file:line" for each
/// inlined function and for the function.
void read_lines(std::FILE* from, const std::vector<Call*>& calls) {
  constexpr std::string_view inlined = " (inlined by) ";
  char text[4096];
  auto next = calls.begin();
  Call* call = nullptr;
  while (std::fgets(text, sizeof text, from) != nullptr) {
    std::string line{text};
    while (!line.empty() && line.back() == '\n') line.pop_back();
    if (line.rfind("0x", 0) == 0) {
      if (next == calls.end()) return;
      call = *next++;
      line.erase(0, line.find(' ') + 1);  // with -p the first function stands on the same line
    }
    if (line.rfind(inlined, 0) == 0) line.erase(0, inlined.size());
    const std::size_t at = line.rfind(" at ");
    if (call == nullptr || at == std::string::npos) continue;
    const std::string function = line.substr(0, at);
    if (line.compare(at, 6, " at ??") != 0)
      call->lines.push_back({function, line});
    else if (function != "??")  // a program without debug information
      call->lines.push_back(line_in_module(function, *call));
  }
}

/// Asks addr2line, if it is installed, for the source lines of calls in one module.
void find_source_lines(const char* module, const std::vector<Call*>& calls) {
  if (std::strchr(module, '\'') != nullptr) return;
  std::ostringstream command;
  command << "addr2line -aCfip -e '" << module << "'" << std::hex;
  for (const Call* const call : calls) command << " 0x" << call->offset;
  command << " 2>/dev/null";
  std::FILE* const output = popen(command.str().c_str(), "r");
  if (output == nullptr) return;
  read_lines(output, calls);
  pclose(output);
}

/// The functions of each return address. An address lies behind its call: the byte before it
/// belongs to the call.
[[nodiscard]] std::vector<Call> find_calls(const Frames& frames) {
  std::vector<Call> calls(frames.size());
  std::map<std::string_view, std::vector<Call*>> by_module;
  std::vector<Dl_info> symbols(frames.size());
  for (std::size_t i = 1; i < frames.size() && frames[i] != nullptr; ++i) {
    char* const address = static_cast<char*>(frames[i]) - 1;
    if (dladdr(address, &symbols[i]) == 0 || symbols[i].dli_fname == nullptr) continue;
    calls[i] = {symbols[i].dli_fname,
                static_cast<std::uintptr_t>(address - static_cast<char*>(symbols[i].dli_fbase)),
                {}};
    by_module[calls[i].module].push_back(&calls[i]);
  }
  for (const auto& [module, of_module] : by_module)
    find_source_lines(of_module.front()->module, of_module);
  for (std::size_t i = 0; i < calls.size(); ++i)
    if (calls[i].module != nullptr && calls[i].lines.empty())
      calls[i].lines.push_back(line_in_module(
          symbols[i].dli_sname != nullptr ? demangled(symbols[i].dli_sname) : "?", calls[i]));
  return calls;
}

/// Whether the function's name, without its return type, template arguments and parameters, is one
/// of this library.
[[nodiscard]] bool is_of_library(const Line& line) {
  const std::string name = line.function.substr(0, line.function.find_first_of("<("));
  return name.compare(name.rfind(' ') + 1, 8, "runnel::") == 0;
}

/// Whether the call is in the library's own shared object. addr2line leaves out the namespace of
/// some functions.
[[nodiscard]] bool is_in_library(const Call& call) noexcept {
  const std::string_view path = call.module;
  return path.substr(path.rfind('/') + 1).rfind("librunnel", 0) == 0;
}

struct KnownWalks {
  std::array<Walk, 32> walks{};  // the last walk for each remainder of a sum of addresses
};
thread_local constinit KnownWalks* known_walks = nullptr;

/// The place for the walk that begins at this frame. Hooks that are called in turn, as for
/// allocating and freeing, may have the same frame address; `caller` gives them different places.
[[nodiscard]] Walk& known_walk_of(void* frame, void* caller) {
  if (known_walks == nullptr) {
    known_walks = new KnownWalks;
    detail::at_thread_end([](void*) noexcept { delete std::exchange(known_walks, nullptr); },
                          nullptr);
  }
  const std::uintptr_t sum =
      reinterpret_cast<std::uintptr_t>(frame) / 16 + reinterpret_cast<std::uintptr_t>(caller);
  return known_walks->walks[sum % known_walks->walks.size()];
}

}  // namespace

__attribute__((noinline)) StackId capture_stack() {
  void* const frame = __builtin_frame_address(0);
  Walk& last = known_walk_of(frame, __builtin_return_address(0));
  if (last.frames[0] == frame && is_same(last)) return last.id;
  Walk walk;
  _Unwind_Backtrace(add_frame, &walk);
  Frames frames = walk.frames;
  frames[0] = nullptr;
  walk.frames[0] = frame;  // in place of an address in this function
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
  std::size_t shown = 0;
  for (Call& call : find_calls(frames)) {
    Lines& lines = call.lines;
    if (shown == 0 && !lines.empty() && (is_in_library(call) || is_of_library(lines.back())))
      continue;
    while (shown == 0 && !lines.empty() && is_of_library(lines.front())) lines.erase(lines.begin());
    for (const Line& line : lines) {
      if (shown > 0 && line.function == "?") continue;
      text += "      " + line.text + "\n";
      if (++shown == most_shown || line.function == "main") return text;
    }
  }
  return text;
}

}  // namespace runnel::inline RUNNEL_ABI::checker
