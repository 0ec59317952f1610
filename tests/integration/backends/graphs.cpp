// SPDX-License-Identifier: Apache-2.0
/// Captures and graphs through the backend interface: what the vendor documents and the library's
/// layer relies on, on every order of execution of a stand-in. What the library makes of it is in
/// tests/conformance.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <runnel/detail/backend.hpp>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../../support/gate.hpp"
#include "../../support/standin/inspect.hpp"
#include "runtime.hpp"

namespace {
using namespace runnel;
using backend::CaptureMode;
using backend::NodeKind;
using backend::ok;

#ifdef RUNNEL_BACKEND_CUDA
constexpr bool on_cuda = true;
constexpr bool captures_allocations = true;
#else
constexpr bool on_cuda = false;
constexpr bool captures_allocations = HIP_VERSION >= 50500000;
#endif

StandinView inspect() {
  StandinView view{};
  const auto read =
      reinterpret_cast<decltype(&standin_inspect)>(dlsym(RTLD_DEFAULT, "standin_inspect"));
  if (read != nullptr) read(&view);
  return view;
}

bool on_standin() { return inspect().calls != 0; }

/// What has run, by letters.
class Log {
 public:
  void add(char letter) {
    const std::lock_guard lock{mutex_};
    text_ += letter;
  }
  [[nodiscard]] std::string take() {
    const std::lock_guard lock{mutex_};
    return std::exchange(text_, "");
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

struct Letter {
  Log* log;
  char letter;
  static void run(void* data) {
    const auto& self = *static_cast<Letter*>(data);
    self.log->add(self.letter);
  }
};

class Gate : public test_support::Gate {
 public:
  Gate()
      : test_support::Gate{std::chrono::seconds{60}},
        wait_{std::make_shared<std::function<void()>>(blocking_function())} {}
  void close(native::stream stream) const {
    EXPECT_EQ(backend::launch_host_func(
                  stream, [](void* wait) { (*static_cast<std::function<void()>*>(wait))(); },
                  wait_.get()),
              ok);
  }

 private:
  // called before the test ends, which waits for its streams
  std::shared_ptr<std::function<void()>> wait_;
};

class Graphs : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (backend::device_count(count) != ok || count == 0) GTEST_SKIP() << "no device";
    for (native::stream& made : streams_) ASSERT_EQ(backend::stream_create(made, false, 0), ok);
    before_ = inspect();
  }
  void TearDown() override {
    if (one() == nullptr) return;
    for (const native::stream made : streams_) {
      bool capturing = false;
      EXPECT_EQ(backend::stream_is_capturing(made, capturing), ok);
      EXPECT_FALSE(capturing);
      EXPECT_EQ(backend::stream_synchronize(made), ok);
    }
    for (const native::executable_graph made : executables_)
      EXPECT_EQ(backend::executable_graph_destroy(made), ok);
    for (const native::graph made : graphs_) EXPECT_EQ(backend::graph_destroy(made), ok);
    for (const native::event made : events_) EXPECT_EQ(backend::event_destroy(made), ok);
    for (void* const made : pinned_) EXPECT_EQ(backend::free_host(made), ok);
    for (void* const made : memory_) EXPECT_EQ(backend::free_device(made), ok);
    for (const native::stream made : streams_) EXPECT_EQ(backend::stream_destroy(made), ok);
    const StandinView after = inspect();
    EXPECT_EQ(after.graphs, before_.graphs);
    EXPECT_EQ(after.executable_graphs, before_.executable_graphs);
    EXPECT_EQ(after.device_blocks, before_.device_blocks);
    EXPECT_EQ(rt::peek_at_last_error(), ok);
  }

  [[nodiscard]] native::stream one() const { return streams_[0]; }
  [[nodiscard]] native::stream two() const { return streams_[1]; }
  static void begin(native::stream stream, CaptureMode mode = CaptureMode::own_only) {
    ASSERT_EQ(backend::stream_begin_capture(stream, mode), ok);
  }
  native::graph end(native::stream stream) {
    native::graph graph = nullptr;
    EXPECT_EQ(backend::stream_end_capture(stream, graph), ok);
    EXPECT_NE(graph, nullptr);
    if (graph != nullptr) graphs_.push_back(graph);
    return graph;
  }
  /// Ends a capture that cannot be ended well, and expects that the streams are as before.
  void expect_refused_end(native::stream stream, int code) {
    native::graph graph = reinterpret_cast<native::graph>(&graph);
    EXPECT_EQ(backend::stream_end_capture(stream, graph), code);
    EXPECT_EQ(graph, nullptr);
    backend::forget_error(code);
    for (const native::stream freed : streams_) {
      EXPECT_EQ(number_of(freed), 0U);
      letter(freed, 'x');
      EXPECT_EQ(backend::stream_synchronize(freed), ok);
      EXPECT_EQ(log_.take(), "x");
    }
  }
  native::executable_graph instantiate(native::graph graph) {
    native::executable_graph made = nullptr;
    EXPECT_EQ(backend::graph_instantiate(made, graph), ok);
    executables_.push_back(made);
    return made;
  }
  native::event event() {
    native::event made = nullptr;
    EXPECT_EQ(backend::event_create(made, {false, false, false}), ok);
    events_.push_back(made);
    return made;
  }
  /// From now on the work of `later` comes after that of `earlier`.
  void order(native::stream earlier, native::stream later) {
    const native::event mark = event();
    EXPECT_EQ(backend::event_record(mark, earlier), ok);
    EXPECT_EQ(backend::stream_wait_event(later, mark), ok);
  }
  /// Enqueues a function that writes the letter into the log.
  void letter(native::stream stream, char what) {
    letters_.push_back(std::make_unique<Letter>(Letter{&log_, what}));
    EXPECT_EQ(backend::launch_host_func(stream, &Letter::run, letters_.back().get()), ok);
  }
  template <class T>
  T* pinned(std::size_t count, T value) {
    void* made = nullptr;
    EXPECT_EQ(backend::malloc_host(made, count * sizeof(T)), ok);
    pinned_.push_back(made);
    std::fill_n(static_cast<T*>(made), count, value);
    return static_cast<T*>(made);
  }
  void* device_memory(std::size_t bytes) {
    void* made = nullptr;
    EXPECT_EQ(backend::malloc_device(made, bytes), ok);
    memory_.push_back(made);
    return made;
  }
  static std::uint64_t number_of(native::stream stream) {
    std::uint64_t number = 0;
    EXPECT_EQ(backend::stream_capture_number(stream, number), ok);
    return number;
  }
  static std::vector<NodeKind> kinds_of(native::graph graph) {
    std::size_t count = 0;
    EXPECT_EQ(backend::graph_nodes(graph, nullptr, count), ok);
    std::vector<native::graph_node> nodes(count);
    if (count > 0) {
      EXPECT_EQ(backend::graph_nodes(graph, nodes.data(), count), ok);
    }
    std::vector<NodeKind> kinds;
    for (const native::graph_node node : nodes)
      EXPECT_EQ(backend::graph_node_kind(node, kinds.emplace_back()), ok);
    return kinds;
  }
  /// The edges as pairs of places in the list of nodes.
  static std::set<std::pair<std::size_t, std::size_t>> edges_of(native::graph graph) {
    std::size_t count = 0, edges = 0;
    EXPECT_EQ(backend::graph_nodes(graph, nullptr, count), ok);
    EXPECT_EQ(backend::graph_edges(graph, nullptr, nullptr, edges), ok);
    std::vector<native::graph_node> nodes(count), from(edges), to(edges);
    EXPECT_EQ(backend::graph_nodes(graph, nodes.data(), count), ok);
    EXPECT_EQ(backend::graph_edges(graph, from.data(), to.data(), edges), ok);
    const auto place = [&](native::graph_node node) {
      return static_cast<std::size_t>(std::find(nodes.begin(), nodes.end(), node) - nodes.begin());
    };
    std::set<std::pair<std::size_t, std::size_t>> found;
    for (std::size_t i = 0; i < edges; ++i) found.emplace(place(from[i]), place(to[i]));
    return found;
  }

  Log log_;

 private:
  std::array<native::stream, 2> streams_{};
  std::vector<native::graph> graphs_;
  std::vector<native::executable_graph> executables_;
  std::vector<native::event> events_;
  std::vector<void*> pinned_, memory_;
  std::vector<std::unique_ptr<Letter>> letters_;
  StandinView before_{};
};

/// Whether the letters of `order` stand in the text in this order.
bool in_order(const std::string& text, const std::string& order) {
  std::size_t at = 0;
  for (const char letter : order) {
    at = text.find(letter, at);
    if (at == std::string::npos) return false;
  }
  return true;
}

TEST_F(Graphs, ForkAndJoinKeepTheirOrderAtEachLaunch) {
  begin(one());
  letter(one(), 'a');
  order(one(), two());
  letter(one(), 'b');
  letter(two(), 'c');
  letter(two(), 'd');
  order(two(), one());
  letter(one(), 'e');
  const native::graph graph = end(one());
  EXPECT_EQ(log_.take(), "") << "a captured function ran";
  EXPECT_EQ(kinds_of(graph), std::vector<NodeKind>(5, NodeKind::host_function));
  const std::set<std::pair<std::size_t, std::size_t>> expected{
      {0, 1}, {0, 2}, {2, 3}, {1, 4}, {3, 4}};
  EXPECT_EQ(edges_of(graph), expected);
  const native::executable_graph executable = instantiate(graph);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(backend::graph_launch(executable, i % 2 == 0 ? one() : two()), ok);
    ASSERT_EQ(backend::stream_synchronize(i % 2 == 0 ? one() : two()), ok);
    const std::string ran = log_.take();
    EXPECT_EQ(ran.size(), 5U) << ran;
    EXPECT_TRUE(in_order(ran, "abe") && in_order(ran, "acde")) << ran;
  }
}

TEST_F(Graphs, BranchesRunAtTheSameTime) {
  if (!on_standin()) GTEST_SKIP() << "a device may run one host function at a time";
  struct Meeting {
    std::atomic<int> arrived{0};
    static void run(void* data) {
      auto& self = *static_cast<Meeting*>(data);
      ++self.arrived;
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds{60};
      while (self.arrived < 2 && std::chrono::steady_clock::now() < limit)
        std::this_thread::yield();
    }
  } meeting;
  begin(one());
  letter(one(), 'a');
  order(one(), two());
  EXPECT_EQ(backend::launch_host_func(one(), &Meeting::run, &meeting), ok);
  EXPECT_EQ(backend::launch_host_func(two(), &Meeting::run, &meeting), ok);
  order(two(), one());
  const native::executable_graph executable = instantiate(end(one()));
  ASSERT_EQ(backend::graph_launch(executable, one()), ok);
  ASSERT_EQ(backend::stream_synchronize(one()), ok);
  EXPECT_EQ(meeting.arrived, 2);
}

TEST_F(Graphs, LaunchesOfOneGraphFollowEachOtherAcrossStreams) {
  if (!backend::orders_graph_launches()) GTEST_SKIP() << "this runtime does not order them";
  begin(one());
  letter(one(), 'a');
  const native::executable_graph executable = instantiate(end(one()));
  for (int i = 0; i < 10; ++i) {
    Gate gate;
    gate.close(one());
    letter(one(), '1');
    EXPECT_EQ(backend::graph_launch(executable, one()), ok);
    EXPECT_EQ(backend::graph_launch(executable, two()), ok);
    letter(two(), '2');
    const backend::status asked = backend::stream_query(two());
    EXPECT_TRUE(backend::is_not_ready(asked));
    backend::forget_error(asked);
    gate.open();
    EXPECT_EQ(backend::stream_synchronize(two()), ok);
    EXPECT_EQ(log_.take(), "1aa2");
  }
}

TEST_F(Graphs, NodesHaveTheKindsOfTheirOperations) {
  constexpr std::size_t size = 1000;
  void* const there = device_memory(size);
  auto* const here = pinned<unsigned char>(size, 3);
  begin(one());
  order(one(), one());  // a record and a wait make no node
  EXPECT_EQ(backend::copy_async(there, here, size, one()), ok);
  EXPECT_EQ(backend::fill_async(there, 1, 1, size, one()), ok);
  EXPECT_EQ(backend::copy_2d_async(here, 100, there, 100, 10, 10, one()), ok);
  letter(one(), 'a');
  const native::graph graph = end(one());
  EXPECT_EQ(kinds_of(graph), (std::vector<NodeKind>{NodeKind::copy, NodeKind::fill, NodeKind::copy,
                                                    NodeKind::host_function}));
}

TEST_F(Graphs, AGraphMayBeDestroyedBeforeItsExecutableIsLaunched) {
  begin(one());
  letter(one(), 'a');
  native::graph graph = nullptr;
  ASSERT_EQ(backend::stream_end_capture(one(), graph), ok);
  const native::executable_graph executable = instantiate(graph);
  ASSERT_EQ(backend::graph_destroy(graph), ok);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(backend::graph_launch(executable, one()), ok);
  EXPECT_EQ(backend::stream_synchronize(one()), ok);
  EXPECT_EQ(log_.take(), "aaa");
}

TEST_F(Graphs, UpdateGivesOtherArgumentsFromTheNextLaunchOn) {
  constexpr std::size_t size = 5000;
  void* const there = device_memory(2 * size);
  auto* const here = pinned<unsigned char>(2 * size, 0);
  const auto capture = [&](std::size_t offset, std::uint32_t value) {
    begin(one());
    EXPECT_EQ(backend::fill_async(static_cast<char*>(there) + offset, value, 1, size, one()), ok);
    EXPECT_EQ(backend::copy_async(here + offset, static_cast<char*>(there) + offset, size, one()),
              ok);
    return end(one());
  };
  const native::graph second = capture(size, 9);
  const native::executable_graph executable = instantiate(capture(0, 5));
  Gate gate;
  gate.close(one());
  EXPECT_EQ(backend::graph_launch(executable, one()), ok);
  EXPECT_EQ(backend::graph_update(executable, second), ok);
  EXPECT_EQ(backend::graph_launch(executable, one()), ok);
  gate.open();
  EXPECT_EQ(backend::stream_synchronize(one()), ok);
  EXPECT_EQ(std::count(here, here + size, 5), static_cast<std::ptrdiff_t>(size));
  EXPECT_EQ(std::count(here + size, here + 2 * size, 9), static_cast<std::ptrdiff_t>(size));
}

TEST_F(Graphs, UpdateWithAnotherShapeIsNotSupportedAndChangesNothing) {
  begin(one());
  letter(one(), 'a');
  letter(one(), 'b');
  const native::executable_graph executable = instantiate(end(one()));
  void* const there = device_memory(100);
  begin(one());
  letter(one(), 'c');
  begin(two());
  EXPECT_EQ(backend::fill_async(there, 1, 1, 100, two()), ok);
  letter(two(), 'd');
  for (const native::graph other : {end(one()), end(two())}) {
    const backend::status refused = backend::graph_update(executable, other);
    EXPECT_TRUE(backend::classify(refused) == errc::not_supported);
    backend::forget_error(refused);
    EXPECT_EQ(backend::graph_launch(executable, one()), ok);
    EXPECT_EQ(backend::stream_synchronize(one()), ok);
    EXPECT_EQ(log_.take(), "ab");
  }
}

TEST_F(Graphs, WorkThatIsNotJoinedIsRefusedAndFreesAllStreams) {
  for (const CaptureMode mode :
       {CaptureMode::own_only, CaptureMode::global, CaptureMode::relaxed}) {
    begin(one(), mode);
    order(one(), two());
    letter(two(), 'a');
    letter(one(), 'b');
    expect_refused_end(one(), 904);
  }
}

TEST_F(Graphs, AForkWithoutWorkNeedNotBeJoined) {
  begin(one());
  letter(one(), 'a');
  order(one(), two());
  EXPECT_EQ(kinds_of(end(one())).size(), 1U);
}

TEST_F(Graphs, ABrokenCaptureIsRefusedAndFreesAllStreams) {
  for (const CaptureMode mode :
       {CaptureMode::own_only, CaptureMode::global, CaptureMode::relaxed}) {
    begin(one(), mode);
    order(one(), two());
    letter(two(), 'a');
    const backend::status asked = backend::stream_query(one());
    EXPECT_TRUE(backend::classify(asked) == errc::capture);
    backend::forget_error(asked);
    EXPECT_EQ(number_of(one()), 0U);
    const native::event mark = event();
    const backend::status refused = backend::event_record(mark, two());
    EXPECT_EQ(refused, 901);
    backend::forget_error(refused);
    expect_refused_end(one(), 901);
  }
}

TEST_F(Graphs, ACaptureEndsOnItsStreamAndThread) {
  native::graph graph = nullptr;
  const auto refused = [&](native::stream stream) {
    const backend::status s = backend::stream_end_capture(stream, graph);
    EXPECT_EQ(graph, nullptr);
    backend::forget_error(s);
    return s;
  };
  begin(one(), CaptureMode::relaxed);
  std::thread{[&] { EXPECT_EQ(backend::stream_end_capture(one(), graph), ok); }}.join();
  EXPECT_EQ(backend::graph_destroy(std::exchange(graph, nullptr)), ok);
  begin(one());
  order(one(), two());
  EXPECT_EQ(refused(two()), 903);
  if (number_of(one()) != 0) end(one());
  begin(one());
  std::thread{[&] { EXPECT_EQ(refused(one()), 908); }}.join();
  if (number_of(one()) != 0) end(one());
  EXPECT_EQ(refused(one()), 401);
}

TEST_F(Graphs, TheNumberOfACaptureIsThatOfAllItsStreams) {
  EXPECT_EQ(number_of(one()), 0U);
  EXPECT_EQ(number_of(backend::default_stream()), 0U);
  begin(one());
  const std::uint64_t number = number_of(one());
  EXPECT_NE(number, 0U);
  EXPECT_EQ(number_of(two()), 0U);
  order(one(), two());
  EXPECT_EQ(number_of(two()), number);
  begin(backend::per_thread_default_stream());
  EXPECT_NE(number_of(backend::per_thread_default_stream()), number);
  end(backend::per_thread_default_stream());
  end(one());
  EXPECT_EQ(number_of(two()), 0U);
}

TEST_F(Graphs, AStreamDestroyedWithWorkThatIsNotJoinedSpoilsTheCapture) {
  if (!on_standin()) GTEST_SKIP() << "written for a stand-in";
  native::stream brief = nullptr;
  ASSERT_EQ(backend::stream_create(brief, false, 0), ok);
  begin(one());
  order(one(), brief);
  letter(brief, 'a');
  ASSERT_EQ(backend::stream_destroy(brief), ok);
  expect_refused_end(one(), on_cuda ? 901 : 904);
}

TEST_F(Graphs, MemoryOfAGraphIsInUseFromTheLaunchToItsFree) {
  constexpr std::size_t size = 100'000;
  auto* const here = pinned<unsigned char>(size, 0);
  void* memory = nullptr;
  begin(one());
  const backend::status allocated = backend::malloc_async(memory, size, one());
  if (!captures_allocations) {
    EXPECT_TRUE(backend::classify(allocated) == errc::capture);
    end(one());
    return;
  }
  ASSERT_EQ(allocated, ok);
  EXPECT_EQ(backend::fill_async(memory, 7, 1, size, one()), ok);
  EXPECT_EQ(backend::copy_async(here, memory, size, one()), ok);
  EXPECT_EQ(backend::free_async(memory, one()), ok);
  const native::graph graph = end(one());
  EXPECT_EQ(kinds_of(graph), (std::vector<NodeKind>{NodeKind::allocation, NodeKind::fill,
                                                    NodeKind::copy, NodeKind::free}));
  const native::executable_graph executable = instantiate(graph);
  const std::size_t blocks = inspect().device_blocks;
  for (int i = 0; i < 3; ++i) {
    std::fill_n(here, size, static_cast<unsigned char>(0));
    Gate gate;
    gate.close(one());
    EXPECT_EQ(backend::graph_launch(executable, one()), ok);
    EXPECT_EQ(backend::graph_launch(executable, one()), ok);
    EXPECT_EQ(inspect().device_blocks, blocks + (on_standin() ? 1 : 0));
    gate.open();
    EXPECT_EQ(backend::stream_synchronize(one()), ok);
    EXPECT_EQ(inspect().device_blocks, blocks);
    EXPECT_EQ(std::count(here, here + size, 7), static_cast<std::ptrdiff_t>(size));
  }
}

TEST_F(Graphs, MemoryThatALaunchLeavesIsFreedByTheNextOrByTheUser) {
  if (!captures_allocations) GTEST_SKIP() << "this runtime captures no allocations";
  constexpr std::size_t size = 5000;
  auto* const here = pinned<unsigned char>(size, 0);
  void* memory = nullptr;
  begin(one());
  ASSERT_EQ(backend::malloc_async(memory, size, one()), ok);
  EXPECT_EQ(backend::fill_async(memory, 4, 1, size, one()), ok);
  const native::executable_graph executable = instantiate(end(one()));
  const std::size_t blocks = inspect().device_blocks;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(backend::graph_launch(executable, one()), ok);
  EXPECT_EQ(backend::copy_async(here, memory, size, one()), ok);
  EXPECT_EQ(backend::stream_synchronize(one()), ok);
  EXPECT_EQ(std::count(here, here + size, 4), static_cast<std::ptrdiff_t>(size));
  EXPECT_EQ(inspect().device_blocks, blocks + (on_standin() ? 1 : 0));
  EXPECT_EQ(backend::free_async(memory, one()), ok);
  EXPECT_EQ(backend::graph_launch(executable, one()), ok);
  EXPECT_EQ(backend::free_async(memory, one()), ok);
  EXPECT_EQ(backend::stream_synchronize(one()), ok);
  EXPECT_EQ(inspect().device_blocks, blocks);
}

}  // namespace
