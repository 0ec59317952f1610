// SPDX-License-Identifier: Apache-2.0
#include "trace.hpp"

#include "json.hpp"

#include <utility>

namespace tool {

namespace {

constexpr int process_id = 1;

/// A metadata event: the name of the process or of a thread, or the position of a thread.
Json describe(const char* what, std::size_t thread, const char* field, const Json& value) {
  return {{"name", what},
          {"ph", "M"},
          {"pid", process_id},
          {"tid", thread},
          {"args", {{field, value}}}};
}

Json event_of(const Bar& bar, std::size_t thread) {
  const bool is_of_file = bar.step == Step::read || bar.step == Step::write;
  return {{"name", name_of(bar.step)},
          {"cat", bar.step == Step::compute ? "compute"
                  : is_of_file              ? "file"
                                            : "transfer"},
          {"ph", "X"},
          {"pid", process_id},
          {"tid", thread},
          {"ts", 1000 * bar.start_ms},
          {"dur", 1000 * (bar.stop_ms - bar.start_ms)},
          {"args", {{"chunk", bar.chunk}}}};
}

}  // namespace

std::string trace_events(const std::vector<Lane>& lanes, const std::string& process) {
  Json events = Json::array({describe("process_name", 0, "name", process)});
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const std::size_t thread = i + 1;
    events.push_back(describe("thread_name", thread, "name", lanes[i].name));
    events.push_back(describe("thread_sort_index", thread, "sort_index", thread));
    for (const Bar& bar : lanes[i].bars) events.push_back(event_of(bar, thread));
  }
  return to_line({{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}) + "\n";
}

}  // namespace tool
