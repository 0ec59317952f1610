// SPDX-License-Identifier: Apache-2.0
/// `runnel bench --compare` reports what has become slower since an earlier run.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdio>
#include <string>

namespace tool {

/// Reads a file that `runnel bench --json` has written. @throws Failure if there is no such file,
/// or it contains something else
[[nodiscard]] nlohmann::ordered_json read_results(const std::string& path);

/// @throws Failure if the earlier results are for another backend, device or size, so that a
/// comparison would be meaningless. Requires: `now` has the fields of `runnel bench --json` that
/// describe the machine and the sizes; it need not have results.
void require_comparable(const nlohmann::ordered_json& before, const nlohmann::ordered_json& now);

/// Prints a line for each row of the two results. A row is slower if its time is longer by more
/// than `percent` percent, or its rate is lower by as much. Returns the number of slower rows.
[[nodiscard]] int print_comparison(std::FILE* to, const nlohmann::ordered_json& before,
                                   const nlohmann::ordered_json& now, double percent);

}  // namespace tool
