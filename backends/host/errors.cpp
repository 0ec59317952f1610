// SPDX-License-Identifier: Apache-2.0
#include <runnel/detail/backend.hpp>

#include <array>

namespace runnel::inline RUNNEL_ABI::backend {
namespace {

struct Row {
  const char* name;
  const char* text;
};
constexpr std::array<Row, 18> rows{{
    {"host::no_device", "there is no device"},
    {"host::invalid_device", "there is no such device"},
    {"host::invalid_argument", "an argument is not valid"},
    {"host::invalid_handle", "the handle is not valid"},
    {"host::out_of_memory", "out of memory"},
    {"host::not_permitted", "not permitted here"},
    {"host::not_supported", "not supported"},
    {"host::not_ready", "not finished yet"},
    {"host::forked", "used in a forked child"},
    {"host::capture", "cannot be captured"},
    {"host::peer_access", "no peer access"},
    {"host::driver_too_old", "the driver is too old"},
    {"host::device_lost", "the device was lost"},
    {"host::unreadable_source", "the source cannot be read"},
    {"host::unwritable_destination", "the destination cannot be written"},
    {"host::pool_exhausted", "the pool is exhausted"},
    {"host::function_failed", "a function failed"},
    {"host::unknown", "unknown error"},
}};
static_assert(rows.size() == static_cast<std::size_t>(errc::unknown));

[[nodiscard]] std::size_t row_of(status s) noexcept {
  const auto place = static_cast<std::size_t>(s) - 1;
  return place < rows.size() ? place : rows.size() - 1;
}

}  // namespace

errc classify(status s) noexcept { return static_cast<errc>(row_of(s) + 1); }
const char* error_name(status s) noexcept { return rows[row_of(s)].name; }
const char* error_text(status s) noexcept { return rows[row_of(s)].text; }
void forget_error(status) noexcept {}  // nothing is kept
bool is_not_ready(status s) noexcept { return s == static_cast<status>(errc::not_ready); }

}  // namespace runnel::inline RUNNEL_ABI::backend
