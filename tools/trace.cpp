// SPDX-License-Identifier: Apache-2.0
#include "trace.hpp"

#include "json.hpp"

namespace tool {

namespace {

constexpr double process_id = 1;

/// Adds a metadata event: the name of the process or of a thread, or the position of a thread.
template <class Value>
void describe(Json& json, const char* what, double thread, const char* field, const Value& value) {
  json.open('{');
  json.field("name", what);
  json.field("ph", "M");
  json.field("pid", process_id);
  json.field("tid", thread);
  json.key("args");
  json.open('{');
  json.field(field, value);
  json.close('}');
  json.close('}');
  json.line();
}

}  // namespace

std::string trace_events(const std::vector<Lane>& lanes, const std::string& process) {
  Json json;
  json.open('{');
  json.field("displayTimeUnit", "ms");
  json.key("traceEvents");
  json.open('[');
  describe(json, "process_name", 0, "name", process);
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const auto thread = static_cast<double>(i + 1);
    describe(json, "thread_name", thread, "name", lanes[i].name);
    describe(json, "thread_sort_index", thread, "sort_index", thread);
    for (const Bar& bar : lanes[i].bars) {
      json.open('{');
      json.field("name", name_of(bar.step));
      json.field("cat", bar.step == Step::compute ? "compute" : bar.step == Step::read || bar.step == Step::write ? "file" : "transfer");
      json.field("ph", "X");
      json.field("pid", process_id);
      json.field("tid", thread);
      json.field("ts", 1000 * bar.start_ms);
      json.field("dur", 1000 * (bar.stop_ms - bar.start_ms));
      json.key("args");
      json.open('{');
      json.field("chunk", static_cast<double>(bar.chunk));
      json.close('}');
      json.close('}');
      json.line();
    }
  }
  json.close(']');
  json.close('}');
  return json.text() + "\n";
}

}  // namespace tool
