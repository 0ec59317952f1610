// SPDX-License-Identifier: Apache-2.0
/// Which sanitizer this file is compiled with. GCC defines macros, Clang answers a question.
#pragma once

namespace test_support {

#if defined __has_feature
constexpr bool is_under_address_sanitizer = __has_feature(address_sanitizer);
constexpr bool is_under_thread_sanitizer = __has_feature(thread_sanitizer);
#else
#if defined __SANITIZE_ADDRESS__
constexpr bool is_under_address_sanitizer = true;
#else
constexpr bool is_under_address_sanitizer = false;
#endif
#if defined __SANITIZE_THREAD__
constexpr bool is_under_thread_sanitizer = true;
#else
constexpr bool is_under_thread_sanitizer = false;
#endif
#endif

}  // namespace test_support
