// SPDX-License-Identifier: Apache-2.0
#include "compare.hpp"

#include "failure.hpp"
#include "files.hpp"
#include "json.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>
#include <vector>

namespace tool {

namespace {

constexpr std::size_t max_bytes =
    std::size_t{1} << 20;  // The maximum size of a file with results, which need a few thousand.

struct Row {
  std::string name;
  double value;
  const char* unit;
  bool is_rate;  ///< a larger value is better
};

// Missing elements are returned as empty values, so that a file of another program is treated like
// one without results.
const Json& at(const Json& value, const char* key) {
  static const Json none;
  const auto place = value.find(key);
  return place != value.end() ? *place : none;
}
const Json& elements(const Json& value) {
  static const Json none = Json::array();
  return value.is_array() ? value : none;
}
std::string text(const Json& value) { return value.is_string() ? value.get<std::string>() : ""; }
double number(const Json& value) {
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

/// All rows of the results, in the order of the tables.
std::vector<Row> rows_of(const Json& results) {
  std::vector<Row> rows;
  for (const Json& copy : elements(at(results, "copies"))) {
    const std::string name =
        "copy " + text(at(copy, "direction")) + ", " + text(at(copy, "memory")) + " memory";
    rows.push_back({name, number(at(copy, "gigabytes_per_s")), "GB/s", true});
    rows.push_back({name + ", caller held", number(at(copy, "held_us")), "us", false});
  }
  for (const Json& operation : elements(at(results, "operations")))
    rows.push_back({text(at(operation, "operation")), number(at(operation, "ns")), "ns", false});
  for (const Json& rate : elements(at(at(results, "overlap"), "rates")))
    rows.push_back(
        {"overlap, " + text(at(rate, "memory")) + " memory, " + text(at(rate, "strategy")),
         number(at(rate, "gigabytes_per_s")), "GB/s", true});
  if (const double range = number(at(at(results, "range"), "gigabytes_per_s")); !std::isnan(range))
    rows.push_back({"a range through the device", range, "GB/s", true});
  return rows;
}

const Row* find(const std::vector<Row>& rows, const Row& like) {
  const auto place = std::ranges::find(rows, like.name, &Row::name);
  return place != rows.end() && place->value > 0 ? &*place : nullptr;
}

/// The value as text, such as "2097152" or "NVIDIA H200".
std::string in_words(const Json& value) {
  if (value.is_string()) return text(value);
  char digits[40];
  std::snprintf(digits, sizeof digits, "%.12g", number(value));
  return std::isnan(number(value)) ? "nothing" : digits;
}

void require_same(const char* what, const Json& before, const Json& now, const char* advice) {
  if (in_words(before) == in_words(now)) return;
  throw Failure(std::string{"the earlier results cannot be compared: "} + what + " was " +
                in_words(before) + ", and is " + in_words(now) + " now; " + advice);
}

}  // namespace

Json read_results(const std::string& path) {
  const auto refuse = [&](const std::string& why) -> Json {
    throw Failure(in_quotes(path) + " " + why +
                  "; name a file that runnel bench --json has written");
  };
  if (std::error_code none; std::filesystem::is_directory(path, none)) return refuse("is a folder");
  std::string bytes(max_bytes, '\0');
  bytes.resize(
      InputFile{path}.read({reinterpret_cast<unsigned char*>(bytes.data()), bytes.size()}));
  if (bytes.size() == max_bytes) return refuse("has more than results need");
  try {
    Json results = Json::parse(bytes);
    if (!rows_of(results).empty()) return results;
  } catch (const Json::parse_error& error) {
    return refuse("is no JSON at byte " + std::to_string(error.byte));
  }
  return refuse("has no results");
}

void require_comparable(const Json& before, const Json& now) {
  for (const char* field : {"backend", "device"})
    require_same(field, at(before, field), at(now, field), "measure again on this machine");
  require_same("the size of copies", at(before, "copy_bytes"), at(now, "copy_bytes"),
               "give the same --size");
  const Json &overlap = at(before, "overlap"), &overlap_now = at(now, "overlap");
  if (elements(at(overlap, "rates")).empty()) return;
  for (const char* field : {"bytes", "chunk", "in_flight"})
    require_same((std::string{"the overlap's "} + field).c_str(), at(overlap, field),
                 at(overlap_now, field), "give the same --size, --chunk and --in-flight");
}

int print_comparison(std::FILE* to, const Json& before, const Json& now, double percent) {
  const std::vector<Row> earlier = rows_of(before), later = rows_of(now);
  int slower = 0;
  std::fprintf(to, "%-52s %12s %12s %8s\n", "compared with the earlier results", "before", "now",
               "slower by");
  for (const Row& row : later) {
    const Row* const old = find(earlier, row);
    if (old == nullptr) {
      std::fprintf(to, "  %-50s %12s %12.2f %-4s  not there before\n", row.name.c_str(), "-",
                   row.value, row.unit);
      continue;
    }
    const double factor = row.is_rate ? old->value / row.value : row.value / old->value;
    const bool is_slower = factor > 1 + percent / 100;
    slower += is_slower ? 1 : 0;
    std::fprintf(to, "  %-50s %12.2f %12.2f %-4s %+7.1f %%%s\n", row.name.c_str(), old->value,
                 row.value, row.unit, 100 * (factor - 1),
                 is_slower                          ? "  SLOWER"
                 : factor < 1 / (1 + percent / 100) ? "  faster"
                                                    : "");
  }
  for (const Row& row : earlier)
    if (find(later, row) == nullptr)
      std::fprintf(to, "  %-50s %12.2f %12s %-4s  not measured now\n", row.name.c_str(), row.value,
                   "-", row.unit);
  std::fprintf(to, "%d of %zu rows are slower by more than %g %%\n", slower, later.size(), percent);
  return slower;
}

}  // namespace tool
