// SPDX-License-Identifier: Apache-2.0
/// The slot that a StreamRef points to. Slots are never freed, only reused with a new id. Therefore
/// one load detects a stale view, and its handle is never passed to the runtime: the runtime may
/// have reused the handle for another stream, or (HIP 7) may not check it.
#pragma once

#include <runnel/native.hpp>

#include <cstdint>
#include <string>

namespace runnel::inline RUNNEL_ABI::detail {

struct Attachment;  // detail/attachment.hpp

/// The part of `std::atomic` that public headers need, without the thousands of lines of <atomic>.
/// An order is a std::memory_order, or its number.
template <class T>
class Atomic {
 public:
  constexpr Atomic(T value) noexcept : value_{value} {}
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;
  [[nodiscard]] T load(auto order) const noexcept {
    T value{};
    __atomic_load(&value_, &value, static_cast<int>(order));
    return value;
  }
  void store(T value, auto order) noexcept {
    __atomic_store(&value_, &value, static_cast<int>(order));
  }
  T exchange(T value, auto order) noexcept {
    T before{};
    __atomic_exchange(&value_, &value, &before, static_cast<int>(order));
    return before;
  }
  bool compare_exchange_weak(T& expected, T value, auto order) noexcept {
    return __atomic_compare_exchange(&value_, &expected, &value, true, static_cast<int>(order),
                                     __ATOMIC_RELAXED);
  }

 private:
  T value_;
};

/// Whether a stream orders with the default stream. `unknown`: it was wrapped while it was being
/// captured, when the runtime must not be asked.
enum class Blocking : unsigned char { no, yes, unknown };

struct StreamSlot {
  native::stream handle{};
  Atomic<std::uint64_t> id{0};  // 0 while the slot is unused.
  int device = 0;
  bool owned = false;  // A Stream owns the handle, and destroys it.
  mutable Atomic<Blocking> blocking{Blocking::no};
  // The handle refers to the current device (or thread): make the device current before using it.
  bool is_default = false;
  char name[32] = {};
  Atomic<Attachment*> attachments{nullptr};
};

[[nodiscard]] inline bool is_live(const StreamSlot* slot, std::uint64_t id) noexcept {
  return slot != nullptr && slot->id.load(__ATOMIC_ACQUIRE) == id;
}
[[noreturn]] void throw_dead_stream(std::uint64_t id);
[[noreturn]] void throw_invalid_argument(const char* operation, const char* reason);
/// A Stream's reference to its slot, and whether the Stream owns the native stream. It is one word,
/// so that a Stream has the size of its view and a pointer.
class SlotReference {
 public:
  constexpr SlotReference() noexcept = default;
  SlotReference(StreamSlot* slot, bool owner) noexcept
      : word_{reinterpret_cast<std::uintptr_t>(slot) | std::uintptr_t{owner}} {}
  [[nodiscard]] explicit operator bool() const noexcept { return word_ != 0; }
  [[nodiscard]] StreamSlot* slot() const noexcept {
    return reinterpret_cast<StreamSlot*>(word_ & ~std::uintptr_t{1});
  }
  [[nodiscard]] bool is_owner() const noexcept { return (word_ & 1) != 0; }
  /// Returns the reference, and leaves this object empty.
  [[nodiscard]] SlotReference take() noexcept {
    const SlotReference taken{*this};
    word_ = 0;
    return taken;
  }

 private:
  static_assert(alignof(StreamSlot) > 1);
  std::uintptr_t word_ = 0;
};
/// Drops a Stream object's reference. If the Stream owned the native stream, the native stream is
/// destroyed.
void drop_stream(SlotReference reference) noexcept;
[[nodiscard]] std::string describe(const StreamSlot* slot, std::uint64_t id);

}  // namespace runnel::inline RUNNEL_ABI::detail
