// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_memory
/// The base class of the buffers: a pointer, a size, and an owner that frees the memory.
#pragma once

#include <runnel/memory_kind.hpp>

#include <type_traits>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

/// Owns `size()` elements, uninitialised. A moved-from array is empty, like a default-constructed
/// one. `Owner` has `static constexpr MemoryKind kind` and
/// `free(void*, std::size_t bytes) noexcept`.
template <class T, class Owner>
class OwnedArray : protected Owner {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>,
                "a buffer holds trivially copyable elements");
  static_assert(alignof(T) <= 256, "the memory of a buffer is aligned to 256 bytes");

 public:
  static constexpr MemoryKind memory_kind =
      Owner::kind;  ///< lets copies know the kind of memory without a query of the runtime

  /// The other array is empty afterwards.
  OwnedArray(OwnedArray&& other) noexcept
      : Owner{std::exchange(static_cast<Owner&>(other), Owner{})},
        data_{std::exchange(other.data_, nullptr)},
        size_{std::exchange(other.size_, 0)} {}
  /// The same.
  OwnedArray& operator=(OwnedArray&& other) noexcept {
    OwnedArray taken{std::move(other)};
    std::swap(static_cast<Owner&>(*this), static_cast<Owner&>(taken));
    std::swap(data_, taken.data_);
    std::swap(size_, taken.size_);
    return *this;
  }
  ~OwnedArray() {
    if (data_ != nullptr) Owner::free(data_, size_bytes());
  }

  ///@{ As in std::span.
  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] const T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  ///@}

 protected:
  OwnedArray() noexcept = default;
  /// Makes this array empty without freeing the memory.
  void forget() noexcept {
    static_cast<Owner&>(*this) = Owner{};
    data_ = nullptr;
    size_ = 0;
  }
  OwnedArray(void* data, std::size_t size, Owner owner) noexcept
      : Owner{std::move(owner)}, data_{static_cast<T*>(data)}, size_{size} {}

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// An OwnedArray of memory that the host may read and write.
template <class T, class Owner>
class OwnedHostArray : public OwnedArray<T, Owner> {
 public:
  ///@{ As in std::span. Requires for operator[]: i < size().
  [[nodiscard]] T* begin() noexcept { return this->data(); }
  [[nodiscard]] T* end() noexcept { return this->data() + this->size(); }
  [[nodiscard]] const T* begin() const noexcept { return this->data(); }
  [[nodiscard]] const T* end() const noexcept { return this->data() + this->size(); }
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return this->data()[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept { return this->data()[i]; }
  ///@}

 protected:
  using OwnedArray<T, Owner>::OwnedArray;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
