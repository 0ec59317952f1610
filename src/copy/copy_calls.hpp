// SPDX-License-Identifier: Apache-2.0
/// Many copies in few runtime calls.
#pragma once

#include "backend.hpp"
#include "base/check.hpp"

#include <array>
#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

/// Collects copies whose order does not matter, and enqueues several of them in one runtime call.
/// Requires: no side of a copy is pageable memory.
class CopyCalls {
 public:
  explicit CopyCalls(native::stream stream) noexcept : stream_{stream} {}

  /// Both return the first failure. After a failure they enqueue nothing more. If the runtime has
  /// no call for several copies, they enqueue each copy by a call of its own.
  [[nodiscard]] backend::status add(void* to, const void* from, size_t bytes) noexcept {
    to_[count_] = to;
    from_[count_] = from;
    bytes_[count_] = bytes;
    return ++count_ == per_call ? finish() : status_;
  }
  [[nodiscard]] backend::status finish() noexcept {
    if (status_ == backend::ok && count_ > 0) status_ = enqueue();
    count_ = 0;
    return status_;
  }

 private:
  // Measured on an H100 with CUDA 13.0: 16,384 copies of 16 KiB to the device reach 33 GB/s with 64
  // copies a call, 30 GB/s with 512, and 6 GB/s in a single call.
  static constexpr size_t per_call = 64;

  [[nodiscard]] backend::status enqueue() noexcept {
    if (count_ == 1) return enqueue_each();
    const backend::status s =
        backend::copy_batch_async(to_.data(), from_.data(), bytes_.data(), count_, stream_);
    const bool is_missing =
        failed_with(s, errc::not_supported) || failed_with(s, errc::driver_too_old);
    return is_missing ? enqueue_each() : s;
  }
  [[nodiscard]] backend::status enqueue_each() noexcept {
    backend::status s = backend::ok;
    for (size_t i = 0; s == backend::ok && i < count_; ++i)
      s = backend::copy_async(to_[i], from_[i], bytes_[i], stream_);
    return s;
  }

  native::stream stream_;
  backend::status status_ = backend::ok;
  size_t count_ = 0;
  std::array<void*, per_call> to_;
  std::array<const void*, per_call> from_;
  std::array<size_t, per_call> bytes_;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
