// SPDX-License-Identifier: Apache-2.0
/// JSON, with nlohmann's library. This header takes long to compile, so only sources that read or
/// write JSON include it.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace tool {

/// Members keep the order of their insertion.
using Json = nlohmann::ordered_json;

/// Returns the value in printable ASCII, on one line. Bytes that are not valid UTF-8, for example
/// in a file name, are replaced by U+FFFD.
[[nodiscard]] inline std::string to_line(const Json& json) {
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace tool
