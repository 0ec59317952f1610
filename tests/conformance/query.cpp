// SPDX-License-Identifier: Apache-2.0
// query() and synchronize().

#include "support.hpp"

namespace conformance::query_cases {
using Query = Conformance;

TEST_F(Query, IsTrueOfAnEmptyStream) { EXPECT_DONE(Stream{}); }

TEST_F(Query, IsFalseUntilTheLastFunctionHasRunAndLeavesNoError) {
  Stream stream;
  Gate gate{stream};
  ASSERT_TRUE(gate.reached());
  repeat(1000, [&] { EXPECT_PENDING(stream); });
  EXPECT_CLOSED(gate);
  Stream other;  // would fail if query() had left an error behind
  EXPECT_RUNS(other);
  gate.open_and_wait(stream);
  EXPECT_DONE(stream);
}

TEST_F(Query, SynchronizeMayBeCalledTwiceAndByThreadsAtOnce) {
  Log log;
  Stream stream;
  Gate gate{stream};
  log.write(stream, "done");
  EXPECT_TRUE(held_by(gate, [&] {
    on_threads(8, [&](int) {
      stream.synchronize();
      EXPECT_EQ(log.size(), 1U);
      stream.synchronize();
    });
  }));
}

TEST_F(Query, TrueMakesTheWorkVisible) {
  Stream stream;
  for (int i : range(100)) {
    int value = 0;  // not atomic: the order must come from query()
    stream.launch_host_func([&value, i] { value = i; });
    ASSERT_TRUE(eventually([&] { return stream.query(); }));
    EXPECT_EQ(value, i);
  }
}

TEST_F(Query, AnExceptionIsThrownBySynchronizeForToo) {
  Stream stream;
  stream.launch_host_func([] { throw std::out_of_range{"thrown inside"}; });
  EXPECT_THROW(drop(stream.synchronize_for(patience)), std::out_of_range);
  EXPECT_COMPLETES(stream);
}

}  // namespace conformance::query_cases
