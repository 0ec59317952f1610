// SPDX-License-Identifier: Apache-2.0
/// Declares functions that exist only to refuse a mistake. The compiler prints one error line that
/// says what to write instead, and a `requires` expression finds that the call is invalid.
#pragma once

#include <runnel/config.hpp>

#include <cstddef>
#include <type_traits>

namespace runnel::inline RUNNEL_ABI::detail {

template <std::size_t size>
struct Text {
  char text[size];
  constexpr Text(const char (&literal)[size]) noexcept {
    for (std::size_t i = 0; i < size; ++i) text[i] = literal[i];
  }
};
/// g++ prints the parameters of a deleted function in its error, so the type of one parameter
/// contains the reason.
template <Text reason>
struct Because {};

/// std::convertible_to, without <concepts>.
template <class From, class To>
concept ConvertibleTo = std::is_convertible_v<From, To>;

}  // namespace runnel::inline RUNNEL_ABI::detail

// The parameters and the end of the declaration of a refused function: RUNNEL_REFUSED("what to
// write", int, bool). Clang does not print a deleted function's parameters, but prints the reason
// of an unavailable function and treats the call as invalid. g++ 12 treats a call of an unavailable
// function as valid, and prints the error twice. docs/decisions/interface.md discusses
// alternatives. For a template of a member function clang prints twice that it is unavailable.
// RUNNEL_REFUSED_OPERATOR is for operators, which have a fixed number of parameters: there g++
// prints the type of the result. nvcc would print the reason letter by letter; g++, to which it
// passes the host's code, prints an attribute's. There `requires` finds that such a call is valid.
#if defined __clang__ || __CUDACC_VER_MAJOR__ >= 13
#define RUNNEL_REFUSED(reason, ...) (__VA_ARGS__) __attribute__((unavailable(reason)))
#define RUNNEL_REFUSED_OPERATOR(reason, ...) int& __VA_ARGS__ __attribute__((unavailable(reason)))
#else
#define RUNNEL_REFUSED(reason, ...) (__VA_ARGS__, ::runnel::detail::Because<reason> = {}) = delete
#define RUNNEL_REFUSED_OPERATOR(reason, ...) ::runnel::detail::Because<reason> __VA_ARGS__ = delete
#endif
#define RUNNEL_REFUSED_TEMPORARY_STREAM(...)                                          \
  RUNNEL_REFUSED(                                                                     \
      "a temporary stream ends at once: give it a name, and keep it as long as what " \
      "uses it",                                                                      \
      __VA_ARGS__)
