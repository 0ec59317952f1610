// SPDX-License-Identifier: Apache-2.0
// A program with a C++ library of its own: its std::generic_category() is another object than the
// one that the library uses.
#include <runnel/runnel.hpp>

#include <dlfcn.h>

#include <cstdio>
#include <system_error>

int main() {
  using Category = const std::error_category& (*)();
  const auto other =
      reinterpret_cast<Category>(dlsym(RTLD_DEFAULT, "_ZNSt3_V216generic_categoryEv"));
  if (other == nullptr || &other() == &std::generic_category()) {
    std::printf("%s: there is only one C++ library\n", RUNNEL_BACKEND);
    return 1;
  }
  try {
    const runnel::Stream stream{runnel::Device{-1}};
  } catch (const runnel::Error& error) {
    const bool are_equal = error.code() == std::errc::no_such_device;
    std::printf("%s: two C++ libraries, %s conditions\n", RUNNEL_BACKEND,
                are_equal ? "equal" : "unequal");
  }
}
