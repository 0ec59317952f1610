// SPDX-License-Identifier: Apache-2.0
#include "device/ipc.hpp"

#include "base/check.hpp"
#include "base/sync.hpp"
#include "device/device_table.hpp"

#include <sys/random.h>

#include <cstring>
#include <ctime>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

constexpr uint64_t layout = 0x3176'6c65'6e6e'7572;  // "runnelv1"

/// A random number that identifies this process. A process id would not do: two containers may use
/// the same one.
uint64_t this_process() noexcept {
  static constinit sync::Atomic<uint64_t> number{0};
  uint64_t known = number;
  if (known != 0) return known;
  uint64_t fresh = 0;
  if (getrandom(&fresh, sizeof fresh, 0) != sizeof fresh)
    fresh = static_cast<uint64_t>(std::time(nullptr));
  fresh |= 1;
  return number.compare_exchange_strong(known, fresh) ? fresh : known;
}

/// FNV-1a. It detects corrupted or truncated bytes, and does not protect against forgery.
uint32_t check_of(const IpcContent& content) noexcept {
  unsigned char bytes[sizeof content];
  std::memcpy(bytes, &content, sizeof content);
  uint32_t sum = 2166136261U;
  for (size_t i = 0; i < offsetof(IpcContent, check); ++i) sum = (sum ^ bytes[i]) * 16777619U;
  return sum;
}

}  // namespace

static_assert(sizeof(IpcContent) <= sizeof(IpcHandleBytes) &&
              std::has_unique_object_representations_v<IpcContent>);

IpcHandleBytes seal_handle(IpcContent content, IpcKind kind, int device, const char* operation) {
  content.layout = layout;
  content.process = this_process();
  content.kind = kind;
  check(backend::device_uuid(content.device, device), operation);
  content.check = check_of(content);
  IpcHandleBytes handle{};
  std::memcpy(handle.data(), &content, sizeof content);
  return handle;
}

IpcContent read_handle(const IpcHandleBytes& handle, IpcKind kind, int& device,
                       const char* operation) {
  IpcContent content;
  std::memcpy(&content, handle.data(), sizeof content);
  if (content.layout != layout || content.kind != kind || content.check != check_of(content))
    throw_invalid_argument(operation, "the bytes are no such handle of this version of runnel");
  if (content.process == this_process())
    throw_invalid_argument(operation,
                           "the handle is of this process: use the object that it was made of");
  const int count = device_count();
  for (device = 0; device < count; ++device) {
    unsigned char uuid[16];
    check(backend::device_uuid(uuid, device), operation);
    if (std::memcmp(uuid, content.device, sizeof uuid) == 0) return content;
  }
  throw_error(errc::invalid_device, operation, "this process does not see the handle's device");
}

}  // namespace runnel::inline RUNNEL_ABI::detail
