// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_completion
/// Objects that live until a stream has passed: memory that work of the stream uses can be given
/// away instead of being kept by hand.
#pragma once

#include <runnel/detail/refused.hpp>
#include <runnel/stream.hpp>

#include <new>
#include <type_traits>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

namespace detail {

/// An object in the library's keeping.
struct Kept {
  void (*destroy)(Kept*) noexcept;
};
template <class T>
struct KeptObject : Kept {
  explicit KeptObject(T& from) noexcept
      : Kept{[](Kept* self) noexcept { delete static_cast<KeptObject*>(self); }},
        object{std::move(from)} {}
  T object;
};

/// Makes sure that the stream can keep an object now. @throws as keep()
void prepare_to_keep(StreamRef stream);
/// Destroys the object once the stream has passed. Takes ownership unless it throws.
void keep_object(StreamRef stream, Kept* object);

/// Takes an object over, and gives it back unless a stream keeps it in the end.
template <class T>
class Keeping {
 public:
  explicit Keeping(T& from) : from_{from}, kept_{new KeptObject<T>{from}} {}
  Keeping(const Keeping&) = delete;
  Keeping& operator=(const Keeping&) = delete;
  ~Keeping() {
    if (kept_ == nullptr) return;
    if constexpr (std::is_nothrow_move_assignable_v<T>) {
      from_ = std::move(kept_->object);
    } else {
      from_.~T();
      ::new (static_cast<void*>(&from_)) T(std::move(kept_->object));
    }
    delete kept_;
  }
  [[nodiscard]] T& object() const noexcept { return kept_->object; }
  void keep(StreamRef stream) {
    keep_object(stream, kept_);
    kept_ = nullptr;
  }

 private:
  T& from_;
  KeptObject<T>* kept_;
};

/// T as a forwarding reference deduces it: an object that can be taken over, and whose end frees
/// something.
template <class T>
concept Keepable = !std::is_reference_v<T> && !std::is_const_v<T> &&
                   std::is_nothrow_move_constructible_v<T> && !std::is_trivially_destructible_v<T>;

}  // namespace detail

/// Takes `object` over, and destroys it once everything submitted to `stream` so far is complete or
/// has failed. Nothing is enqueued that later work waits for. Any object will do that owns memory:
/// a vector, a PinnedBuffer, a `std::unique_ptr`, a share of a `std::shared_ptr`. It is destroyed
/// on the library's thread that calls the functions of `on_complete()`, and in their order: its
/// destructor may use streams, and must not wait for such a function. In a capture that was begun
/// with the library the graph keeps the object, and destroys it where it destroys its host
/// functions: after its last launch. Nothing is destroyed in a forked child, nor once the process
/// exits. If keep() throws, `object` is as it was. Requires: the memory that the work uses stays
/// where it is when the object is moved, as a vector's does and an array's does not.
/// @throws errc::capture in a capture that other code has begun; errc::out_of_memory, also if the
/// system has no thread
template <detail::Keepable T>
void keep(StreamRef stream, T&& object) {
  detail::Keeping<T> keeping{object};
  keeping.keep(stream);
}

/// @cond
template <class T>
  requires(!detail::Keepable<T>)
void keep RUNNEL_REFUSED(
    "keep takes an owner over: write std::move(owner), or keep a share of it, as in keep(stream, "
    "std::shared_ptr{owner})",
    StreamRef, T&&);
/// @endcond

}  // namespace runnel::inline RUNNEL_ABI
