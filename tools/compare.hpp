// SPDX-License-Identifier: Apache-2.0
/// `runnel bench --compare` says what has become slower since an earlier run.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdio>
#include <string>

namespace tool {

/// What `runnel bench --json` wrote into the file. @throws Failure if there is no such file, or it
/// contains something else
[[nodiscard]] nlohmann::ordered_json read_results(const std::string& path);

/// @throws Failure if the earlier results are of another backend, device or size, so that comparing
/// them would mean nothing. Requires: `now` has the fields of `runnel bench --json` that describe
/// the machine and the sizes; it need not have results.
void require_comparable(const nlohmann::ordered_json& before, const nlohmann::ordered_json& now);

/// Prints a line for each row of the two results. A row is slower if it takes more than `percent`
/// longer, or has a rate that is lower by as much. Returns how many are slower.
[[nodiscard]] int print_comparison(std::FILE* to, const nlohmann::ordered_json& before,
                                   const nlohmann::ordered_json& now, double percent);

}  // namespace tool
