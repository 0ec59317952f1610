// SPDX-License-Identifier: Apache-2.0
#include "compare.hpp"

#include "failure.hpp"
#include "files.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <vector>

namespace tool {

namespace {

constexpr std::size_t most_bytes = std::size_t{1} << 20;  // of results, which need a few thousand

struct Row {
  std::string name;
  double value;
  const char* unit;
  bool is_rate;  ///< more is better
};

/// All rows of the results, in the order of the tables.
std::vector<Row> rows_of(const JsonValue& results) {
  std::vector<Row> rows;
  for (const JsonValue& copy : results.at("copies").elements()) {
    const std::string name = "copy " + copy.at("direction").text() + ", " + copy.at("memory").text() + " memory";
    rows.push_back({name, copy.at("gigabytes_per_s").number(), "GB/s", true});
    rows.push_back({name + ", caller held", copy.at("held_us").number(), "us", false});
  }
  for (const JsonValue& operation : results.at("operations").elements())
    rows.push_back({operation.at("operation").text(), operation.at("ns").number(), "ns", false});
  for (const JsonValue& rate : results.at("overlap").at("rates").elements())
    rows.push_back({"overlap, " + rate.at("memory").text() + " memory, " + rate.at("strategy").text(), rate.at("gigabytes_per_s").number(),
                    "GB/s", true});
  if (const double range = results.at("range").at("gigabytes_per_s").number(); !std::isnan(range))
    rows.push_back({"a range through the device", range, "GB/s", true});
  return rows;
}

const Row* find(const std::vector<Row>& rows, const Row& like) {
  const auto place = std::ranges::find(rows, like.name, &Row::name);
  return place != rows.end() && place->value > 0 ? &*place : nullptr;
}

/// "2097152", "NVIDIA H200".
std::string in_words(const JsonValue& value) {
  if (const std::string text = value.text(); !text.empty()) return text;
  char digits[40];
  std::snprintf(digits, sizeof digits, "%.12g", value.number());
  return std::isnan(value.number()) ? "nothing" : digits;
}

void require_same(const char* what, const JsonValue& before, const JsonValue& now, const char* advice) {
  if (in_words(before) == in_words(now)) return;
  throw Failure(std::string{"the earlier results cannot be compared: "} + what + " was " + in_words(before) + ", and is " + in_words(now) +
                " now; " + advice);
}

}  // namespace

JsonValue read_results(const std::string& path) {
  const auto refuse = [&](const std::string& why) -> JsonValue {
    throw Failure(in_quotes(path) + " " + why + "; name a file that runnel bench --json has written");
  };
  if (std::error_code none; std::filesystem::is_directory(path, none)) return refuse("is a folder");
  std::string text(most_bytes, '\0');
  text.resize(InputFile{path}.read({reinterpret_cast<unsigned char*>(text.data()), text.size()}));
  if (text.size() == most_bytes) return refuse("has more than results need");
  try {
    JsonValue results = parse_json(text);
    if (!rows_of(results).empty()) return results;
  } catch (const Failure& failure) {
    return refuse(std::string{"has "} + failure.what());
  }
  return refuse("has no results");
}

void require_comparable(const JsonValue& before, const JsonValue& now) {
  for (const char* field : {"backend", "device"}) require_same(field, before.at(field), now.at(field), "measure again on this machine");
  require_same("the size of copies", before.at("copy_bytes"), now.at("copy_bytes"), "give the same --size");
  const JsonValue &overlap = before.at("overlap"), &overlap_now = now.at("overlap");
  if (overlap.at("rates").elements().empty()) return;
  for (const char* field : {"bytes", "chunk", "in_flight"})
    require_same((std::string{"the overlap's "} + field).c_str(), overlap.at(field), overlap_now.at(field),
                 "give the same --size, --chunk and --in-flight");
}

int print_comparison(std::FILE* to, const JsonValue& before, const JsonValue& now, double percent) {
  const std::vector<Row> earlier = rows_of(before), later = rows_of(now);
  int slower = 0;
  std::fprintf(to, "%-52s %12s %12s %8s\n", "compared with the earlier results", "before", "now", "slower by");
  for (const Row& row : later) {
    const Row* const old = find(earlier, row);
    if (old == nullptr) {
      std::fprintf(to, "  %-50s %12s %12.2f %-4s  not there before\n", row.name.c_str(), "-", row.value, row.unit);
      continue;
    }
    const double factor = row.is_rate ? old->value / row.value : row.value / old->value;
    const bool is_slower = factor > 1 + percent / 100;
    slower += is_slower ? 1 : 0;
    std::fprintf(to, "  %-50s %12.2f %12.2f %-4s %+7.1f %%%s\n", row.name.c_str(), old->value, row.value, row.unit, 100 * (factor - 1),
                 is_slower                          ? "  SLOWER"
                 : factor < 1 / (1 + percent / 100) ? "  faster"
                                                    : "");
  }
  for (const Row& row : earlier)
    if (find(later, row) == nullptr)
      std::fprintf(to, "  %-50s %12.2f %12s %-4s  not measured now\n", row.name.c_str(), row.value, "-", row.unit);
  std::fprintf(to, "%d of %zu rows are slower by more than %g %%\n", slower, later.size(), percent);
  return slower;
}

}  // namespace tool
