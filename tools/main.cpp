// SPDX-License-Identifier: Apache-2.0
// The runnel command: what can be asked of it, and how it says no.
#include "failure.hpp"
#include "info.hpp"
#include "overlap.hpp"

#include <runnel/config.hpp>
#include <runnel/error.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

namespace {

constexpr int failed = 1;
constexpr int misused = 2;

/// One line, whatever the message held.
int complain(std::string message, int status) {
  if (message.starts_with("runnel: ")) message.erase(0, 8);  // the library's own words name it too
  while (!message.empty() && message.back() == '\n') message.pop_back();
  std::ranges::replace(message, '\n', ' ');
  std::fprintf(stderr, "runnel: %s\n", message.c_str());
  return status;
}

int run(int argc, char** argv) {
  CLI::App app{"Asynchronous streams on CUDA, HIP and the host: looks at what there is, and shows what it does.", "runnel"};
  app.set_version_flag("--version", "runnel " RUNNEL_VERSION " (" RUNNEL_BACKEND ")");
  app.require_subcommand(1);

  bool why_only = false;
  auto* info = app.add_subcommand("info", "Backend, version and every device with what it can do");
  info->add_flag("--why", why_only, "Only say, in one line, why there is no device");

  tool::OverlapCommand command;
  auto* overlap = app.add_subcommand("overlap", "Map every byte of a file on the device, while other parts of it are on their way");
  overlap->add_option("--table", command.table, "What becomes of each byte: upper, lower, invert or rot13")->required();
  overlap->add_option("--chunk", command.chunk, "Bytes that travel together, as in 512K, 16M, 1G")->capture_default_str();
  overlap->add_option("--in-flight", command.in_flight, "Chunks in memory at once")->capture_default_str()->check(CLI::Range(1, 1024));
  overlap->add_option("--streams", command.streams, "Streams that take turns")->capture_default_str()->check(CLI::Range(1, 1024));
  overlap->add_option("--device", command.device, "Which device")->capture_default_str();
  overlap->add_option("--timeline", command.timeline, "Draw what ran when into this SVG file");
  overlap->add_option("IN", command.in, "The file to read")->required();
  overlap->add_option("OUT", command.out, "The file to write; it appears when it is whole")->required();

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return complain(std::string{error.what()} + " (see: runnel --help, runnel overlap --help)", misused);
  }
  return info->parsed() ? tool::info(why_only) : tool::overlap(command);
}

}  // namespace

int main(int argc, char** argv) try { return run(argc, argv); } catch (const std::bad_alloc& error) {
  const auto* ours = dynamic_cast<const runnel::Error*>(&error);
  return complain(std::string{ours ? ours->what() : "out of memory"} + "; choose a smaller --chunk or --in-flight", failed);
} catch (const std::exception& error) {
  return complain(error.what(), failed);
}
