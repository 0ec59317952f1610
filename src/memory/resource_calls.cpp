// SPDX-License-Identifier: Apache-2.0
#include "memory/resource_calls.hpp"

#include "base/announce.hpp"
#include "base/check.hpp"
#include "base/not_copied.hpp"
#include "base/operation.hpp"
#include "device/scoped_device.hpp"

#include <runnel/detail/access.hpp>

#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

thread_local constinit bool in_resource = false;

class InResource : NotCopied {
 public:
  InResource() noexcept : outer_{std::exchange(in_resource, true)} {}
  ~InResource() { in_resource = outer_; }

 private:
  bool outer_;
  SuppressEvents suppressed_;
};

int device_of(StreamRef stream) noexcept { return Access::slot(stream)->device; }

}  // namespace

void SharedResource::drop() const noexcept {
  sync::happens_before(resource_);
  if (resource_->owners_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  sync::happens_after(resource_);
  delete resource_;
}

bool is_in_resource() noexcept { return in_resource; }

void* allocate_from_resource(AnyResource& resource, StreamRef stream, size_t bytes,
                             const char* operation) {
  const ScopedDevice on{device_of(stream), operation};
  const InResource within;
  void* const block = resource.take(stream, bytes);
  if (block == nullptr)
    throw_error(errc::out_of_memory, operation, "the buffer's resource gave a null pointer");
  return block;
}

bool deallocate_to_resource(AnyResource& resource, StreamRef stream, void* pointer,
                            size_t bytes) noexcept {
  const ScopedDevice on{device_of(stream), ScopedDevice::no_throw};
  const InResource within;
  try {
    resource.give_back(stream, pointer, bytes);
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
