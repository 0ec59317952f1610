// SPDX-License-Identifier: Apache-2.0
/// The part of `std::function<void(Argument)>` that the library needs. <functional> would add a
/// tenth of a second to the compilation of every file that includes runnel.
#pragma once

#include <runnel/detail/host_function.hpp>

#include <type_traits>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

template <class Argument>
class Callback;

/// A function that a Callback can store.
template <class F, class Argument>
concept CallableWith = !std::is_same_v<std::decay_t<F>, Callback<Argument>> &&
                       std::is_invocable_v<std::decay_t<F>&, Argument>;

template <class Argument>
class Callback {
 public:
  Callback() noexcept = default;
  template <CallableWith<Argument> F>
  Callback(F&& function)  // NOLINT: `.progress = [](...) { ... }` is how it is written
      : holder_{is_empty_callable(function)
                    ? nullptr
                    : new HolderOf<std::decay_t<F>>{std::forward<F>(function)}} {}
  Callback(const Callback& other)
      : holder_{other.holder_ != nullptr ? other.holder_->clone() : nullptr} {}
  Callback(Callback&& other) noexcept : holder_{std::exchange(other.holder_, nullptr)} {}
  Callback& operator=(Callback other) noexcept {
    std::swap(holder_, other.holder_);
    return *this;
  }
  ~Callback() { delete holder_; }

  explicit operator bool() const noexcept { return holder_ != nullptr; }
  void operator()(Argument argument) const { holder_->call(argument); }

 private:
  struct Holder {
    virtual ~Holder() = default;
    virtual void call(Argument) = 0;
    [[nodiscard]] virtual Holder* clone() const = 0;
  };
  template <class F>
  struct HolderOf final : Holder {
    template <class G>
    explicit HolderOf(G&& g) : function{std::forward<G>(g)} {}
    void call(Argument argument) override { static_cast<void>(function(argument)); }
    [[nodiscard]] Holder* clone() const override { return new HolderOf{function}; }
    F function;
  };

  Holder* holder_ = nullptr;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
