// SPDX-License-Identifier: Apache-2.0
// Stream captures that other code begins, with the runtime's own functions: what works during such
// a capture, what is refused, and which refusals end it. Those that the library begins are in
// tests/conformance.
#include <runnel/runnel.hpp>

#ifdef RUNNEL_BACKEND_CUDA
#include <cuda_runtime_api.h>
#define API(name) cuda##name
constexpr bool has_user_objects = true;
#else
#include <hip/hip_runtime_api.h>
#define API(name) hip##name
constexpr bool has_user_objects = HIP_VERSION >= 50'300'000;
#endif

#include <dlfcn.h>

#include "../../conformance/support.hpp"

namespace {
using namespace conformance;

/// Looked up by name, because a stand-in has the vendor's symbol versions only for functions that
/// the library itself imports.
#define WORD_OF(name) #name
#define NAME_OF(name) WORD_OF(name)
#define CALL(name) reinterpret_cast<decltype(&API(name))>(dlsym(RTLD_DEFAULT, NAME_OF(API(name))))

using Mode = API(StreamCaptureMode);
constexpr Mode strict_modes[] = {API(StreamCaptureModeThreadLocal), API(StreamCaptureModeGlobal)};

class Capture : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_IF(Device::count() == 0, Device::why_no_device());
    stream_.emplace();
  }
  void TearDown() override {
    if (stream_) {
      EXPECT_FALSE(stream_->is_capturing());
    }
    EXPECT_EQ(API(GetLastError)(), API(Success));
  }
  const Stream& stream() const { return *stream_; }
  void begin(Mode mode = API(StreamCaptureModeThreadLocal)) const {
    // waits until the library's thread has given memory back: it queries streams, also one that is
    // just captured
    PinnedPool::trim();
    ASSERT_EQ(CALL(StreamBeginCapture)(stream().native(), mode), API(Success));
  }
  /// Ends the capture and expects that it is valid. Returns the number of captured operations.
  size_t end() const { return end(stream()); }
  static size_t end(StreamRef captured) {
    EXPECT_TRUE(captured.is_capturing());
    API(Graph_t) graph{};
    EXPECT_EQ(CALL(StreamEndCapture)(captured.native(), &graph), API(Success));
    size_t count = 0;
    if (graph == nullptr) return count;
    EXPECT_EQ(CALL(GraphGetNodes)(graph, nullptr, &count), API(Success));
    EXPECT_EQ(CALL(GraphDestroy)(graph), API(Success));
    EXPECT_FALSE(captured.is_capturing());
    return count;
  }
  void expect_broken() const {
    API(Graph_t) graph{};
    EXPECT_EQ(CALL(StreamEndCapture)(stream().native(), &graph),
              API(ErrorStreamCaptureInvalidated));
    EXPECT_EQ(API(GetLastError)(), API(ErrorStreamCaptureInvalidated));
    EXPECT_FALSE(stream().is_capturing());
  }

 private:
  std::optional<Stream> stream_;
};

TEST_F(Capture, WaitingForACapturedStreamIsRefusedAndKeepsTheCapture) {
  begin();
  EXPECT_ERROR(capture, stream().synchronize());
  EXPECT_ERROR(capture, stream().synchronize_for(1ms));
  end();
  stream().synchronize();
}

TEST_F(Capture, ABatchThatCannotBeCapturedIsRefusedAsAWhole) {
  constexpr size_t size = mib;
  const Stream outside;
  DeviceBytes there{size, outside};
  PinnedBytes pinned{size};
  std::memset(pinned.data(), 1, size);
  fill_bytes(outside, there.data(), 0, size);
  outside.synchronize();
  const Bytes pageable(size);
  const CopyOperation direct = copy_operation(there, pinned);
  const CopyOperation refused = copy_operation(there, pageable);
  begin();
  EXPECT_ERROR(capture, copy_batch(stream(), std::vector{direct, refused}));
  EXPECT_EQ(copy_batch(stream(), std::vector{direct}).direct, 1U);
  EXPECT_EQ(end(), 1U);
}

TEST_F(Capture, ABlockingStreamsCaptureSurvivesCopiesOnAnother) {
  constexpr size_t size = mib;
  const Stream captured{StreamOptions{.blocking = true}}, other{StreamOptions{.blocking = true}};
  DeviceBytes there{size, other};
  const Bytes source(size, 7);
  Bytes back(size);
  other.synchronize();
  for (const Mode mode : strict_modes) {
    ASSERT_EQ(CALL(StreamBeginCapture)(captured.native(), mode), API(Success));
    for (const size_t bytes : {1000UL, 100'000UL, size}) {
      copy_bytes(other, there.data(), source.data(), bytes);
      copy_bytes(other, back.data(), there.data(), bytes);
    }
    end(captured);
    other.synchronize();
    EXPECT_TRUE(back == source);
  }
}

TEST_F(Capture, AHostFunctionBelongsToTheGraphIfTheRuntimeHasUserObjects) {
  begin();
  bool ran = false;
  const std::error_code code = code_of([&] { stream().launch_host_func([&] { ran = true; }); });
  EXPECT_EQ(code, has_user_objects ? std::error_code{} : errc::capture);
  EXPECT_EQ(end(), has_user_objects ? 1U : 0U);
  stream().synchronize();
  EXPECT_FALSE(ran);
  stream().launch_host_func([&] { ran = true; });
  stream().synchronize();
  EXPECT_TRUE(ran);
}

TEST_F(Capture, AHostFunctionOfOtherCodeIsANodeOfAChild) {
  int theirs = 0, ours = 0;
  const auto count = [](void* number) { ++*static_cast<int*>(number); };
  const auto launch_theirs = [&] {
    EXPECT_EQ(CALL(LaunchHostFunc)(stream().native(), count, &theirs), API(Success));
  };
  const auto launch_ours = [&] { stream().launch_host_func([&] { ++ours; }); };
  const Graph graph = capture(stream(), [&] {
    launch_theirs();
    launch_ours();
  });
  graph.launch(stream());
  capture(stream(), [&] { graph.launch(stream()); }).launch(stream());
  stream().synchronize();
  EXPECT_EQ(theirs, 2);
  EXPECT_EQ(ours, 2);
}

TEST_F(Capture, AGraphThatOwnsWhatItsNodesUseIsNoNode) {
  Event event{{.external = true}};
  const Graph graphs[] = {
      capture(stream(), [&] { stream().launch_host_func([] {}); }),
      capture(stream(), [&] { keep(stream(), std::make_unique<int>(0)); }),
      capture(stream(), [&] { event.record(stream()); }),
      capture(stream(), [&] { stream().wait_event(event); }),
  };
  begin();
  for (const Graph& graph : graphs) EXPECT_ERROR(capture, graph.launch(stream()));
  EXPECT_EQ(end(), 0U);
}

// Asking whether the stream is captured would make a query too slow. So the runtime refuses it,
// which ends the capture, and the library reports errc::capture.
TEST_F(Capture, QueriesAreRefusedAndKeepTheCapture) {
  begin();
  EXPECT_TRUE(stream().is_capturing());  // from now on the library asks before it queries
  EXPECT_ERROR(capture, stream().query());
  EXPECT_EQ(end(), 0U);
}

TEST_F(Capture, PageableCopiesAreRefusedAndKeepTheCapture) {
  for (const size_t size : {10UL, 100'000UL, mib}) {
    DeviceBytes there{size, stream()};
    PinnedBytes pinned{size};
    Bytes source(size, 5);
    std::memset(pinned.data(), 2, size);
    fill(stream(), there, 9);
    stream().synchronize();
    begin();
    EXPECT_EQ(copy(stream(), there, pinned), CopyResult::direct);
    EXPECT_ERROR(capture, copy(stream(), there, source));
    EXPECT_ERROR(capture, copy(stream(), source, there));
    EXPECT_EQ(code_of([&] { fill(stream(), source, 1); }),
              has_user_objects ? std::error_code{} : errc::capture);
    EXPECT_EQ(copy(stream(), pinned, there), CopyResult::direct);
    EXPECT_EQ(end(), has_user_objects ? 3U : 2U);
    EXPECT_EQ(pinned[size - 1], 2);
    EXPECT_EQ(source[size - 1], 5);
    copy(stream(), pinned, there);  // the captured copies have not run
    stream().synchronize();
    EXPECT_EQ(pinned[size - 1], 9);
    copy(stream(), there, source);
    copy(stream(), pinned, there);
    stream().synchronize();
    EXPECT_EQ(pinned[size - 1], 5);
  }
}

// The cases after this one show that the library avoids this refusal. Without the refusal they
// would show nothing.
TEST_F(Capture, TheRuntimeRefusesToAllocateUnlessTheCaptureIsRelaxed) {
  const auto allocate =
      reinterpret_cast<API(Error_t) (*)(void**, size_t)>(dlsym(RTLD_DEFAULT, NAME_OF(API(Malloc))));
  void* memory = nullptr;
  for (const Mode mode : strict_modes) {
    begin(mode);
    EXPECT_EQ(allocate(&memory, 100), API(ErrorStreamCaptureUnsupported));
    expect_broken();
  }
  begin(API(StreamCaptureModeRelaxed));
  EXPECT_EQ(allocate(&memory, 100), API(Success));
  end();
  EXPECT_EQ(CALL(Free)(memory), API(Success));
}

TEST_F(Capture, ThePinnedPoolNeverQueriesACapturedStream) {
  constexpr size_t size = 3 * mib;
  DeviceBytes there{size, stream()};
  for (const Mode mode : strict_modes) {
    PinnedPool::trim();
    const size_t before = PinnedPool::statistics().cached_blocks;
    {
      const PinnedBytes cached{size};
    }
    stream().synchronize();
    begin(mode);
    const void* first = nullptr;
    {
      const PinnedBytes block{size};
      first = block.data();
      copy(stream(), there, block);
    }
    {
      const PinnedBytes another{size};  // the pool looks for an idle block
      EXPECT_NE(another.data(), first)
          << "the pool handed out a block that the capture may still use";
    }
    PinnedPool::trim();
    end();
    stream().synchronize();
    PinnedPool::trim();  // records an event, now that the capture is over
    stream().synchronize();
    PinnedPool::trim();
    EXPECT_EQ(PinnedPool::statistics().cached_blocks, before)
        << "the pool keeps a block although the capture is over";
  }
}

TEST_F(Capture, MemoryIsAllocatedAndFreedDuringACapture) {
  constexpr size_t size = 7 * mib;
  Bytes ordinary(size);
  for (const Mode mode : strict_modes) {
    PinnedPool::trim();
    const Stream other;
    DeviceBytes there{size, other};
    std::optional<DeviceBytes> plain;
    copy(other, there, ordinary);  // makes a staging ring, which Staging::trim() frees below
    other.synchronize();
    begin(mode);
    {
      const PinnedBytes fresh{size};
      copy(other, there, fresh);
    }
    {
      // queries whether the other stream still uses the first block
      const PinnedBytes after{size};
      repeat(20, [&] {  // queries the same for destroyed streams
        const Stream brief;
        after.record_stream(brief);
      });
    }
    {
      const HostRegistration pin{ordinary};
    }
    {
      const ManagedBuffer<int> managed{100};
    }
    if (!other.device().has_memory_pools()) plain.emplace(size, other);
    PinnedPool::trim();
    Staging::trim();
    end();
    other.synchronize();
  }
}

TEST_F(Capture, OtherThreadsWorkDuringAGlobalCapture) {
  constexpr size_t size = 6 * mib;
  const Stream other;
  const Bytes ordinary(size, 4);
  Bytes result(size), small_result(size);
  DeviceBytes there{size, other}, small_there{size, other};
  copy(other, there, ordinary);
  other.synchronize();
  Streams idle_streams;
  begin(API(StreamCaptureModeGlobal));
  std::error_code thrown;
  on_thread([&] {
    thrown = code_of([&] {
      Staging::trim();
      EXPECT_EQ(copy(other, there, ordinary), CopyResult::staged);  // has to make a staging ring
      {
        const PinnedBytes block{size};
        copy(other, result, there);
        copy(other, there, block);
      }
      {
        const PinnedBytes another{size};
      }
      PinnedPool::trim();
      // small copies on idle streams
      for (const size_t few : {4 * kib, 100 * kib}) {
        const Stream& idle = idle_streams.emplace_back();
        copy_bytes(idle, small_there.data() + few, ordinary.data(), few);
        copy_bytes(idle, small_result.data() + few, small_there.data() + few, few);
      }
      return 0;
    });
  });
  EXPECT_EQ(thrown, std::error_code{});
  end();
  // On a busy machine a small copy is staged instead, and then still needs the memory.
  for (const Stream& idle : idle_streams) idle.synchronize();
  other.synchronize();
  EXPECT_EQ(result, ordinary);
  for (const size_t few : {4 * kib, 100 * kib})
    EXPECT_EQ(std::memcmp(small_result.data() + few, ordinary.data(), few), 0);
}

// This works once the library has seen a capture. Before that, the runtime refuses it.
TEST_F(Capture, DeviceMemoryOfOtherStreamsIsFreedDuringACapture) {
  SKIP_IF(!stream().device().has_memory_pools(),
          "no memory pools: freeing waits for the device, which a capture forbids");
  const Stream other;
  other.device().synchronize();
  const auto free_memory = [&] { return other.device().memory_info().free; };
  const size_t before = free_memory();
  const auto make = [&] { return std::make_unique<DeviceBytes>(mib, other); };
  auto block = make();
  other.synchronize();
  EXPECT_LT(free_memory(), before);
  for (const Mode mode : strict_modes) {
    begin(mode);
    EXPECT_TRUE(stream().is_capturing());
    block.reset();
    block = make();
    block.reset();
    end();
    other.synchronize();
    EXPECT_EQ(free_memory(), before);
  }
}

TEST_F(Capture, TheCaptureModeOfTheThreadIsRestored) {
  constexpr size_t size = 2 * mib;
  for (const Mode mode : {API(StreamCaptureModeRelaxed), API(StreamCaptureModeThreadLocal),
                          API(StreamCaptureModeGlobal)}) {
    Mode swapped = mode;
    ASSERT_EQ(CALL(ThreadExchangeStreamCaptureMode)(&swapped), API(Success));
    PinnedPool::trim();
    {
      const PinnedBytes fresh{size};
    }
    PinnedPool::trim();
    EXPECT_ERROR(out_of_memory, PinnedBytes{gib * gib}.size());
    Mode found = API(StreamCaptureModeGlobal);
    ASSERT_EQ(CALL(ThreadExchangeStreamCaptureMode)(&found), API(Success));
    EXPECT_EQ(found, mode);
  }
}

TEST_F(Capture, WaitsForTheDeviceAreRefusedAndBreakNothing) {
  begin();
  EXPECT_TRUE(stream().is_capturing());
  EXPECT_ERROR(capture, stream().device().synchronize());
  EXPECT_ERROR(capture, static_cast<void>(stream().device().synchronize_for(1s)));
  end();
}

TEST_F(Capture, AStreamDestroyedDuringACaptureIsNotQueriedLater) {
  constexpr size_t size = 5 * mib;
  {
    const PinnedBytes cached{size};
  }
  DeviceBytes there{size, stream()};
  stream().synchronize();
  begin();
  {
    PinnedBytes block{size};
    Stream other;
    other.wait_stream(stream());
    copy(other, there, block);
    stream().wait_stream(other);
  }
  PinnedPool::trim();
  EXPECT_TRUE(stream().is_capturing());
  end();
}

}  // namespace
