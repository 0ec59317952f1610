// SPDX-License-Identifier: Apache-2.0
// Loads the plugin that is its first argument, runs it on a thread, and unloads it; three times.
// Then the file that is the second argument has to be there still: it has the library, whose
// threads may go on after the last stream.
#include <dlfcn.h>

#include <cstdio>
#include <thread>

int main(int, char** argv) {
  for (int i = 0; i < 3; ++i) {
    void* const plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (plugin == nullptr) {
      std::puts(dlerror());
      return 1;
    }
    const auto use = reinterpret_cast<int (*)()>(dlsym(plugin, "_Z3usev"));
    int status = 1;
    std::thread{[&] { status = use(); }}.join();
    if (status != 0 || dlclose(plugin) != 0) return 1;
  }
  if (dlopen(argv[2], RTLD_NOW | RTLD_NOLOAD) != nullptr) return 0;
  std::puts("the library was unloaded");
  return 1;
}
