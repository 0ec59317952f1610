// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_sharing
/// A stream of another library, together with an owner that keeps it alive.
#pragma once

#include <runnel/stream.hpp>

#include <memory>
#include <optional>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

namespace detail {
/// Which default stream a native handle denotes, if any.
enum class DefaultMeant : unsigned char { none, of_device, of_thread };
[[nodiscard]] DefaultMeant default_meant_by(native::stream handle) noexcept;
}  // namespace detail

/// A view of a stream that other code owns, with shared ownership of an object that keeps that
/// stream alive: for example a std::shared_ptr to the other library's stream object. Copies refer
/// to the same stream and share the owner. The last copy releases the owner. Views of the stream
/// become invalid then, unless other Stream objects wrap the handle.
class ForeignStream : public StreamRef {
 public:
  /// Wraps `handle`, which is as for StreamRef::from_native(): 0, 1 and 2 are default streams.
  /// @throws errc::invalid_argument for another device's handle
  ForeignStream(native::stream handle, Device device, std::shared_ptr<const void> owner)
      : ForeignStream{std::make_shared<const Held>(handle, device, std::move(owner))} {}

  ///@{ Moving copies, so that no object is left without an owner.
  ForeignStream(const ForeignStream&) = default;
  ForeignStream& operator=(const ForeignStream&) = default;
  ~ForeignStream() = default;
  ///@}

  /// The object that keeps the stream alive.
  [[nodiscard]] const std::shared_ptr<const void>& owner() const noexcept { return held_->owner; }

 private:
  struct Held {
    Held(native::stream handle, Device device, std::shared_ptr<const void> keeper)
        : owner{std::move(keeper)} {
      if (detail::default_meant_by(handle) != detail::DefaultMeant::none)
        view.emplace(StreamRef::from_native(handle, device));
      else
        view.emplace(wrapper.emplace(Stream::from_native(handle, device, Ownership::borrow)));
    }
    std::shared_ptr<const void> owner;
    std::optional<Stream> wrapper;  // Empty for a default stream. Destroyed before the owner.
    std::optional<StreamRef> view;
  };
  explicit ForeignStream(std::shared_ptr<const Held> held) noexcept
      : StreamRef{*held->view}, held_{std::move(held)} {}

  std::shared_ptr<const Held> held_;
};

}  // namespace runnel::inline RUNNEL_ABI
