// SPDX-License-Identifier: Apache-2.0
// DeviceBuffers whose memory comes from a resource of the program's.
#include <runnel/graph.hpp>
#include <runnel/resource_adaptors.hpp>

#include "support.hpp"

namespace conformance::buffer_resources_cases {
using BufferResources = Conformance;
using BufferResourcesTwo = TwoDevices;

struct Refused : std::runtime_error {
  Refused() : std::runtime_error{"the resource refuses"} {}
};

/// What was asked of the copies of a Recording.
struct Asked {
  struct Block {
    uint64_t stream;
    void* pointer;
    size_t bytes;
    size_t alignment;
  };
  std::mutex mutex;  // held while runnel is called, as other libraries' pools do it
  std::vector<Block> taken, returned;
  std::function<void(StreamRef)> on_take = [](StreamRef) {};
  std::function<void(StreamRef)> on_return = [](StreamRef) {};
};

/// A resource that notes its calls. Copies share the notes.
class Recording {
 public:
  explicit Recording(DeviceResource upstream = DeviceResource{}) : upstream_{upstream} {}
  void* allocate(StreamRef stream, size_t bytes, size_t alignment) {
    const std::lock_guard lock{asked_->mutex};
    asked_->on_take(stream);
    void* const block = upstream_.allocate(stream, bytes, alignment);
    asked_->taken.push_back({stream.id(), block, bytes, alignment});
    return block;
  }
  void deallocate(StreamRef stream, void* pointer, size_t bytes, size_t alignment) {
    const std::lock_guard lock{asked_->mutex};
    asked_->returned.push_back({stream.id(), pointer, bytes, alignment});
    asked_->on_return(stream);
    upstream_.deallocate(stream, pointer, bytes, alignment);
  }
  Asked& asked() const { return *asked_; }
  size_t taken() const {
    const std::lock_guard lock{asked_->mutex};
    return asked_->taken.size();
  }
  size_t returned() const {
    const std::lock_guard lock{asked_->mutex};
    return asked_->returned.size();
  }
  long copies() const { return asked_.use_count(); }

 private:
  DeviceResource upstream_;
  std::shared_ptr<Asked> asked_ = std::make_shared<Asked>();
};

/// In the older form, with native streams.
struct Older {
  NativeDeviceResource upstream;
  void* allocate(size_t, size_t) { throw std::logic_error{"not in stream order"}; }
  void deallocate(void*, size_t, size_t) {}
  void* allocate_async(size_t bytes, size_t alignment, native::stream stream) {
    return upstream.allocate(stream, bytes, alignment);
  }
  void deallocate_async(void* pointer, size_t bytes, size_t alignment, native::stream stream) {
    upstream.deallocate(stream, pointer, bytes, alignment);
  }
};
struct NoResource {
  void* allocate(size_t bytes);
};
static_assert(StreamOrderedResource<Recording> && StreamOrderedResource<Older> &&
              StreamOrderedResource<NativeDeviceResource>);
static_assert(std::is_constructible_v<DeviceInts, size_t, std::shared_ptr<Recording>, StreamRef>);
static_assert(std::is_constructible_v<DeviceInts, size_t, std::reference_wrapper<Recording>>);
static_assert(!StreamOrderedResource<NoResource> &&
              !std::is_constructible_v<DeviceInts, size_t, NoResource>);

constexpr size_t count = 1000;
constexpr size_t bytes_of_all = count * sizeof(int);

Ints numbers() {
  Ints v(count);
  count_from(v, 1);
  return v;
}
/// Whether the buffer can be written and read.
bool holds_numbers(StreamRef stream, DeviceInts& buffer) {
  const Ints in = numbers();
  copy(stream, buffer, in);
  return read_back(stream, buffer) == in;
}

TEST_F(BufferResources, ABlockIsTakenAndGivenBackInStreamOrder) {
  const Stream stream;
  const Recording resource;
  {
    DeviceInts buffer{count, resource, stream};
    ASSERT_EQ(resource.taken(), 1U);
    const auto& taken = resource.asked().taken[0];
    EXPECT_EQ(taken.stream, stream.id());
    EXPECT_EQ(taken.pointer, buffer.data());
    EXPECT_EQ(taken.bytes, bytes_of_all);
    EXPECT_EQ(taken.alignment, 256U);
    EXPECT_EQ(buffer.stream(), stream);
    EXPECT_EQ(buffer.device(), device());
    EXPECT_TRUE(holds_numbers(stream, buffer));
    EXPECT_EQ(resource.returned(), 0U);
    EXPECT_EQ(resource.copies(), 2);
  }
  ASSERT_EQ(resource.returned(), 1U);
  const auto& returned = resource.asked().returned[0];
  EXPECT_EQ(returned.stream, stream.id());
  EXPECT_EQ(returned.pointer, resource.asked().taken[0].pointer);
  EXPECT_EQ(returned.bytes, bytes_of_all);
  EXPECT_EQ(returned.alignment, 256U);
  EXPECT_EQ(resource.copies(), 1) << "the buffer's copy of the resource stays";
}

TEST_F(BufferResources, ValuesReferencesAndSharedPointersAreAccepted) {
  const Stream stream;
  const auto works = [&](auto resource) {
    DeviceInts buffer{count, std::move(resource), stream};
    EXPECT_TRUE(holds_numbers(stream, buffer));
  };
  const size_t before = DeviceResource{}.statistics().blocks;
  Recording recording;
  works(recording);
  works(std::ref(recording));
  works(std::make_shared<Recording>(recording));
  EXPECT_EQ(recording.returned(), 3U);
  works(DeviceResource{});
  works(NativeDeviceResource{device()});
  works(Older{NativeDeviceResource{device()}});
  works(StatisticsResource{NativeDeviceResource{device()}});
  const StreamGuard with{stream};
  DeviceInts on_current{count, recording};
  EXPECT_EQ(on_current.stream(), stream);
  EXPECT_EQ(DeviceResource{}.statistics().blocks, before + 1)
      << "a block counts where it is allocated, once";
}

TEST_F(BufferResources, ZeroElementsAskNoResource) {
  const Stream stream;
  const Recording resource;
  {
    DeviceInts buffer{0, resource, stream};
    EXPECT_TRUE(buffer.empty());
    EXPECT_EQ(resource.taken(), 0U);
    buffer.resize(count);
    EXPECT_EQ(resource.taken(), 1U) << "the empty buffer keeps its resource";
    EXPECT_TRUE(holds_numbers(stream, buffer));
    buffer.resize(0);
    EXPECT_EQ(resource.returned(), 1U);
  }
  EXPECT_EQ(resource.taken(), 1U);
  EXPECT_EQ(resource.returned(), 1U);
}

TEST_F(BufferResources, AnExceptionLeavesTheBufferAsItWas) {
  const Stream stream;
  const Recording resource;
  DeviceInts buffer{count, resource, stream};
  EXPECT_TRUE(holds_numbers(stream, buffer));
  const int* const block = buffer.data();
  resource.asked().on_take = [](StreamRef) { throw Refused{}; };
  EXPECT_THROW(buffer.resize(2 * count), Refused);
  EXPECT_THROW((DeviceInts{buffer, stream}), Refused);
  EXPECT_THROW((DeviceInts{count, resource, stream}), Refused);
  EXPECT_EQ(buffer.data(), block);
  EXPECT_EQ(buffer.size(), count);
  EXPECT_EQ(read_back(stream, buffer), numbers());
  EXPECT_ERROR(out_of_memory, DeviceInts{~0UL / 2, resource, stream}) << "the size overflows";
  EXPECT_EQ(resource.copies(), 2);
  resource.asked().on_return = [](StreamRef) { throw Refused{}; };
  resource.asked().on_take = [](StreamRef) {};
  DeviceResource upstream{device()};
  void* lost = nullptr;
  {
    DeviceInts second{count, resource, stream};
    lost = second.data();
  }  // what the resource throws ends in the destructor
  EXPECT_EQ(resource.returned(), 1U);
  upstream.deallocate(stream, lost, bytes_of_all);
  resource.asked().on_return = [](StreamRef) {};
}

TEST_F(BufferResources, NullIsOutOfMemory) {
  struct Empty {
    void* allocate(StreamRef, size_t, size_t) { return nullptr; }
    void deallocate(StreamRef, void*, size_t, size_t) { ADD_FAILURE() << "null was given back"; }
  };
  const Stream stream;
  EXPECT_ERROR(out_of_memory, DeviceInts{count, Empty{}, stream});
  LimitResource limited{DeviceResource{}, bytes_of_all};
  const DeviceInts first{count, limited, stream};
  EXPECT_ERROR(out_of_memory, DeviceInts{1, limited, stream});
}

TEST_F(BufferResources, ResizeCopiesAndMovesKeepTheResource) {
  const Stream stream;
  const Recording resource;
  {
    DeviceInts buffer{count, resource, stream};
    EXPECT_TRUE(holds_numbers(stream, buffer));
    buffer.resize(2 * count);
    DeviceInts copied{buffer, stream};
    EXPECT_EQ(resource.taken(), 3U);
    EXPECT_EQ(resource.returned(), 1U);
    EXPECT_EQ(read_back(stream, copied.first(count)), numbers());
    DeviceInts moved{std::move(buffer)};
    moved.resize(count);
    EXPECT_EQ(resource.taken(), 4U);
    copied = std::move(moved);
    EXPECT_EQ(resource.returned(), 3U);
    const StreamGuard with{stream};
    buffer.resize(count);  // it was moved from, and has no resource any more
    EXPECT_EQ(resource.taken(), 4U);
  }
  EXPECT_EQ(resource.returned(), 4U);
  EXPECT_EQ(resource.copies(), 1);
}

TEST_F(BufferResources, SetStreamGivesTheBlockBackOnThatStream) {
  const Stream first, second;
  const Recording resource;
  {
    DeviceInts buffer{0, resource, first};
    buffer.set_stream(second);
    buffer.resize(count);
    EXPECT_EQ(resource.asked().taken[0].stream, second.id());
    buffer.set_stream(first);
  }  // both streams have used it
  ASSERT_EQ(resource.returned(), 1U);
  EXPECT_NE(resource.asked().returned[0].stream, first.id());
  EXPECT_NE(resource.asked().returned[0].stream, second.id());
}

TEST_F(BufferResources, ReleaseForgetsTheResource) {
  const Stream stream;
  Recording resource;
  DeviceInts buffer{count, resource, stream};
  const DeviceSpan<int> released = buffer.release();
  EXPECT_EQ(resource.copies(), 1);
  EXPECT_EQ(resource.returned(), 0U);
  buffer.set_stream(stream);
  buffer.resize(count);
  EXPECT_EQ(resource.taken(), 1U);
  resource.deallocate(stream, released.data(), released.size_bytes(), 256);
}

TEST_F(BufferResources, ABlockIsGivenBackBehindAllStreamsThatUsedIt) {
  SKIP_IF(!device().has_memory_pools(), "the resource's own free waits for the device");
  const Recording resource;
  const Stream owner, named, recorded;
  Log log;
  resource.asked().on_return = [&](StreamRef stream) {
    EXPECT_EQ(stream.device(), device());
    log.write(stream, "returned");
  };
  for (int user : range(2)) {
    auto buffer = std::make_unique<DeviceInts>(count, resource, owner);
    if (user == 0)
      buffer->record_stream(named);
    else
      record_stream(recorded, buffer->span());
    owner.synchronize();
    Gate gate{user == 0 ? named : recorded};
    log.write(user == 0 ? named : recorded, "used");
    buffer.reset();  // does not wait
    EXPECT_CLOSED(gate);
    EXPECT_COMPLETES(owner) << "the owner was made to wait";
    EXPECT_NE(resource.asked().returned.back().stream, owner.id());
    gate.open();
    EXPECT_EVENTUALLY(log.size() == (user == 0 ? 2U : 4U));
  }
  EXPECT_LOG(log, "used", "returned", "used", "returned");
  device().synchronize();
}

TEST_F(BufferResources, ABlockIsGivenBackAfterItsStreamHasEnded) {
  SKIP_IF(!device().has_memory_pools(), "the resource's own free waits for the device");
  const Recording resource;
  Log log;
  resource.asked().on_return = [&](StreamRef stream) { log.write(stream, "returned"); };
  std::optional<DeviceInts> buffer;
  Gate gate;
  {
    const Stream stream;
    buffer.emplace(count, resource, stream);
    gate.close_on(stream);
    log.write(stream, "last work");
  }
  buffer.reset();
  EXPECT_EQ(resource.returned(), 1U);
  EXPECT_EQ(log.size(), 0U);
  gate.open();
  EXPECT_EVENTUALLY(log.size() == 2);
  EXPECT_LOG(log, "last work", "returned");
  device().synchronize();
}

TEST_F(BufferResources, ADeallocationMayEndTheStreamOfItsBuffer) {
  struct Ending {
    std::optional<Stream> stream{std::in_place};
    void* allocate(StreamRef on, size_t bytes, size_t alignment) {
      return DeviceResource{}.allocate(on, bytes, alignment);
    }
    void deallocate(StreamRef on, void* block, size_t bytes, size_t alignment) {
      DeviceResource{}.deallocate(on, block, bytes, alignment);
      on_thread([&] { stream.reset(); });  // The program's code may wait for another thread.
    }
    bool operator==(const Ending& other) const { return this == &other; }
  } resource;
  const size_t streams = live_objects().streams;
  std::optional<DeviceInts> buffer{std::in_place, count, std::ref(resource), *resource.stream};
  buffer.reset();
  EXPECT_EQ(live_objects().streams, streams - 1);
  device().synchronize();
}

TEST_F(BufferResources, ADeallocationThatFindsItsStreamEndedIsMadeAgain) {
  struct Late {
    std::optional<Stream> stream{std::in_place};
    int calls = 0;
    void* allocate(StreamRef on, size_t bytes, size_t alignment) {
      return DeviceResource{}.allocate(on, bytes, alignment);
    }
    void deallocate(StreamRef on, void* block, size_t bytes, size_t alignment) {
      stream.reset();  // as another thread may
      ++calls;
      DeviceResource{}.deallocate(on, block, bytes, alignment);
    }
    bool operator==(const Late& other) const { return this == &other; }
  } resource;
  const size_t in_use = DeviceResource{}.statistics().in_use;
  std::optional<DeviceInts> buffer{std::in_place, count, std::ref(resource), *resource.stream};
  buffer.reset();
  EXPECT_EQ(resource.calls, 2);
  EXPECT_EVENTUALLY(DeviceResource{}.statistics().in_use == in_use);
}

TEST_F(BufferResources, WhatAHostFunctionDropsIsGivenBackAfterIt) {
  const Stream stream, working;
  const Recording resource;
  const auto drop_in_function = [&] {
    auto buffer = std::make_shared<DeviceInts>(count, resource, stream);
    enqueue_drop(working, std::move(buffer));
    working.synchronize();
  };
  drop_in_function();
  // The resource holds its lock while it calls the library, which must not call the resource then.
  {
    const DeviceInts next{count, resource, stream};
  }
  EXPECT_EVENTUALLY(resource.returned() == 2);
  drop_in_function();
  EXPECT_TRUE(quiesce_for(patience));
  EXPECT_EQ(resource.returned(), 3U);
  Recording direct{resource};
  direct.deallocate(stream, direct.allocate(stream, 100, 256), 100, 256);
  EXPECT_EVENTUALLY(resource.returned() == 4);
  EXPECT_EVENTUALLY(resource.copies() == 2);
  stream.synchronize();
}

TEST_F(BufferResources, AWaitOfTheOwnerGivesBackWhatAHostFunctionDropped) {
  const Stream stream;
  const StreamRef own = thread_default();
  const Recording resource;
  for (size_t round = 1; round <= 100; ++round) {
    auto buffer = std::make_shared<DeviceInts>(count, resource, stream);
    buffer->record_stream(own);
    own.wait_stream(stream);
    stream.launch_host_func([dropped = std::move(buffer)] {});
    stream.synchronize();
    own.synchronize();
    ASSERT_TRUE(eventually([&] { return resource.returned() == round; })) << round;
  }
}

TEST_F(BufferResources, AnotherThreadsDefaultStreamIsAwaited) {
  const Recording resource;
  std::optional<DeviceInts> buffer;
  on_thread([&] {
    const StreamRef own = thread_default();
    Gate gate;
    buffer.emplace(count, resource, own);
    gate.close_on(own);
    on_thread([&] { buffer.reset(); });
    EXPECT_EQ(resource.returned(), 0U)
        << "the block was given back before the stream's work was complete";
    gate.open_and_wait(own);
  });
  EXPECT_EVENTUALLY(resource.returned() == 1);
  EXPECT_EVENTUALLY(resource.copies() == 1);
}

TEST_F(BufferResources, DefaultStreamsAreTaken) {
  const Recording resource;
  for (const StreamRef stream : {default_stream(), thread_default()}) {
    {
      DeviceInts buffer{count, resource, stream};
      EXPECT_TRUE(holds_numbers(stream, buffer));
    }
    EXPECT_EQ(resource.asked().returned.back().stream, stream.id());
    DeviceInts native{count, NativeDeviceResource{device()}, stream};
    EXPECT_TRUE(holds_numbers(stream, native));
  }
}

TEST_F(BufferResources, DeadStreamsAreRefused) {
  const Recording resource;
  StreamRef dead = default_stream();
  {
    Stream stream;
    dead = stream;
    const Stream moved{std::move(stream)};
    EXPECT_ERROR(invalid_handle, DeviceInts{count, resource, stream}) << "moved from";
  }
  EXPECT_ERROR(invalid_handle, DeviceInts{count, resource, dead});
  EXPECT_EQ(resource.taken(), 0U);
  EXPECT_EQ(resource.copies(), 1);
}

TEST_F(BufferResources, InACaptureTheCapturingStreamIsGiven) {
  const Stream stream;
  const Recording resource;
  int captured = 0;
  resource.asked().on_take =
      resource.asked().on_return = [&](StreamRef given) { captured += given.is_capturing(); };
  PinnedInts result{count};
  std::optional<Graph> graph;
  const auto record = [&] {
    DeviceInts buffer{count, resource, stream};
    fill(stream, buffer, 7);
    copy(stream, result, buffer);
  };
  SKIP_IF(!device().has_memory_pools(),
          "without memory pools nothing can be allocated in a capture");
  const auto found = code_of([&] { graph.emplace(capture(stream, record)); });
  EXPECT_GE(captured, 1);
  SKIP_IF(found == errc::capture, "this runtime cannot capture allocations");
  ASSERT_EQ(found, nothing_thrown);
  EXPECT_EQ(captured, 2);
  graph->launch(stream);
  stream.synchronize();
  EXPECT_ALL(result, 7);
}

TEST_F(BufferResources, EightThreadsShareAResource) {
  const Recording resource;
  constexpr int threads = 8, rounds = 50;
  const Stream shared;
  on_threads(threads, [&](int i) {
    const Stream own;
    for (int n : range(rounds)) {
      DeviceInts buffer{count, resource, own};
      fill(own, buffer, i);
      if (n % 5 == 0) buffer.record_stream(shared);
      if (n % 7 == 0)
        shared.launch_host_func([moved = std::make_shared<DeviceInts>(std::move(buffer))] {});
    }
    own.synchronize();
  });
  shared.synchronize();
  EXPECT_TRUE(eventually([&] {
    DeviceResource{}.trim();
    return resource.returned() == size_t{threads} * rounds;
  }));
  EXPECT_EQ(resource.taken(), size_t{threads} * rounds);
  EXPECT_EVENTUALLY(resource.copies() == 1);
}

TEST_F(BufferResourcesTwo, TheStreamsDeviceIsCurrentInTheCall) {
  const DeviceGuard with{first};
  const Stream here{first}, there{second};
  const Recording resource{DeviceResource{second}};
  int right = 0;
  resource.asked().on_take =
      resource.asked().on_return = [&](StreamRef) { right += Device::current() == second; };
  {
    DeviceInts buffer{count, resource, there};
    EXPECT_EQ(buffer.device(), second);
    buffer.record_stream(here);
    EXPECT_CURRENT_DEVICE(first);
  }
  EXPECT_CURRENT_DEVICE(first);
  EXPECT_EQ(right, 2);
  EXPECT_ERROR(invalid_argument, DeviceInts{count, resource, here}) << "what the resource throws";
  EXPECT_CURRENT_DEVICE(first);
}

TEST_F(BufferResources, AnAllocationWaitsForWhatAHostFunctionDropped) {
  const Stream stream;
  LimitResource room_for_one{DeviceResource{}, count * sizeof(int)};
  repeat(20, [&] {
    auto buffer = std::make_shared<DeviceInts>(count, room_for_one, stream);
    enqueue_drop(stream, std::move(buffer));
    stream.synchronize();
    EXPECT_NO_ERROR(const DeviceInts next(count, room_for_one, stream));
  });
}

TEST_F(BufferResources, ANativeResourceLeavesExceptionsToTheStream) {
  const NativeDeviceResource resource{device()};
  const StreamRef standard = default_stream();
  standard.launch_host_func([] { throw std::runtime_error{"somebody's"}; });
  void* const block = resource.allocate_sync(100);
  EXPECT_THROW(standard.synchronize(), std::runtime_error);
  resource.deallocate_sync(block, 100);
}

TEST_F(BufferResources, ANativeResourceAllocatesWithoutAStream) {
  const NativeDeviceResource resource{device()};
  EXPECT_TRUE(resource == NativeDeviceResource{device()});
  EXPECT_EQ(resource.device(), device());
  void* const block = resource.allocate_sync(100);
  const Stream stream;
  fill_bytes(stream, block, 1, 100);
  stream.synchronize();
  resource.deallocate_sync(block, 100);
}

}  // namespace conformance::buffer_resources_cases
