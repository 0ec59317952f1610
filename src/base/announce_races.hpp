// SPDX-License-Identifier: Apache-2.0
/// The functions of announce.hpp in a build with the option find_races. They call ThreadSanitizer
/// if the program is linked with it, and do nothing otherwise.
#pragma once

#include "base/not_copied.hpp"

#include <runnel/config.hpp>

#include <array>
#include <cstddef>
#include <memory>

namespace runnel::inline RUNNEL_ABI::sync {

inline constexpr bool finds_races = true;

void happens_before(const void* address) noexcept;
void happens_after(const void* address) noexcept;
void reads(const void* from, std::size_t bytes) noexcept;
void writes(void* to, std::size_t bytes) noexcept;

class Token {
 public:
  Token() noexcept = default;
  /// Empty, so that it orders nothing, if there is no memory.
  [[nodiscard]] static Token make() noexcept;
  static Token of_part(const std::shared_ptr<const void>& object, const void* part) noexcept {
    Token token;
    token.address_ = std::shared_ptr<const void>{object, part};
    return token;
  }
  void happens_before() const noexcept { sync::happens_before(address_.get()); }
  void happens_after() const noexcept { sync::happens_after(address_.get()); }

 private:
  std::shared_ptr<const void> address_;
};

class TsanIgnore : detail::NotCopied {
 public:
  TsanIgnore() noexcept;
  ~TsanIgnore();
};

/// The return addresses of the user's functions that enqueue a task, the innermost first.
struct CallStack {
  static constexpr std::size_t most = 15;
  std::size_t count = 0;
  std::array<void*, most> addresses{};

  void read() noexcept;
};

/// In this scope, ThreadSanitizer sees these functions as the callers of what the thread does.
class CalledBy : detail::NotCopied {
 public:
  explicit CalledBy(const CallStack& stack) noexcept;
  ~CalledBy();

 private:
  std::size_t count_;
};

template <std::size_t Tasks>
struct Callers {
  std::array<CallStack, Tasks> callers{};

  void note_caller(std::size_t task) noexcept { callers[task].read(); }
};

}  // namespace runnel::inline RUNNEL_ABI::sync
