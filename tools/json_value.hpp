// SPDX-License-Identifier: Apache-2.0
/// Reads JSON, as Json (json.hpp) writes it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tool {

struct JsonValue {
  using Array = std::vector<JsonValue>;
  using Object = std::map<std::string, JsonValue, std::less<>>;
  std::variant<std::nullptr_t, bool, double, std::string, Array, Object> value = nullptr;

  // What the value does not have is empty, so that a file of another program reads like one without results.
  [[nodiscard]] const JsonValue& at(std::string_view key) const;
  [[nodiscard]] double number() const;  ///< not a number, if it is none
  [[nodiscard]] std::string text() const;
  [[nodiscard]] const Array& elements() const;
};

/// @throws Failure that says where the text is no JSON
[[nodiscard]] JsonValue parse_json(std::string_view text);

}  // namespace tool
