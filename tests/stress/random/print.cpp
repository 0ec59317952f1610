// SPDX-License-Identifier: Apache-2.0
#include "print.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <set>

#include "rows.hpp"

namespace random_programs {
namespace {

constexpr const char* bytes_text =
#include "bytes_text.inc"
    ;

constexpr const char* before_main = R"(
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <optional>
#include <runnel/runnel.hpp>
#include <span>
#include <thread>
#include <vector>

using namespace runnel;
using namespace random_programs;
using namespace std::chrono_literals;

struct Thrown {
  int operation;
};
struct Wide {
  std::uint32_t words[3];
};
struct Flags {
  std::atomic<int> ran[256]{};  // host functions, by operation
  std::atomic<bool> opened[256]{};  // gates
  std::atomic<bool> submitted[256]{};
};
static Flags& flags = *new Flags;  // host functions may run after main() has returned

[[noreturn]] inline void fail(int operation, const char* what) {
  std::printf("operation %d: %s\n", operation, what);
  std::fflush(stdout);
  std::_Exit(1);
}
inline void compare(int operation, const unsigned char* bytes, std::size_t size, std::uint64_t expected) {
  if (digest(bytes, size) != expected) fail(operation, "wrong bytes");
}
inline void compare_if_done(int operation, CopyResult result, const unsigned char* bytes, std::size_t size, std::uint64_t expected) {
  if (result == CopyResult::inlined) compare(operation, bytes, size, expected);
}
template <class T>
T element(unsigned value) {
  T result;
  write_pattern(reinterpret_cast<unsigned char*>(&result), sizeof result, value);
  return result;
}
template <class F>
void must_throw(int operation, errc code, F&& f) {
  try {
    f();
  } catch (const Error& error) {
    if (error.code() != code) fail(operation, "another error");
    return;
  }
  fail(operation, "nothing was thrown");
}
template <class F>
void must_throw(int operation, int thrower, F&& f) {
  try {
    f();
  } catch (const Thrown& thrown) {
    if (thrown.operation != thrower) fail(operation, "the exception of another operation");
    return;
  }
  fail(operation, "the exception did not arrive");
}
)";

/// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string text(const char* format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  return line;
}

class Printer {
 public:
  Printer(const Program& program, const Calls& calls) : program_{program}, calls_{calls} {}
  std::string print();

 private:
  [[nodiscard]] std::string stream(int number) const;
  [[nodiscard]] std::string data(int number, std::size_t at) const;
  [[nodiscard]] bool is_device(int number) const { return kind(number) == BufferKind::device; }
  [[nodiscard]] BufferKind kind(int number) const {
    return program_.buffers[static_cast<std::size_t>(number)].kind;
  }
  [[nodiscard]] std::size_t size(int number) const {
    return program_.buffers[static_cast<std::size_t>(number)].size;
  }

  void find_used();
  void declare();
  void print_thread(int thread);
  [[nodiscard]] std::string operation(const Lowered& each) const;
  [[nodiscard]] std::string call(const Step& step, int place) const;
  [[nodiscard]] std::string order(const Step& step, int place) const;
  [[nodiscard]] std::string object(const Step& step) const;
  [[nodiscard]] std::string work(const Step& step, int place) const;
  [[nodiscard]] std::string wait(const std::string& what, const Step& step, int place) const;
  [[nodiscard]] std::string make_stream(int number) const;
  [[nodiscard]] std::string make_buffer(const Step& step) const;
  [[nodiscard]] std::string copy(const Step& step, int place) const;
  [[nodiscard]] std::string plain_copy(const Step& step) const;
  [[nodiscard]] std::string row(const Step& step) const;
  [[nodiscard]] std::string list(const Step& step) const;
  [[nodiscard]] std::string fill(const Step& step) const;
  [[nodiscard]] std::string scratch(const Step& step) const;
  [[nodiscard]] std::string function(const Step& step, int place) const;
  [[nodiscard]] std::string overlap(const Step& step) const;
  [[nodiscard]] std::string graph(const Step& step) const;
  [[nodiscard]] std::string refuse(const Step& step, int place) const;

  const Program& program_;
  const Calls& calls_;
  std::string out_;
  std::set<int> streams_, buffers_, events_, marks_;
  bool uses_values_ = false;
};

std::string Printer::stream(int number) const {
  const StreamSlot& slot = program_.streams[static_cast<std::size_t>(number)];
  if (slot.kind == StreamKind::device_default)
    return text("Device{%d}.default_stream()", slot.device);
  if (slot.kind == StreamKind::thread_default)
    return text("StreamRef::per_thread_default(Device{%d})", slot.device);
  return text("(*s%d)", number);
}

[[nodiscard]] const char* type_of_event(int event) {
  return event % 2 == 0 ? "Event" : "TimedEvent";
}
[[nodiscard]] const char* options_of_event(int event) {
  return event >= first_external ? "{.external = true}" : "";
}
/// Of the two events that may be nodes of graphs.
[[nodiscard]] int other_external(int event) { return 2 * first_external + 1 - event; }

std::string Printer::data(int number, std::size_t at) const {
  const bool is_vector =
      kind(number) == BufferKind::pageable || kind(number) == BufferKind::registered;
  return text("b%d%sdata()", number, is_vector ? "." : "->") + (at > 0 ? text(" + %zu", at) : "");
}

void Printer::find_used() {
  for (const Lowered& each : calls_.operations)
    for (const Step& step : each.steps) {
      for (const int used : {step.stream, step.other_stream})
        if (used >= 0) streams_.insert(used);
      if (step.buffer >= 0 && step.call != Call::wait_function) buffers_.insert(step.buffer);
      if (step.source >= 0) buffers_.insert(step.source);
      if (step.third >= 0) buffers_.insert(step.third);
      if (step.event >= 0) events_.insert(step.event);
      if (step.call == Call::graph) events_.insert(other_external(step.event));
      if (step.call == Call::leave_mark) marks_.insert(step.mark);
      uses_values_ |= step.call == Call::wait_value;
    }
  for (const int used : std::set<int>{streams_})
    if (const int owner = program_.streams[static_cast<std::size_t>(used)].owner; owner >= 0)
      streams_.insert(owner);
}

void Printer::declare() {
  for (std::size_t device = 0; device < 8; ++device) {
    const auto leases = [&](int used) {
      const StreamSlot& slot = program_.streams[static_cast<std::size_t>(used)];
      return slot.kind == StreamKind::leased && slot.device == static_cast<int>(device);
    };
    if (std::any_of(streams_.begin(), streams_.end(), leases))
      out_ += text("  StreamPool pool%zu{Device{%zu}, {.size = 1}};\n", device, device);
  }
  for (const int used : streams_)
    out_ += make_stream(used).empty()
                ? ""
                : text("  std::optional<%s> s%d;\n",
                       program_.streams[static_cast<std::size_t>(used)].kind == StreamKind::leased
                           ? "StreamLease"
                           : "Stream",
                       used);
  for (const int used : streams_)
    if (const std::string made = make_stream(used); !made.empty()) out_ += "  " + made;
  constexpr const char* types[] = {
      "std::vector<unsigned char>", "std::optional<PinnedBuffer<unsigned char>>",
      "std::vector<unsigned char>", "std::optional<DeviceBuffer<unsigned char>>",
      "std::optional<ManagedBuffer<unsigned char>>"};
  for (const int used : buffers_) {
    out_ += text("  %s b%d;\n", types[static_cast<std::size_t>(kind(used))], used);
    if (kind(used) == BufferKind::registered)
      out_ += text("  std::optional<HostRegistration> r%d;\n", used);
  }
  for (const int used : events_)
    out_ += text("  %s e%d{%s};\n", type_of_event(used), used, options_of_event(used));
  if (uses_values_)
    out_ += text(
        "  PinnedBuffer<std::uint32_t> values(%u);\n  std::fill(values.begin(), values.end(), "
        "0);\n",
        most_values);
  for (const int used : marks_) out_ += text("  std::optional<Event> m%d;\n", used);
}

std::string Printer::print() {
  find_used();
  out_ = text("// Random program %llu.\n", static_cast<unsigned long long>(program_.seed));
  out_ += bytes_text;
  out_ += before_main;
  out_ += "\nint main() {\n";
  declare();
  for (int thread = 1; thread < program_.threads; ++thread) {
    out_ += text("  std::thread thread%d{[&] {\n", thread);
    print_thread(thread);
    out_ += "  }};\n";
  }
  print_thread(0);
  for (int thread = 1; thread < program_.threads; ++thread)
    out_ += text("  thread%d.join();\n", thread);
  return out_ + "  std::printf(\"nothing was wrong\\n\");\n}\n";
}

void Printer::print_thread(int thread) {
  int visit = 0;
  for (const Lowered& each : calls_.operations) {
    if (each.thread != thread) continue;
    if (each.visit != visit && visit != 0) out_ += "  }}.join();\n";
    if (each.visit != visit && each.visit != 0) out_ += "  std::thread{[&] {\n";
    visit = each.visit;
    out_ += operation(each);
  }
  if (visit != 0) out_ += "  }}.join();\n";
}

std::string Printer::operation(const Lowered& each) const {
  std::string lines;
  for (const int other : each.after) lines += text("  flags.submitted[%d].wait(false);\n", other);
  for (const Step& step : each.steps) lines += "  " + call(step, each.place);
  if (program_.threads > 1)
    lines += text("  flags.submitted[%d] = true;\n  flags.submitted[%d].notify_all();\n",
                  each.place, each.place);
  return lines;
}

std::string Printer::call(const Step& step, int place) const {
  std::string line = order(step, place);
  if (line.empty()) line = object(step);
  if (line.empty()) line = work(step, place);
  return line;
}

std::string Printer::wait(const std::string& what, const Step& step, int place) const {
  const std::string waits = step.form == 0   ? what + "synchronize();"
                            : step.form == 1 ? "while (!" + what + "synchronize_for(1s)) {}"
                            : step.form == 3 ? what + "future().get();"
                                             : "while (!" + what + "query()) {}";
  if (step.exception < 0) return waits + "\n";
  return text("must_throw(%d, %d, [&] { ", place, step.exception) + waits + " });\n";
}

std::string Printer::order(const Step& step, int place) const {
  const std::string on = step.stream >= 0 ? stream(step.stream) : "";
  const std::string other = step.other_stream >= 0 ? stream(step.other_stream) : "";
  switch (step.call) {
    case Call::wait_stream:
      return on + ".wait_stream(" + other + ");\n";
    case Call::wait_value:
      return other + text(".write_value(values.data() + %u, %u); ", step.value, step.value + 1) +
             on + text(".wait_value(values.data() + %u, %u);\n", step.value, step.value + 1);
    case Call::wait_recorded:
      return on + ".wait_event(" + other + ".record_event());\n";
    case Call::record_event:
      return on + text(".record_event(e%d);\n", step.event);
    case Call::wait_event:
      return on + text(".wait_event(e%d);\n", step.event);
    case Call::leave_mark:
      return text("m%d.emplace(", step.mark) + on + ");\n";
    case Call::wait_mark:
      return on + text(".wait_event(*m%d);\n", step.mark);
    case Call::synchronize:
      return wait(on + ".", step, place);
    case Call::synchronize_event:
      return wait(text("e%d.", step.event), step, place);
    case Call::synchronize_mark:
      return wait(text("m%d->", step.mark), step, place);
    case Call::synchronize_device:
      return text("Device{%d}.synchronize();\n", step.device);
    case Call::open_gate:
      return text("flags.opened[%d] = true;\n  flags.opened[%d].notify_all();\n", step.mark,
                  step.mark);
    case Call::query:
      if (step.answer == Answer::any) return "static_cast<void>(" + on + ".query());\n";
      return "if (" + on +
             text(".query() != %s) fail(%d, \"query\");\n",
                  step.answer == Answer::yes ? "true" : "false", place);
    case Call::show_handle:
      return "static_cast<void>(" + on + ".native());\n";
    default:
      return "";
  }
}

std::string Printer::make_stream(int number) const {
  const StreamSlot& slot = program_.streams[static_cast<std::size_t>(number)];
  switch (slot.kind) {
    case StreamKind::own:
    case StreamKind::blocking:
      return text(
          "s%d.reset(), s%d.emplace(Device{%d}, StreamOptions{.priority = %d, .blocking = %s});\n",
          number, number, slot.device, number % 3 - 1,
          slot.kind == StreamKind::blocking ? "true" : "false");
    case StreamKind::leased:
      return text("s%d.reset(), s%d.emplace(pool%d.acquire());\n", number, number, slot.device);
    case StreamKind::borrowed:
      return text("s%d.reset(), s%d.emplace(Stream::from_native(", number, number) +
             stream(slot.owner) +
             text(".native(), Device{%d}, Ownership::borrow));\n", slot.device);
    default:
      return "";
  }
}

std::string Printer::make_buffer(const Step& step) const {
  switch (kind(step.buffer)) {
    case BufferKind::pageable:
      return text("b%d.resize(%zu);\n", step.buffer, step.bytes);
    case BufferKind::registered:
      return text("b%d.resize(%zu), r%d.emplace(b%d);\n", step.buffer, step.bytes, step.buffer,
                  step.buffer);
    case BufferKind::pinned:
      return text("b%d.emplace(%zu);\n", step.buffer, step.bytes);
    case BufferKind::device:
      return text("b%d.emplace(%zu, ", step.buffer, step.bytes) + stream(step.stream) + ");\n";
    case BufferKind::managed:
      return text("b%d.emplace(%zu, Device{%d});\n", step.buffer, step.bytes, step.device);
  }
  return "";
}

std::string Printer::object(const Step& step) const {
  switch (step.call) {
    case Call::make_stream:
      return make_stream(step.stream);
    case Call::make_buffer:
      return make_buffer(step);
    case Call::drop_buffer:
      if (kind(step.buffer) == BufferKind::pageable) return text("b%d = {};\n", step.buffer);
      if (kind(step.buffer) == BufferKind::registered)
        return text("r%d.reset(), b%d = {};\n", step.buffer, step.buffer);
      return text("b%d.reset();\n", step.buffer);
    case Call::move_event:
      return text("{ auto moved = std::move(e%d); e%d = std::move(moved); }\n", step.event,
                  step.event);
    case Call::drop_event:
      return text("e%d = %s{%s};\n", step.event, type_of_event(step.event),
                  options_of_event(step.event));
    case Call::resize_buffer:
      return text("b%d->resize(%zu), b%d->resize(%zu);\n", step.buffer, step.bytes + 4096,
                  step.buffer, step.bytes);
    case Call::set_stream:
      return text("b%d->set_stream(", step.buffer) + stream(step.stream) + ");\n";
    case Call::record_stream:
      if (step.form == 1)
        return "record_stream(" + stream(step.stream) + ", " + data(step.buffer, 0) + ");\n";
      return text("b%d->record_stream(", step.buffer) + stream(step.stream) + ");\n";
    case Call::trim:
      return step.form == 0 ? "PinnedPool::trim();\n" : "Staging::trim();\n";
    case Call::fork_child:
      return "// a forked child is refused everything (not printed)\n";
    default:
      return "";
  }
}

std::string Printer::work(const Step& step, int place) const {
  const std::string on = step.stream >= 0 ? stream(step.stream) : "";
  const std::string to =
      step.buffer >= 0 && step.call != Call::wait_function ? data(step.buffer, step.at) : "";
  const auto digest = static_cast<unsigned long long>(step.digest);
  switch (step.call) {
    case Call::copy:
      return copy(step, place);
    case Call::copy_2d:
      if (step.form == 1)
        return "copy_3d(" + on + ", " + data(step.buffer, 0) +
               text(", {%zu, %zu}, ", step.pitch, step.pitch * (step.height / 2)) +
               data(step.source, 0) +
               text(", {%zu, %zu}, {%zu, %zu, 2});\n", step.source_pitch,
                    step.source_pitch * (step.height / 2), step.bytes, step.height / 2);
      return "copy_2d(" + on + ", " + to + text(", %zu, ", step.pitch) + data(step.source, 0) +
             text(", %zu, %zu, %zu);\n", step.source_pitch, step.bytes, step.height);
    case Call::row:
      return row(step);
    case Call::list:
      return list(step);
    case Call::fill:
      return fill(step);
    case Call::fill_2d:
      return "fill_2d(" + on + ", " + to +
             text(", %zu, %u, %zu, %zu);\n", step.pitch, step.value, step.bytes, step.height);
    case Call::scratch_pinned:
    case Call::scratch_device:
      return scratch(step);
    case Call::write_host:
      return "write_pattern(" + to + text(", %zu, %u);\n", step.bytes, step.value);
    case Call::compare:
      return text("compare(%d, ", place) + to + text(", %zu, 0x%llxU);\n", step.bytes, digest);
    case Call::compare_copied: {
      const std::string waits = wait(
          on + ".",
          [&] {
            Step w = step;
            w.form = 0;
            return w;
          }(),
          place);
      return text("{ std::vector<unsigned char> found(%zu); copy_bytes(", step.bytes) + on +
             ", found.data(), " + to + text(", %zu);\n    ", step.bytes) + waits +
             text("    compare(%d, found.data(), found.size(), 0x%llxU); }\n", place, digest);
    }
    case Call::elapsed:
      return "{ TimedEvent start{" + on + "}, stop; fill_bytes(" + on + ", " + to +
             text(", %u, %zu); stop.record(", step.value, step.bytes) + on +
             text("); stop.synchronize(); if (stop - start < 0ns) fail(%d, \"time\"); }\n", place);
    case Call::overlap:
      return overlap(step);
    case Call::graph:
      return graph(step);
    case Call::refuse:
      return refuse(step, place);
    case Call::starve:
      return "try { /* with a failing operator new */ throw std::bad_alloc{}; } catch (const "
             "std::bad_alloc&) { " +
             (step.buffer < 0 ? function(step, place) : plain_copy(step) + ";") + " }\n";
    default:
      return function(step, place);
  }
}

std::string Printer::plain_copy(const Step& step) const {
  const std::string on = stream(step.stream), to = data(step.buffer, step.at),
                    from = data(step.source, step.source_at);
  const std::size_t half = step.bytes / 2;
  const auto span = [&](int number, const std::string& bytes) {
    return text("%s{",
                is_device(number) ? "DeviceSpan<unsigned char>" : "std::span<unsigned char>") +
           bytes + text(", %zu}", step.bytes);
  };
  switch (step.form) {
    case 1:
      return "runnel::copy(" + on + ", " + span(step.buffer, to) + ", " + span(step.source, from) +
             ")";
    case 2:
      return "[&] { const StreamGuard with{" + on + "}; return copy_bytes(" + to + ", " + from +
             text(", %zu); }()", step.bytes);
    case 3:
      return "[&] { const CopyOperation operations[] = {{" + to + ", " + from +
             text(", %zu}, {", half) + to + text(" + %zu, ", half) + from +
             text(" + %zu, %zu}}; const CopyBatchResult result = copy_batch(", half,
                  step.bytes - half) +
             on +
             ", operations); return result.inlined + result.nothing == 2 ? CopyResult::inlined : "
             "CopyResult::direct; }()";
    default:
      return "copy_bytes(" + on + ", " + to + ", " + from +
             text(", %zu%s)", step.bytes, step.form == 4 ? ", Pageable::block" : "");
  }
}

std::string Printer::row(const Step& step) const {
  constexpr const char* between[] = {"", "static_cast<void>(on.query());",
                                     "static_cast<void>(on.record_event());",
                                     "on.launch_host_func([] {});"};
  std::string lines = "{ const StreamRef on = " + stream(step.stream) + ";\n";
  std::size_t done = 0;
  for (const RowCopy& each : row_copies(step.value, step.height, step.bytes)) {
    if (++done % 7 == 0 && step.form < std::size(between))
      lines += text("    %s\n", between[step.form]);
    const std::string at = data(step.buffer, each.at),
                      source_at = data(step.source, each.source_at);
    lines += "    copy_bytes(on, " + (each.back ? source_at : at) + ", " +
             (each.back ? at : source_at) + text(", %zu);\n", each.bytes);
  }
  return lines + "  }\n";
}

std::string Printer::list(const Step& step) const {
  std::string lines = "{ const std::vector<CopyOperation> operations{\n";
  const auto told = [&](int number) {
    if (step.form % 2 == 0) return "std::nullopt";
    return kind(number) == BufferKind::pageable ? "MemoryKind::pageable"
           : is_device(number)                  ? "MemoryKind::device"
                                                : "std::nullopt";
  };
  for (const ListedCopy& each : listed_copies(step.value, step.height, step.bytes)) {
    const int number = each.of_third && step.third >= 0 ? step.third : step.source;
    const std::string at = data(step.buffer, each.at), other = data(number, each.other_at);
    const char* const here = told(step.buffer);
    const char* const there = told(number);
    lines +=
        "    {" + (each.back ? other : at) + ", " + (each.back ? at : other) +
        text(", %zu, %s, %s},\n", each.bytes, each.back ? there : here, each.back ? here : there);
  }
  return lines + "    };\n    copy_batch(" + stream(step.stream) + ", operations); }\n";
}

/// If the copy is done at the call, the destination is read at once, and the source is overwritten
/// until the program needs it again.
std::string Printer::copy(const Step& step, int place) const {
  const std::string made = plain_copy(step);
  const bool to_host =
      kind(step.buffer) != BufferKind::device && kind(step.buffer) != BufferKind::managed;
  const std::string to = data(step.buffer, step.at), from = data(step.source, step.source_at);
  std::string lines = text("{ const CopyResult result%d = ", place) + made + ";\n";
  if (to_host)
    lines += text("    compare_if_done(%d, result%d, ", place, place) + to +
             text(", %zu, 0x%llxU);\n", step.bytes, static_cast<unsigned long long>(step.digest));
  if (step.source_is_free)
    lines += text(
                 "    if (result%d == CopyResult::inlined) {\n      const std::vector<unsigned "
                 "char> kept(",
                 place) +
             from + ", " + from + text(" + %zu);\n      std::memset(", step.bytes) + from +
             text(", 0xEE, %zu);\n      ", step.bytes) + stream(step.stream) +
             ".record_event().synchronize();\n      std::memcpy(" + from +
             text(", kept.data(), %zu);\n    }\n", step.bytes);
  return lines + text("    static_cast<void>(result%d); }\n", place);
}

std::string Printer::fill(const Step& step) const {
  const std::string on = stream(step.stream), to = data(step.buffer, step.at);
  constexpr const char* types[] = {"",
                                   "unsigned char",
                                   "std::uint16_t",
                                   "",
                                   "std::uint32_t",
                                   "",
                                   "",
                                   "",
                                   "std::uint64_t",
                                   "",
                                   "",
                                   "",
                                   "Wide"};
  if (step.form == 0)
    return "fill_bytes(" + on + ", " + to + text(", %u, %zu);\n", step.value, step.bytes);
  const char* const type = types[step.form];
  return "fill(" + on +
         text(", %s<%s>{reinterpret_cast<%s*>(",
              is_device(step.buffer) ? "DeviceSpan" : "std::span", type, type) +
         to + text("), %zu}, element<%s>(%u));\n", step.bytes / step.form, type, step.value);
}

std::string Printer::scratch(const Step& step) const {
  const std::string on = stream(step.stream), to = data(step.buffer, step.at);
  if (step.call == Call::scratch_pinned)
    return text(
               "{ PinnedBuffer<unsigned char> source(%zu); write_pattern(source.data(), %zu, %u); "
               "copy_bytes(",
               step.bytes, step.bytes, step.value) +
           on + ", " + to + text(", source.data(), %zu); }\n", step.bytes);
  const std::string home = stream(step.other_stream);
  return text("{ DeviceBuffer<unsigned char> source(%zu, ", step.bytes) + home + "); fill_bytes(" +
         home + text(", source.data(), %u, %zu); ", step.value, step.bytes) +
         (step.form == 1 ? "source = DeviceBuffer<unsigned char>{source, " + home + "}; " : "") +
         on + ".wait_stream(" + home + "); copy_bytes(" + on + ", " + to +
         text(", source.data(), %zu); source.record_stream(", step.bytes) + on + "); }\n";
}

std::string Printer::function(const Step& step, int place) const {
  const std::string launch = stream(step.stream) + ".launch_host_func([=] { ";
  const std::string ran = text("++flags.ran[%d]; flags.ran[%d].notify_all(); ", place, place);
  switch (step.call) {
    case Call::read_function:
      return "{ auto* const bytes = " + data(step.buffer, step.at) + "; " + launch +
             text("compare(%d, bytes, %zu, 0x%llxU); ", place, step.bytes,
                  static_cast<unsigned long long>(step.digest)) +
             ran + "}); }\n";
    case Call::write_function:
      return "{ auto* const bytes = " + data(step.buffer, step.at) + "; " + launch +
             text("write_pattern(bytes, %zu, %u); ", step.bytes, step.value) + ran + "}); }\n";
    case Call::throw_function:
      return launch + ran + text("throw Thrown{%d}; });\n", place);
    case Call::wait_function:
      return launch + text("flags.ran[%d].wait(0); ", step.buffer) + ran + "});\n";
    case Call::busy_function:
      return launch +
             "for (const auto end = std::chrono::steady_clock::now() + 400us; "
             "std::chrono::steady_clock::now() < end;) {} " +
             ran + "});\n";
    case Call::completion:
      return stream(step.stream) + ".on_complete([=](const Outcome& outcome) { " +
             text("if (!outcome.is_ok()) fail(%d, \"an error\"); ", place) +
             (step.function >= 0
                  ? text("if (flags.ran[%d] == 0) fail(%d, \"too early\"); ", step.function, place)
                  : "") +
             ran + "});\n";
    case Call::gate:
      return launch + text("flags.opened[%d].wait(false); ", place) + ran + "});\n";
    default:
      return launch + ran + "});\n";
  }
}

std::string Printer::graph(const Step& step) const {
  const auto has = [&](GraphPart part) { return (step.parts & part) != 0; };
  const std::size_t half = step.bytes / 2, rest = step.bytes - half;
  const std::string to = data(step.buffer, step.at), from = data(step.source, step.source_at),
                    on = stream(step.stream);
  const std::string second = text(" + %zu", half);
  const std::string copies =
      step.form % 2 == 0
          ? "copy_bytes(side, " + to + second + ", " + from + second + text(", %zu);\n", rest)
          : text(
                "{ DeviceBuffer<unsigned char> between(%zu, side); copy_bytes(side, "
                "between.data(), ",
                rest) +
                from + second + text(", %zu); copy_bytes(side, ", rest) + to + second +
                text(", between.data(), %zu); }\n", rest);
  const std::string launch = "    graph.launch(" + on + ");\n";
  const std::string first = "copy_bytes(main, " + to + ", " + from;
  std::string lines = "{ const Stream main{" + on + ".device()}, side{" + on + ".device()};\n";
  lines += "    const auto work = [&] {\n";
  if (has(waits_for_event))
    lines += text("      main.wait_event(e%d);\n", other_external(step.event));
  lines += "      main.launch_host_func([] {});\n";
  lines += "      side.wait_stream(main);\n      " + first + text(", %zu);\n", half);
  lines += "      " + copies + "      main.wait_stream(side);\n";
  if (has(records_event)) lines += text("      e%d.record(main);\n", step.event);
  lines += "    };\n    Graph graph = capture(main, work);\n";
  if (step.form % 4 >= 2) lines += "    static_cast<void>(graph.update(main, work));\n";
  if (has(is_nested) && step.form % 2 == 0)
    lines += "    graph = capture(main, [&] { graph.launch(main); });\n";
  return lines + text("    for (int i = 0; i < %u; ++i) graph.launch(", 1 + step.form / 8) + on +
         "); }\n";
}

std::string Printer::overlap(const Step& step) const {
  const auto end = [&](int number) {
    if (is_device(number)) return text("*b%d", number);
    return "std::span{" + data(number, 0) + text(", %zu}", size(number));
  };
  return text(
             "{ OverlapOptions options; options.chunk = %zu; options.in_flight = %u; "
             "options.strategy = OverlapStrategy::%s;\n",
             size(step.buffer) / 3 + 1, 1 + step.form % 3,
             step.form % 2 == 0 ? "automatic" : "copy_compute_copy") +
         "    overlap(" + end(step.source) + ", " + end(step.buffer) +
         ", options, [](StreamRef on, DeviceSpan<const unsigned char> in, DeviceSpan<unsigned "
         "char> out) {\n"
         "      copy_bytes(on, out.data(), in.data(), in.size()); }); }\n";
}

std::string Printer::refuse(const Step& step, int place) const {
  static constexpr const char* calls[] = {
      "errc::invalid_argument, [&] { copy_bytes(on, nullptr, bytes, 8);",
      "errc::invalid_argument, [&] { copy_bytes(on, bytes + 1, bytes, 10);",
      "errc::invalid_argument, [&] { copy_2d(on, bytes, 4, bytes + 32, 8, 8, 2);",
      "errc::invalid_argument, [&] { copy_2d(on, bytes, SIZE_MAX / 2, bytes + 32, SIZE_MAX / 2, 8, "
      "4);",
      "errc::invalid_argument, [&] { fill_bytes(on, nullptr, 1, 8);",
      ("errc::invalid_argument, [&] { auto* const words = reinterpret_cast<std::uint32_t*>(bytes); "
       "runnel::copy(on, std::span{words, "
       "SIZE_MAX / 4 + 3}, "
       "std::span{words + 8, SIZE_MAX / 4 + 3});"),
      "errc::invalid_handle, [&] { Stream from{on.device()}; const Stream to{std::move(from)}; "
      "from.synchronize();",
      "errc::invalid_argument, [&] { on.launch_host_func(static_cast<void (*)()>(nullptr));",
      "errc::invalid_handle, [&] { Event from{on}; const Event to{std::move(from)}; "
      "on.wait_event(from);",
      "errc::invalid_argument, [&] { const CopyOperation operations[] = {{bytes, bytes + 8, 8}, "
      "{bytes + 17, bytes + 16, 8}}; "
      "copy_batch(on, operations);",
      "errc::invalid_device, [&] { static_cast<void>(Device{99}.name());"};
  if (step.form >= std::size(calls))
    return "{ const StreamRef on = " + stream(step.stream) +
           text(
               "; on.launch_host_func([on] { must_throw(%d, errc::not_permitted, [&] { "
               "static_cast<void>(on.query()); }); }); }\n",
               place);
  return "{ alignas(8) unsigned char bytes[64] = {}; const StreamRef on = " + stream(step.stream) +
         text("; must_throw(%d, ", place) + calls[step.form] + " }); static_cast<void>(bytes); }\n";
}

}  // namespace

std::string print(const Program& program, const Calls& calls) {
  return Printer{program, calls}.print();
}

}  // namespace random_programs
