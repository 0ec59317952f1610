// SPDX-License-Identifier: Apache-2.0
// The destructor of a user's thread_local object uses the thread's default stream after the
// library's own thread_local objects are gone.
#include "support.hpp"

namespace conformance::thread_end_cases {
using ThreadEnd = Conformance;

/// Enqueues on the thread's default stream while the thread ends.
struct EnqueuesAtTheEnd {
  void arm(std::shared_ptr<std::atomic_int> count, Device on) {
    ran = std::move(count);
    device = on;
  }
  std::shared_ptr<std::atomic_int> ran;
  Device device{0};
  ~EnqueuesAtTheEnd() {
    if (ran == nullptr) return;
    const StreamRef mine = StreamRef::per_thread_default(device);
    repeat(3, [&] { mine.launch_host_func([count = ran] { ++*count; }); });
    mine.synchronize();
  }
};
thread_local EnqueuesAtTheEnd at_the_end;

TEST_F(ThreadEnd, ADestructorUsesTheStreamAlsoAsTheFirst) {
  for (const bool is_first : {true, false}) {
    const auto ran = shared_count();
    repeat(20, [&] {
      on_thread([&, here = device()] {
        // constructed first, so destroyed after everything that the library makes
        at_the_end.arm(ran, here);
        if (!is_first) StreamRef::per_thread_default(here).launch_host_func([ran] { ++*ran; });
      });
    });
    device().synchronize();
    EXPECT_EQ(*ran, is_first ? 20 * 3 : 20 * 4);
  }
}

}  // namespace conformance::thread_end_cases
