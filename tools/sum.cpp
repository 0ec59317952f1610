// SPDX-License-Identifier: Apache-2.0
#include "sum.hpp"

#include "json.hpp"
#include "launch_byte_kernel.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>

namespace tool {

namespace {

__extension__ using Integer128 = __int128;

/// The total of the integers of all chunks. 128 bits suffice for 2^64 numbers.
struct IntegerTotal {
  Integer128 sum = 0;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  std::int64_t most = std::numeric_limits<std::int64_t>::min();

  void add(const IntegerSum& part) {
    add(IntegerTotal{Integer128{part.high} * (Integer128{1} << 32) + part.low, part.least,
                     part.most});
  }
  void add(const IntegerTotal& other) {
    sum += other.sum;
    least = std::min(least, other.least);
    most = std::max(most, other.most);
  }
};

template <class Number>
struct Total : std::conditional_t<std::is_integral_v<Number>, IntegerTotal, FloatSum> {
  std::uint64_t count = 0;
};

std::string to_text(Integer128 number) {
  std::string digits;
  for (Integer128 rest = number; digits.empty() || rest != 0; rest /= 10) {
    const auto digit = static_cast<int>(rest % 10);
    digits += static_cast<char>('0' + (digit < 0 ? -digit : digit));
  }
  if (number < 0) digits += '-';
  std::ranges::reverse(digits);
  return digits;
}
std::string to_text(std::int64_t number) { return std::to_string(number); }
/// The shortest text from which the same number is read.
std::string to_text(double number) {
  if (std::isnan(number)) return "nan";  // Some NaNs have a sign.
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, number).ptr};
}

// JSON cannot represent infinite numbers and NaN, and its readers expect integers to fit into 64
// bits.
Json to_json(double number) { return std::isfinite(number) ? Json(number) : Json(to_text(number)); }
Json to_json(std::int64_t number) { return number; }
Json to_json(Integer128 number) {
  const auto short_number = static_cast<std::int64_t>(number);
  return short_number == number ? Json(short_number) : Json(to_text(number));
}

std::uint64_t nans_of(const FloatSum& total) { return total.nans; }
std::uint64_t nans_of(const IntegerTotal&) { return 0; }

template <class T>
void print_table(const T& total, const std::string& type) {
  std::printf("  numbers  %llu of type %s\n", static_cast<unsigned long long>(total.count),
              type.c_str());
  std::printf("  sum      %s\n", to_text(total.sum).c_str());
  if (nans_of(total) > 0)
    std::printf("  NaN      %llu\n", static_cast<unsigned long long>(nans_of(total)));
  if (total.count == nans_of(total)) return;
  std::printf("  minimum  %s\n", to_text(total.least).c_str());
  std::printf("  maximum  %s\n", to_text(total.most).c_str());
}

template <class T>
void print_json(const T& total, const std::string& type, const ReadingSummary& summary) {
  Json json = summary.to_json();
  json["type"] = type;
  json["numbers"] = total.count;
  json["sum"] = to_json(total.sum);
  json["nans"] = nans_of(total);
  if (total.count > nans_of(total)) {
    json["minimum"] = to_json(total.least);
    json["maximum"] = to_json(total.most);
  }
  std::printf("%s\n", to_line(json).c_str());
}

template <class Number>
void sum_of(const ReadingCommand& command, Processes& processes) {
  Reading reading{command, sizeof(Number), processes};
  Total<Number> own;
  const auto launch = [&](runnel::StreamRef stream, runnel::DeviceSpan<const Number> in,
                          runnel::DeviceSpan<SumOf<Number>> sums) {
    own.count += in.size();
    launch_sum<Number>(stream, in, sums);
  };
  reading.run<Number, SumOf<Number>>(sums_of_a_chunk(), launch,
                                     [&](std::span<const SumOf<Number>> sums) {
                                       for (const SumOf<Number>& each : sums) own.add(each);
                                     });

  Total<Number> all;
  for (const Total<Number>& each : reading.gather(own)) {
    all.add(each);
    all.count += each.count;
  }
  if (processes.rank() != 0) return;
  const ReadingSummary summary = reading.summary(all.count * sizeof(Number));
  if (command.json) return print_json(all, command.type, summary);
  summary.print();
  print_table(all, command.type);
}

}  // namespace

void sum(const ReadingCommand& command, Processes& processes) {
  struct Type {
    std::string_view name;
    void (*sum)(const ReadingCommand& command, Processes& processes);
  };
  static constexpr Type types[] = {{"u8", sum_of<std::uint8_t>},
                                   {"i32", sum_of<std::int32_t>},
                                   {"i64", sum_of<std::int64_t>},
                                   {"f32", sum_of<float>},
                                   {"f64", sum_of<double>}};
  const auto* const type = std::ranges::find(types, command.type, &Type::name);
  if (type == std::end(types))
    throw Misuse("--type " + in_quotes(command.type) +
                 " is not known; choose one of u8, i32, i64, f32, f64");
  type->sum(command, processes);
}

}  // namespace tool
