// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_completion
/// Objects that live until the work of a stream is complete: a program can hand over memory that
/// the work uses, instead of keeping it alive itself.
#pragma once

#include <runnel/stream.hpp>

#include <utility>

namespace runnel::inline RUNNEL_ABI {

namespace detail {

/// An object that the library owns.
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
/// Destroys the object once the work submitted to the stream so far is complete. Takes ownership
/// unless it throws.
void keep_object(StreamRef stream, Kept* object);

/// Moves an object into the library's ownership. The destructor moves it back, unless keep() was
/// successful.
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

/// T, as a forwarding reference deduces it, is an object that can be moved from, and whose
/// destructor has an effect.
template <class T>
concept Keepable = !std::is_reference_v<T> && !std::is_const_v<T> &&
                   std::is_nothrow_move_constructible_v<T> && !std::is_trivially_destructible_v<T>;

}  // namespace detail

/// Takes ownership of `object`, and destroys it once everything submitted to `stream` so far is
/// complete or has failed. Later work of the stream does not wait for this. The object can be
/// anything that owns memory: a vector, a PinnedBuffer, a `std::unique_ptr`, a copy of a
/// `std::shared_ptr`. It is destroyed on the library's thread that calls the functions of
/// `on_complete()`, in order with them: its destructor may use streams, and must not wait for such
/// a function. In a capture, the graph owns the object, and destroys it together with its host
/// functions, after its last launch. Objects are not destroyed
/// in a forked child, nor once the process exits. If keep() throws, `object` is unchanged.
/// Requires: moving the object does not move the memory that the work uses; this holds for a
/// vector, and not for an array.
/// @throws errc::capture in a capture that other code has begun, if the runtime's graphs own no
/// objects (HIP before 5.3); errc::out_of_memory, also if the system has no thread
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
