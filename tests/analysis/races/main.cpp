// SPDX-License-Identifier: Apache-2.0
// Runs the case that its argument names.
#include "cases.hpp"

#include <cstdio>
#include <cstring>

int main(int argc, char** argv) {
  for (const auto cases : {races::order_cases(), races::memory_cases()})
    for (const races::Case& each : cases)
      if (argc == 2 && std::strcmp(argv[1], each.name) == 0) {
        each.run();
        races::wait_for_device();  // everything has run, so that nothing is missed
        std::printf("done\n");
        return 0;
      }
  std::fprintf(stderr, "usage: races CASE\n");
  return 2;
}
