// SPDX-License-Identifier: Apache-2.0
#include "device/partition.hpp"

#include "base/check.hpp"
#include "base/never_destroyed.hpp"
#include "base/operation.hpp"
#include "base/sync.hpp"
#include "device/device_call.hpp"

#include <runnel/detail/access.hpp>

#include <algorithm>
#include <list>
#include <mutex>
#include <vector>

namespace runnel::inline RUNNEL_ABI {
namespace detail { namespace {

constexpr const char* dividing = "divide a device";

/// The result of one call of partition(). Never destroyed: streams of the parts may run until the
/// process ends.
struct Division {
  int device;
  std::vector<int> wanted;
  std::vector<PartitionData> parts;
};
struct Divisions {
  sync::Mutex mutex;
  std::list<Division> all;
};
Divisions& divisions() { return never_destroyed<Divisions>(); }

void require_numbers(int device, std::span<const int> wanted) {
  int left = Device{device}.multiprocessor_count();
  for (const int number : wanted) {
    if (number < 1) throw_invalid_argument(dividing, "a part has at least one multiprocessor");
    if (number >= left)
      throw_invalid_argument(dividing, "the parts leave no multiprocessor for the last part");
    left -= number;
  }
}

/// Requires: the lock is held.
Division& divide(int device, std::span<const int> wanted) {
  auto& all = divisions().all;
  const auto is_same = [&](const Division& each) {
    return each.device == device && std::ranges::equal(each.wanted, wanted);
  };
  if (const auto found = std::ranges::find_if(all, is_same); found != all.end()) return *found;
  std::list<Division> fresh;
  Division& division = fresh.emplace_back(Division{device, {wanted.begin(), wanted.end()}, {}});
  std::vector<int> granted(wanted.size() + 1);
  std::vector<backend::Part> parts(wanted.size() + 1);
  division.parts.reserve(parts.size());
  const ScopedDevice on{device, dividing};
  const ScopedWait wait{dividing, {.device = device}};
  const backend::status s =
      backend::device_divide(device, wanted.data(), wanted.size(), granted.data(), parts.data());
  if (failed_with(s, errc::invalid_argument))
    throw_invalid_argument(
        dividing,
        "rounded up to what the device can separate, the parts leave nothing for the last part");
  check(s, dividing);
  for (size_t i = 0; i < parts.size(); ++i)
    division.parts.push_back({device, granted[i], parts[i]});
  all.splice(all.end(), fresh);
  return division;
}

}}  // namespace detail

using namespace detail;

int Partition::multiprocessors() const noexcept { return data_->multiprocessors; }
Device Partition::device() const noexcept { return Device{data_->device}; }

void partition(Device device, std::span<const int> multiprocessors, std::span<Partition> parts) {
  const DeviceCall call{device.ordinal(), dividing};
  if (!device.has_partitions())
    throw_error(errc::not_supported, call.operation(),
                "streams of this device cannot have a part of its multiprocessors");
  if (parts.size() != multiprocessors.size() + 1)
    throw_invalid_argument(call.operation(), "there must be one part more than numbers");
  require_numbers(call.device(), multiprocessors);
  const std::lock_guard lock{divisions().mutex};
  const Division& division = divide(call.device(), multiprocessors);
  std::ranges::transform(division.parts, parts.begin(),
                         [](const PartitionData& each) { return Access::partition(&each); });
}

}  // namespace runnel::inline RUNNEL_ABI
