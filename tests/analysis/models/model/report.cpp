// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include "state.hpp"

#include <link.h>
#include <unistd.h>
#include <algorithm>

#include <cstdio>
#include <map>

namespace model {
namespace {

constexpr size_t max_shown = 300;
constexpr const char* order_names[] = {"relaxed", "consume", "acquire",
                                       "release", "acq_rel", "seq_cst"};

/// How far the program lies from the addresses in its file.
uintptr_t program_base() {
  uintptr_t base = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* result) {
        *static_cast<uintptr_t*>(result) = info->dlpi_addr;
        return 1;
      },
      &base);
  return base;
}

/// Neither the standard library's nor the checker's.
bool is_own(const std::string& line) {
  for (const char* const other : {"/usr/", "/model/", "??"})
    if (line.find(other) != std::string::npos) return false;
  return true;
}

/// "function, file:line" of return addresses, from binutils' addr2line.
class Lines {
 public:
  void want(uintptr_t where) {
    if (where != 0) lines_[where];
  }
  void find() {
    char text[64];
    std::snprintf(text, sizeof text, "/proc/%d/exe", static_cast<int>(getpid()));
    std::string command = std::string{"addr2line -a -f -C -i -e "} + text;
    const uintptr_t base = program_base();
    for (const auto& each : lines_) {
      std::snprintf(text, sizeof text, " %#lx",
                    // within the call, which it returns from
                    static_cast<unsigned long>(each.first - base - 1));
      command += text;
    }
    if (std::FILE* const answer = popen((command + " 2>/dev/null").c_str(), "r")) {
      read(answer);
      pclose(answer);
    }
  }
  const char* operator[](uintptr_t where) const {
    const auto found = lines_.find(where);
    return found == lines_.end() || found->second.empty() ? "(no line)" : found->second.c_str();
  }

 private:
  /// For each address, in order: the address, and then a function and its line, for each function
  /// that was inlined there.
  void read(std::FILE* answer) {
    auto place = lines_.end();
    char line[4096], function[4096] = "";
    for (bool is_function = true; std::fgets(line, sizeof line, answer) != nullptr;) {
      line[std::string{line}.find_last_not_of('\n') + 1] = 0;
      if (line[0] == '0' && line[1] == 'x') {
        place = place == lines_.end() ? lines_.begin() : std::next(place);
        is_function = true;
      } else if (is_function) {
        std::snprintf(function, sizeof function, "%s", line);
        is_function = false;
      } else {
        is_function = true;
        const std::string own = is_own(line)
                                    ? short_name(function) + ", " +
                                          std::string{line}.substr(0, std::string{line}.find(' '))
                                    : "";
        if (place != lines_.end() && place->second.empty()) place->second = own;
      }
    }
  }
  static std::string short_name(std::string function) {
    function = function.substr(0, function.find('('));
    for (size_t at; (at = function.rfind("::")) != std::string::npos &&
                    function.find('<') == std::string::npos;)
      function = function.substr(at + 2);
    return function;
  }
  std::map<uintptr_t, std::string> lines_;
};

void print_operation(size_t number, const Operation& operation, const Lines& lines) {
  char age[32] = "";
  const bool is_store = operation.name[0] == 's' && operation.name[1] == 't';
  if (operation.age > 0)
    std::snprintf(age, sizeof age, is_store ? " (before the last %d)" : " (%d older)",
                  operation.age);
  std::printf("  %4zu  thread %-2d %-9s %-8s #%-4u = %#lx%s  %s\n", number, operation.thread,
              operation.name, order_names[operation.order], operation.location, operation.value,
              age, lines[operation.where]);
}

void print_threads(const Lines& lines) {
  constexpr const char* names[] = {
      "ready", "has yielded", "sleeps for a time", "waits for a lock or a thread",
      "waits", "has ended"};
  for (int i : range(state->threads)) {
    uintptr_t last = 0;
    for (size_t k = state->traced; k-- > 0 && last == 0;)
      if (trace[k].thread == i) last = trace[k].where;
    std::printf("  thread %-2d %s; last at %s\n", i,
                names[static_cast<int>(nth(state->all, i).status)], lines[last]);
  }
}

}  // namespace

void print_failure(const Check& check, const std::string& replay) {
  Lines lines;
  const size_t first = state->traced > max_shown ? state->traced - max_shown : 0;
  for (size_t i : range(state->traced)) lines.want(trace[i].where);
  for (const auto& each : state->blamed) lines.want(each.where);
  lines.find();
  for (size_t i = first; i < state->traced; ++i) print_operation(i, trace[i], lines);
  print_threads(lines);
  std::printf("%s: %s\n", check.name, state->failure != nullptr ? state->failure : "nothing found");
  if (state->blamed[1].where != 0) {
    std::printf("  thread %d wrote it at %s\n", state->blamed[0].thread,
                lines[state->blamed[0].where]);
    std::printf("  thread %d is at %s\n", state->blamed[1].thread, lines[state->blamed[1].where]);
  }
  std::printf("to repeat this run: %s --replay %s\n", check.name, replay.c_str());
  std::fflush(stdout);
}

}  // namespace model
