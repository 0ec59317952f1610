// SPDX-License-Identifier: Apache-2.0
#include "backend.hpp"
#include "base/error_texts.hpp"
#include "state.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace runnel::inline RUNNEL_ABI::backend {
namespace {

/// "host::" and the name of a code.
struct Name {
  char text[40];
};
constexpr auto names = [] {
  constexpr std::string_view prefix = "host::";
  std::array<Name, detail::error_texts.size()> all{};
  for (std::size_t row = 0; row < all.size(); ++row) {
    const std::string_view name = detail::error_texts[row].name;
    std::copy(name.begin(), name.end(), std::copy(prefix.begin(), prefix.end(), all[row].text));
  }
  return all;
}();

[[nodiscard]] std::size_t row_of(status s) noexcept { return detail::row_of(classify(s)); }

}  // namespace

errc classify(status s) noexcept { return detail::code_of(s % host::fault_unit); }
CaptureFault capture_fault(status s) noexcept {
  return static_cast<CaptureFault>(s / host::fault_unit);
}
const char* error_name(status s) noexcept { return names[row_of(s)].text; }
const char* error_text(status s) noexcept { return detail::error_texts[row_of(s)].text; }
void forget_error(status) noexcept {}  // There is no last error.
status take_last_error() noexcept { return ok; }
bool is_not_ready(status s) noexcept { return s == static_cast<status>(errc::not_ready); }

}  // namespace runnel::inline RUNNEL_ABI::backend
