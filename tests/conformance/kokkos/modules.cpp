// SPDX-License-Identifier: Apache-2.0
// A program, and a module that it opens at run time, recognise each other's streams and instances.
#include <dlfcn.h>

#include "module.hpp"

namespace {
using namespace kokkos_tests;

class KokkosModules : public testing::Test {
 protected:
  void SetUp() override {
    const char* const name = std::getenv("RUNNEL_KOKKOS_MODULE");
    SKIP_IF(name == nullptr, "RUNNEL_KOKKOS_MODULE is not set");
    // stays open, because Kokkos calls its functions until the end
    void* const opened = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(opened, nullptr) << dlerror();
    const auto find =
        reinterpret_cast<decltype(&runnel_kokkos_module)>(dlsym(opened, "runnel_kokkos_module"));
    ASSERT_NE(find, nullptr) << dlerror();
    module = find();
  }
  const ModuleCalls* module = nullptr;
};

TEST_F(KokkosModules, KnowTheStreamOfAnInstance) {
  const Stream s;
  const Space exec = kokkos::fenced_exec_space<Space>(s);
  EXPECT_EQ(module->stream_of(exec), s);
}

TEST_F(KokkosModules, WaitForTheWorkOfAStream) {
  const Stream s;
  const Space exec = kokkos::fenced_exec_space<Space>(s);
  const Data<int*> x("x", 1000);
  enqueue_affine(s, x, 0, 1);
  s.synchronize();
  Gate gate{s};
  enqueue_affine(s, x, 2, 3);
  EXPECT_HELD(gate, module->wait_for_stream_of(exec));
  EXPECT_EQ(values(s, x), Ints(1000, 5));
}

TEST_F(KokkosModules, ShareAStreamsInstance) {
  const Stream made_here, made_there;
  const Space here = kokkos::fenced_exec_space<Space>(made_here);
  EXPECT_TRUE(module->is_instance_of(made_here, here));
  const Data<int*> x("x", 1000);
  module->launch_affine(made_there, x, 0, 4);
  const Space there = kokkos::fenced_exec_space<Space>(made_there);
  EXPECT_TRUE(module->is_instance_of(made_there, there));
  EXPECT_EQ(kokkos::as_stream(there).unfenced_stream(), made_there);
  EXPECT_EQ(values(made_there, x), Ints(1000, 4));
}

}  // namespace
