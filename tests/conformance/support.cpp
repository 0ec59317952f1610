// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/utsname.h>

#include <cerrno>
#include <cstdio>
#include <new>

#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

namespace {
thread_local constinit std::size_t allocation_count = 0;

constexpr long never = std::numeric_limits<long>::max();
constinit std::atomic_long allocations_until_fault{never};
constinit std::atomic_long threads_until_fault{never};

void count_allocation() {
  ++allocation_count;
  if (allocations_until_fault.load(std::memory_order_relaxed) != never &&
      allocations_until_fault.fetch_sub(1) == 1)
    throw std::bad_alloc{};
}

void* allocate(size_t bytes) {
  count_allocation();
  if (void* block = std::malloc(bytes == 0 ? 1 : bytes)) return block;
  throw std::bad_alloc{};
}
void* allocate(size_t bytes, std::align_val_t alignment) {
  count_allocation();
  const auto unit = static_cast<size_t>(alignment);
  if (void* block = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit)) return block;
  throw std::bad_alloc{};
}
}  // namespace

// The library uses these replacements of the executable too.
void* operator new(size_t bytes) { return allocate(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment) { return allocate(bytes, alignment); }
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }
void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }

/// The leak checker of clang 14 finds a living thread by its number. If a thread that ended had the
/// same number, it looks at none of the living thread's own variables, and calls the list of their
/// destructors leaked, which the C library keeps there.
extern "C" const char* __lsan_default_suppressions() { return "leak:__cxa_thread_atexit_impl\n"; }

/// A sanitizer's, which is no next definition if the sanitizer is a part of the executable.
extern "C" [[gnu::weak]] int __interceptor_pthread_create(pthread_t*, const pthread_attr_t*,
                                                          void* (*)(void*), void*);
/// The C++ library uses this replacement too. It calls the next definition.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) noexcept {
  if (threads_until_fault.load() != never && threads_until_fault.fetch_sub(1) <= 0) return EAGAIN;
  static const auto next = __interceptor_pthread_create != nullptr
                               ? &__interceptor_pthread_create
                               : reinterpret_cast<decltype(&__interceptor_pthread_create)>(
                                     dlsym(RTLD_NEXT, "pthread_create"));
  return next(thread, attributes, start, argument);
}

namespace {
/// Frees at the end what the library keeps for reuse, so that a leak checker reports only real
/// leaks.
class GiveBack : public testing::Environment {
  void TearDown() override {
    if (runnel::Device::count() == 0) return;
    runnel::Staging::trim();
    runnel::PinnedPool::trim();
  }
};
[[maybe_unused]] const testing::Environment* const give_back =
    testing::AddGlobalTestEnvironment(new GiveBack);
}  // namespace

namespace conformance {

bool pages_can_be_asked_about() {
  if (Device::current().can_use_host_page_tables()) return false;
  utsname system{};
  int major = 0, minor = 0;
  return uname(&system) == 0 && std::sscanf(system.release, "%d.%d", &major, &minor) == 2 &&
         (major > 6 || (major == 6 && minor >= 11));
}

AllocationFault::AllocationFault(long number) noexcept { allocations_until_fault = number; }
AllocationFault::~AllocationFault() { allocations_until_fault = never; }
bool AllocationFault::happened() const noexcept { return allocations_until_fault.load() <= 0; }

ThreadFault::ThreadFault(long spared) noexcept { threads_until_fault = spared; }
ThreadFault::~ThreadFault() { threads_until_fault = never; }

bool streams_are_threads() { return Device::current().hardware_queues() == 0; }

size_t allocations() noexcept { return allocation_count; }

size_t heap_in_use() noexcept {
#if defined __GLIBC__ && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
#else
  return 0;
#endif
}

Bytes pattern(size_t size, unsigned seed) {
  Bytes bytes(size);
  for (size_t i : range(size))
    bytes[i] = static_cast<unsigned char>((i + seed) * 2654435761U >> 13);
  return bytes;
}

void occupy(StreamRef stream, std::chrono::milliseconds time) {
  stream.launch_host_func([time] { std::this_thread::sleep_for(time); });
}

std::vector<Device> all_devices() {
  std::vector<Device> all;
  while (std::ssize(all) < Device::count()) all.emplace_back(static_cast<int>(all.size()));
  return all;
}

bool long_tests() {
  const char* value = std::getenv("RUNNEL_LONG_TESTS");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

bool host_functions_overlap() {
  static const bool overlap = [] {
    const auto arrived = std::make_shared<std::promise<void>>();
    Stream waits, comes;
    std::promise<bool> met;
    auto answer = met.get_future();
    waits.launch_host_func([future = arrived->get_future(), promise = std::move(met)]() mutable {
      promise.set_value(future.wait_for(10s) == std::future_status::ready);
    });
    comes.launch_host_func([arrived] { arrived->set_value(); });
    return answer.get();
  }();
  return overlap;
}

std::string owned_objects() {
  const LiveObjects live = live_objects();
  std::ostringstream text;
  text << live.streams << " streams, " << live.events << " events, " << live.pinned_blocks
       << " pinned blocks, " << live.device_blocks << " device blocks, " << live.host_functions
       << " host functions, " << live.graphs << " graphs";
  return text.str();
}

void Conformance::SetUp() {
  if (Device::count() == 0) GTEST_SKIP() << "no device: " << Device::why_no_device();
  scratch_.emplace(4096UL);
  // The first fill may load code onto the device, which waits for the device. So fill once before a
  // test closes a gate.
  EXPECT_RUNS(default_stream());
  found_.emplace(Found{Device::current(), current_stream(), owned_objects()});
}

void Conformance::TearDown() {
  if (!found_) return;
  EXPECT_CURRENT_DEVICE(found_->device) << "the test changed the current device";
  EXPECT_CURRENT(found_->stream) << "the test changed the current stream";
  for (const Device each : all_devices()) each.synchronize();
  // Objects that a host function destroys are released a little later.
  static_cast<void>(eventually([&] { return owned_objects() == found_->objects; }));
  EXPECT_EQ(owned_objects(), found_->objects) << "the test left objects alive";
}

bool Conformance::runs(StreamRef stream) {
  fill_bytes(stream, scratch_->data() + next_++ % scratch_->size(), 1, 1);
  return stream.synchronize_for(patience);
}

void TwoDevices::SetUp() {
  if (Device::count() < 2) GTEST_SKIP() << "needs two devices";
  Conformance::SetUp();
}

}  // namespace conformance
