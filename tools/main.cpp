// SPDX-License-Identifier: Apache-2.0
// The runnel command: its options and its error messages.
#include "bench.hpp"
#include "complaint.hpp"
#include "failure.hpp"
#include "info.hpp"
#include "overlap.hpp"

#include <runnel/config.hpp>

#include <CLI/CLI.hpp>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

/// Flushes the output. Only then it is known whether printing succeeded.
int flush_output(int status) {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  const int error = errno;
  if (flushed && std::ferror(stdout) == 0) return status;
  throw tool::Failure("cannot write the standard output" +
                      (error != 0 ? ": " + std::string{std::strerror(error)} : ""));
}

/// The range of a count. The help text of each option with a count states the range itself.
CLI::Validator count_range() { return CLI::Range(1, 1024).description(""); }

/// Used because CLI::Range accepts NaN.
CLI::Validator percent_range() {
  const auto problem = [](const std::string& text) {
    double percent = 0;
    return CLI::detail::lexical_cast(text, percent) && percent >= 0 && percent <= 1000
               ? ""
               : "Value " + text + " not in range 0 to 1000";
  };
  return {problem, ""};
}

/// Used for values whose absence means something. An empty value, as of a variable of a script that
/// is not set, is refused.
CLI::Validator not_empty() {
  const auto problem = [](const std::string& text) {
    return text.empty() ? "the value is empty" : "";
  };
  return {problem, ""};
}

CLI::App* add_info(CLI::App& app, bool& why_only) {
  auto* info = app.add_subcommand("info", "Backend, version and every device with what it can do");
  info->add_flag("--why", why_only, "Only say, in one line, why there is no device");
  return info;
}

void add_streaming(CLI::App& command, tool::StreamingOptions& options) {
  command.add_option("--chunk", options.chunk, "Bytes of a chunk, as in 512K, 16M, 1G")
      ->type_name("BYTES")
      ->capture_default_str();
  command.add_option("--in-flight", options.in_flight, "Chunks in memory at once, 1 to 1024")
      ->type_name("COUNT")
      ->capture_default_str()
      ->check(count_range());
  command
      .add_option("--streams", options.streams, "Streams that take turns (strategy A), 1 to 1024")
      ->type_name("COUNT")
      ->capture_default_str()
      ->check(count_range());
  command
      .add_option("--strategy", options.strategy,
                  "automatic, A (stream-per-chunk) or B (copy-compute-copy)")
      ->type_name("NAME")
      ->capture_default_str();
  command.add_option("--device", options.device, "Which device")
      ->type_name("ORDINAL")
      ->default_str("0");
}

void add_overlap(CLI::App& app, tool::OverlapCommand& command) {
  auto* overlap = app.add_subcommand(
      "overlap", "Map every byte of a file on the device; transfers and computing overlap");
  overlap
      ->add_option("--table", command.table,
                   "How each byte is changed: upper, lower, invert or rot13")
      ->type_name("NAME")
      ->required();
  add_streaming(*overlap, command.streaming);
  overlap->add_option("--timeline", command.timeline, "Draw a timeline into this SVG file")
      ->type_name("FILE")
      ->check(not_empty());
  overlap
      ->add_option("--trace", command.trace,
                   "Write the timeline as trace events (JSON) for Perfetto or chrome://tracing")
      ->type_name("FILE")
      ->check(not_empty());
  overlap->add_option("IN", command.in, "The file to read")->type_name("")->required();
  overlap->add_option("OUT", command.out, "The file to write; it appears when it is complete")
      ->type_name("")
      ->required();
}

void add_comparison(CLI::App& bench, tool::BenchCommand& command) {
  bench
      .add_option("--compare", command.compare,
                  "Say what is slower than in this file, which an earlier bench --json has written")
      ->type_name("FILE")
      ->check(not_empty());
  bench
      .add_option("--threshold", command.threshold,
                  "How many percent slower a row may be, 0 to 1000")
      ->type_name("PERCENT")
      ->capture_default_str()
      ->check(percent_range());
}

CLI::App* add_bench(CLI::App& app, tool::BenchCommand& command) {
  auto* bench = app.add_subcommand(
      "bench",
      "Measure this machine: copies, operations, and how well transfers and computing overlap");
  bench->add_option("--device", command.devices, "Which device; several, as in 0,1, share the work")
      ->type_name("ORDINAL")
      ->delimiter(',')
      ->capture_default_str()
      ->check(not_empty());
  bench
      ->add_option(
          "--size", command.size,
          "Bytes to send to the device and back, as in 512M (2G; on the host backend 256M)")
      ->type_name("BYTES")
      ->check(not_empty());
  bench->add_option("--chunk", command.chunk, "Bytes of a chunk (64M; on the host backend 4M)")
      ->type_name("BYTES")
      ->check(not_empty());
  bench
      ->add_option("--in-flight", command.in_flight,
                   "Chunks in the device's memory at once, 1 to 1024")
      ->type_name("COUNT")
      ->capture_default_str()
      ->check(count_range());
  bench
      ->add_option("--range", command.range,
                   "Also process a range of so many bytes, which may be larger than the device's "
                   "memory, as in 64G")
      ->type_name("BYTES")
      ->check(not_empty());
  bench
      ->add_option("--timelines", command.timelines,
                   "Draw a timeline of each strategy into this folder")
      ->type_name("FOLDER")
      ->check(not_empty());
  bench->add_flag("--json", command.json, "Print JSON instead of tables");
  add_comparison(*bench, command);
  return bench;
}

/// The subcommand on the command line, for the hint to read its help; "overlap" if there is none.
std::string named(const CLI::App& app) {
  const auto found = app.get_subcommands();
  return found.empty() ? "overlap" : found.front()->get_name();
}

/// The text of CLI11, except for a word that is not a subcommand: then the text names it.
std::string reason_of(const CLI::ParseError& error, const CLI::App& app) {
  const auto words = app.remaining();
  if (!app.get_subcommands().empty()) {
    if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return error.what();
    auto extra = app.remaining(true);
    std::string reason = named(app) + " does not know";
    for (const std::string& word : extra) reason += " " + tool::in_quotes(word);
    return reason;
  }
  if (!words.empty() && words.front().starts_with('-')) return error.what();
  std::string reason = words.empty() ? "write what to do, one of"
                                     : "there is no subcommand " + tool::in_quotes(words.front()) +
                                           "; choose one of";
  const char* separator = " ";
  for (const CLI::App* const each : app.get_subcommands({}))
    reason += std::exchange(separator, ", ") + each->get_name();
  return reason;
}

/// The arguments in the order in which CLI11 takes them: the last one first. CLI11 would take a
/// file with a name such as "[a,b]" for a list of files, so the name gets its folder in front.
std::vector<std::string> arguments_of(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = argc - 1; i > 0; --i) {
    const std::string_view argument = argv[i];
    const bool like_list = argument.starts_with('[') && argument.ends_with(']');
    arguments.push_back((like_list ? "./" : "") + std::string{argument});
  }
  return arguments;
}

int run(int argc, char** argv) {
  CLI::App app{
      "Asynchronous streams on CUDA, HIP and the host: shows the devices, and what streams do on "
      "them.",
      "runnel"};
  app.set_version_flag("--version", "runnel " RUNNEL_VERSION " (" RUNNEL_BACKEND ")");
  app.require_subcommand(1);
  bool why_only = false;
  tool::OverlapCommand overlap_command;
  tool::BenchCommand bench_command;
  const auto* info = add_info(app, why_only);
  add_overlap(app, overlap_command);
  const auto* bench = add_bench(app, bench_command);

  try {
    app.parse(arguments_of(argc, argv));
  } catch (const CLI::Success& asked) {  // --help, --version
    // Not std::cout, which does not preserve the reason of a failure.
    std::ostringstream text;
    const int status = app.exit(asked, text);
    std::fputs(text.str().c_str(), stdout);
    return status;
  } catch (const CLI::ParseError& error) {
    throw tool::Misuse(reason_of(error, app) + " (see: runnel --help, runnel " + named(app) +
                       " --help)");
  }
  if (info->parsed()) return tool::info(why_only);
  return bench->parsed() ? tool::bench(bench_command) : tool::overlap(overlap_command);
}

}  // namespace

int main(int argc, char** argv) try {
  // If the reader of a pipe has ended, or a file must not become larger, the write fails, and the
  // command reports that. By default these signals would terminate it first.
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
  return flush_output(run(argc, argv));
} catch (...) {
  return print(tool::complaint_of(std::current_exception()));
}
