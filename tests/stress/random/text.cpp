// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include <array>
#include <utility>

namespace random_programs {
namespace {

constexpr std::array stream_kinds{"own",    "blocking", "device_default", "thread_default",
                                  "leased", "borrowed"};
constexpr std::array buffer_kinds{"pageable", "pinned", "registered", "device", "managed"};
constexpr std::array calls_by_name{"wait_stream",
                                   "wait_value",
                                   "wait_recorded",
                                   "record_event",
                                   "wait_event",
                                   "leave_mark",
                                   "wait_mark",
                                   "synchronize",
                                   "synchronize_event",
                                   "synchronize_mark",
                                   "synchronize_device",
                                   "open_gate",
                                   "make_stream",
                                   "make_buffer",
                                   "write_host",
                                   "drop_buffer",
                                   "resize_buffer",
                                   "set_stream",
                                   "copy",
                                   "copy_2d",
                                   "row",
                                   "list",
                                   "fill",
                                   "fill_2d",
                                   "scratch_pinned",
                                   "scratch_device",
                                   "record_stream",
                                   "read_function",
                                   "write_function",
                                   "throw_function",
                                   "wait_function",
                                   "gate",
                                   "busy_function",
                                   "plain_function",
                                   "completion",
                                   "compare",
                                   "compare_copied",
                                   "query",
                                   "show_handle",
                                   "move_event",
                                   "drop_event",
                                   "elapsed",
                                   "trim",
                                   "overlap",
                                   "graph",
                                   "refuse",
                                   "starve",
                                   "fork_child"};
static_assert(calls_by_name.size() == static_cast<size_t>(Call::fork_child) + 1);

constexpr std::pair<const char*, int Step::*> places[] = {
    {"stream", &Step::stream},     {"other_stream", &Step::other_stream},
    {"buffer", &Step::buffer},     {"source", &Step::source},
    {"third", &Step::third},       {"event", &Step::event},
    {"mark", &Step::mark},         {"device", &Step::device},
    {"function", &Step::function}, {"exception", &Step::exception}};
constexpr std::pair<const char*, size_t Step::*> sizes[] = {
    {"at", &Step::at},       {"source_at", &Step::source_at},
    {"bytes", &Step::bytes}, {"height", &Step::height},
    {"pitch", &Step::pitch}, {"source_pitch", &Step::source_pitch}};
constexpr std::pair<const char*, unsigned Step::*> choices[] = {
    {"value", &Step::value}, {"form", &Step::form}, {"parts", &Step::parts}};

/// The numbers that differ from those of a call that has none.
template <class Fields>
void add(std::string& line, const Fields& fields, const Step& step) {
  for (const auto& [name, field] : fields)
    if (step.*field != Step{}.*field)
      line += std::string{" "} + name + "=" + std::to_string(step.*field);
}

std::string line_of(const Step& step) {
  std::string line = nth(calls_by_name, step.call);
  add(line, places, step);
  add(line, sizes, step);
  add(line, choices, step);
  if (step.answer != Answer::any)
    line += step.answer == Answer::yes ? " must be true" : " must be false";
  if (step.digest != 0) line += " digest=" + std::to_string(step.digest);
  return line;
}

}  // namespace

std::string to_text(const Program& program, const Calls& calls) {
  std::string text = "program " + std::to_string(program.seed) + "\n";
  for (size_t i : range(program.streams.size())) {
    const StreamSlot& slot = program.streams[i];
    text += "stream " + std::to_string(i) + ": " + nth(stream_kinds, slot.kind) + ", device " +
            std::to_string(slot.device) +
            (slot.owner >= 0 ? ", of stream " + std::to_string(slot.owner) : "") + "\n";
  }
  for (size_t i : range(program.buffers.size())) {
    const BufferSlot& slot = program.buffers[i];
    text += "buffer " + std::to_string(i) + ": " + nth(buffer_kinds, slot.kind) + ", device " +
            std::to_string(slot.device) + ", " + std::to_string(slot.size) + " bytes\n";
  }
  for (const Lowered& operation : calls.operations) {
    text += "operation " + std::to_string(operation.place) + ", thread " +
            std::to_string(operation.thread);
    if (operation.visit != 0) text += ", visit " + std::to_string(operation.visit);
    for (const int other : operation.after) text += ", after " + std::to_string(other);
    text += "\n";
    for (const Step& step : operation.steps) text += "  " + line_of(step) + "\n";
  }
  return text;
}

}  // namespace random_programs
