// SPDX-License-Identifier: Apache-2.0
// Exceptions of kernels. Devices have none, so there parallel_for() and parallel_reduce() only have
// to give what Kokkos' own give.

#include "support.hpp"

namespace {
using namespace kokkos_tests;
constexpr bool throws = !kokkos::device_space<Space>;
// launch() calls the function on a thread of the stream
constexpr bool enqueues = throws && !kokkos::inline_space<Space>;

/// Counts the indices that it is called for, and throws at one of them.
struct ThrowsAt {
  std::atomic<int>* calls;
  int at;
  KOKKOS_FUNCTION void operator()([[maybe_unused]] int i) const {
    KOKKOS_IF_ON_HOST((++*calls; if (i == at) throw std::out_of_range(std::to_string(i));))
  }
};
/// Throws at every index.
struct AlwaysThrows {
  KOKKOS_FUNCTION void operator()([[maybe_unused]] int i) const {
    KOKKOS_IF_ON_HOST((throw std::out_of_range(std::to_string(i));))
  }
};
void enqueue_throwing(StreamRef stream, std::atomic<int>& calls, int at) {
  kokkos::launch<Space>(stream, [&calls, at](const Space& exec) {
    kokkos::parallel_for("throws", Policy(exec, 0, 1000), ThrowsAt{&calls, at});
  });
}
/// The text of the exception that `call` throws, or "none".
template <class Call>
std::string text_of(Call call) {
  try {
    call();
  } catch (const std::out_of_range& found) {
    return found.what();
  }
  return "none";
}

struct Sum {
  KOKKOS_FUNCTION void operator()(int i, long& sum) const {
    KOKKOS_IF_ON_HOST((if (i == at) throw std::out_of_range("sum");))
    sum += i;
  }
  int at;
};
/// A functor with a value type, a tag and functions of its own.
struct Largest {
  struct Tag {};
  using value_type = int;
  KOKKOS_FUNCTION void init(Tag, int& value) const { value = -1; }
  KOKKOS_FUNCTION void join(Tag, int& value, const int& other) const {
    value = other > value ? other : value;
  }
  KOKKOS_FUNCTION void operator()(Tag, int i, int& value) const {
    KOKKOS_IF_ON_HOST((if (i == at) throw std::out_of_range("largest");))
    join(Tag{}, value, i % 70);
  }
  int at;
};
struct OfTile {
  KOKKOS_FUNCTION void operator()(int i, int j) const {
    KOKKOS_IF_ON_HOST((if (i == at) throw std::out_of_range("tile");))
    Kokkos::atomic_add(&x(0), i * j);
  }
  Data<int*> x;
  int at;
};
using Teams = Kokkos::TeamPolicy<Space>;
struct OfTeam {
  KOKKOS_FUNCTION void operator()(const Teams::member_type& member) const {
    KOKKOS_IF_ON_HOST((if (member.league_rank() == at) throw std::out_of_range("team");))
    member.team_barrier();
    Kokkos::single(Kokkos::PerTeam(member),
                   [&] { Kokkos::atomic_add(&x(0), member.league_rank()); });
  }
  Data<int*> x;
  int at;
};

TEST(KokkosExceptions, AKernelsExceptionLeavesItsCall) {
  SKIP_IF(!throws, "kernels of a device do not throw");
  const Space exec{};
  std::atomic<int> calls{0};
  EXPECT_EQ(text_of([&] { kokkos::parallel_for(Policy(exec, 0, 1000), ThrowsAt{&calls, 7}); }),
            "7");
  EXPECT_GE(calls, 1);
  long sum = 0;
  EXPECT_EQ(text_of([&] { kokkos::parallel_reduce(Policy(exec, 0, 100), Sum{3}, sum); }), "sum");
  int largest = 0;
  using Tagged = Kokkos::RangePolicy<Space, Largest::Tag>;
  EXPECT_EQ(text_of([&] {
              kokkos::parallel_reduce("largest", Tagged(exec, 0, 100), Largest{5}, largest);
            }),
            "largest");
  const Data<int*> x("x", 1);
  using Tiles = Kokkos::MDRangePolicy<Space, Kokkos::Rank<2>>;
  EXPECT_EQ(text_of([&] { kokkos::parallel_for(Tiles(exec, {0, 0}, {10, 10}), OfTile{x, 4}); }),
            "tile");
  EXPECT_EQ(text_of([&] { kokkos::parallel_for(Teams(exec, 10, 1), OfTeam{x, 2}); }), "team");
}

TEST(KokkosExceptions, KernelsThatDoNotThrowGiveTheSame) {
  const Space exec{};
  long sum = 0, by_lambda = 0, of_kokkos = 0;
  kokkos::parallel_reduce("sum", Policy(exec, 0, 1000), Sum{-1}, sum);
  Kokkos::parallel_reduce("sum", Policy(exec, 0, 1000), Sum{-1}, of_kokkos);
  kokkos::parallel_reduce(Policy(exec, 0, 1000), Sum{-1}, Kokkos::Sum<long>(by_lambda));
  EXPECT_EQ(sum, 499'500);
  EXPECT_EQ(of_kokkos, sum);
  EXPECT_EQ(by_lambda, sum);
  int largest = 0;
  kokkos::parallel_reduce(Kokkos::RangePolicy<Space, Largest::Tag>(exec, 0, 100), Largest{-1},
                          largest);
  EXPECT_EQ(largest, 69);
  const Data<int*> x("x", 1);
  kokkos::parallel_for(Kokkos::MDRangePolicy<Space, Kokkos::Rank<2>>(exec, {0, 0}, {10, 10}),
                       OfTile{x, -1});
  kokkos::parallel_for("teams", Teams(exec, 10, Kokkos::AUTO), OfTeam{x, -1});
  exec.fence();
  Stream s;
  EXPECT_EQ(values(s, x), Ints(1, 2025 + 45));
}

TEST(KokkosExceptions, OneOfManyIsThrown) {
  SKIP_IF(!throws, "kernels of a device do not throw");
  const Space exec{};  // with all threads that Kokkos has
  repeat(20, [&] {
    EXPECT_NE(text_of([&] { kokkos::parallel_for(Policy(exec, 0, 100), AlwaysThrows{}); }), "none");
  });
  const Data<int*> x("x", 10);
  Kokkos::parallel_for(Policy(exec, 0, 10), Affine{x, 1, 4});
  Stream s;
  EXPECT_EQ(values(s, x), Ints(10, 4)) << "the instance can be used again";
}

TEST(KokkosExceptions, AnExceptionReachesTheStreamsSynchronize) {
  SKIP_IF(!enqueues, "streams enqueue no kernels that throw");
  Stream s, other;
  const Data<int*> x("x", 10);
  std::atomic<int> calls{0};
  bool went_on = false;
  enqueue_throwing(s, calls, 7);
  kokkos::launch<Space>(s, [&went_on](const Space& exec) {
    kokkos::parallel_for(Policy(exec, 0, 10), AlwaysThrows{});
    went_on = true;
  });
  enqueue_affine(s, x, 1, 3);
  enqueue_affine(other, x, 0, 0);
  EXPECT_EQ(text_of([&] { s.synchronize(); }), "7") << "the first exception of the stream";
  EXPECT_EQ(calls, 8) << "one thread: it does not go on after index 7";
  EXPECT_FALSE(went_on) << "the exception must leave the launched function";
  EXPECT_EQ(text_of([&] { s.synchronize(); }), "none");
  EXPECT_EQ(text_of([&] { other.synchronize(); }), "none");
}

TEST(KokkosExceptions, SeveralThreadsOfAStreamThrow) {
  SKIP_IF(!enqueues, "streams enqueue no kernels that throw");
  Stream s;
  kokkos::set_host_threads<Space>(s, 3);
  for (int round : range(20)) {
    std::atomic<int> calls{0};
    enqueue_throwing(s, calls, 40 * round);
    EXPECT_EQ(text_of([&] { s.synchronize(); }), std::to_string(40 * round));
    EXPECT_LE(calls, 1000);
  }
}

TEST(KokkosExceptions, AGraphThrowsAtEachLaunch) {
  SKIP_IF(!enqueues, "streams enqueue no kernels that throw");
  Stream s;
  std::atomic<int> calls{0};
  drop(kokkos::fenced_exec_space<Space>(s));
  Graph graph = capture(s, [&] { enqueue_throwing(s, calls, 2); });
  for (int round = 1; round <= 3; ++round) {
    graph.launch(s);
    EXPECT_EQ(text_of([&] { s.synchronize(); }), "2");
    EXPECT_EQ(calls, 3 * round);
  }
}

TEST(KokkosExceptions, ALaunchThatDoesNotEnqueueThrows) {
  SKIP_IF(!kokkos::inline_space<Space>, "launch() enqueues");
  Stream s;
  std::atomic<int> calls{0};
  EXPECT_EQ(text_of([&] { enqueue_throwing(s, calls, 7); }), "7");
}

}  // namespace
