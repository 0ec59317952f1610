// SPDX-License-Identifier: Apache-2.0
/// JSON, by nlohmann's library. Only what writes or reads some includes this header: it takes long
/// to compile.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace tool {

/// The members stay in the order in which they were written.
using Json = nlohmann::ordered_json;

/// In printable ASCII, on one line. A file name may contain bytes that are no text, which become
/// U+FFFD.
[[nodiscard]] inline std::string to_line(const Json& json) {
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace tool
