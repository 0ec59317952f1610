// SPDX-License-Identifier: Apache-2.0
/// Runs all benchmarks and prints one row for each operation: the raw call, runnel, and their
/// ratio.
#include <benchmark/benchmark.h>
#include <runnel/runnel.hpp>

#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct Row {
  std::optional<double> raw, runnel;
};

/// The error message of a run; null if it succeeded. Google Benchmark 1.8 renamed the members.
template <class Run>
const std::string* why_failed(const Run& run) {
  if constexpr (requires { run.error_occurred; })
    return run.error_occurred ? &run.error_message : nullptr;
  else
    return run.skipped ? &run.skip_message : nullptr;
}

/// Collects the medians.
class Medians : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (const std::string* why = why_failed(run)) {
        std::fprintf(stderr, "%s: %s\n", run.benchmark_name().c_str(), why->c_str());
        failed_ = true;
      }
      if (run.aggregate_name != "median") continue;
      const std::string& name = run.run_name.function_name;
      const std::size_t slash = name.rfind('/');
      const std::string operation = name.substr(0, slash);
      if (!rows_.contains(operation)) order_.push_back(operation);
      (name.substr(slash + 1) == "raw" ? rows_[operation].raw : rows_[operation].runnel) =
          run.GetAdjustedRealTime();
    }
  }

  /// Prints the table. Returns true if every benchmark succeeded.
  bool print() const {
    const auto number = [](std::optional<double> ns) {
      char text[32] = "-";
      if (ns) std::snprintf(text, sizeof text, *ns < 100 ? "%.1f" : "%.0f", *ns);
      return std::string{text};
    };
    std::printf("%-42s %12s %12s %8s\n", "operation", "raw, ns", "runnel, ns", "ratio");
    for (const std::string& operation : order_) {
      const Row& row = rows_.at(operation);
      char ratio[32] = "-";
      if (row.raw && row.runnel) std::snprintf(ratio, sizeof ratio, "%.2f", *row.runnel / *row.raw);
      std::printf("%-42s %12s %12s %8s\n", operation.c_str(), number(row.raw).c_str(),
                  number(row.runnel).c_str(), ratio);
    }
    return !failed_;
  }

 private:
  std::map<std::string, Row> rows_;
  std::vector<std::string> order_;
  bool failed_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  // Raw and own runs alternate, so that a change of the clock rate affects both.
  std::vector<char*> arguments(argv, argv + argc);
  char interleave[] = "--benchmark_enable_random_interleaving=true";
  arguments.insert(arguments.begin() + 1, interleave);
  argc = static_cast<int>(arguments.size());
  argv = arguments.data();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  if (runnel::Device::count() == 0) {
    std::printf("no device: %s\n", runnel::Device::why_no_device().c_str());
    return 77;  // a skip
  }
  std::printf("%s, %s\n", RUNNEL_BACKEND, runnel::Device::current().name().c_str());
  Medians medians;
  benchmark::RunSpecifiedBenchmarks(&medians);
  return medians.print() ? 0 : 1;
}
