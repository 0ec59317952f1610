// SPDX-License-Identifier: Apache-2.0
/// Maps streams to execution space instances. A stream owns one instance of each space. The
/// instance is destroyed before the stream, and before Kokkos is finalized, because an instance
/// must not outlive either (from version 5.1 on, Kokkos aborts the process).
#pragma once

#include <runnel/detail/capturing.hpp>
#include <runnel/detail/kokkos_work.hpp>

#include <algorithm>
#include <concepts>
#include <future>
#include <optional>
#include <stdexcept>

#ifdef KOKKOS_ENABLE_ATOMICS_BYPASS
#error \
    "runnel: this Kokkos was built with Kokkos_ENABLE_ATOMICS_BYPASS, without locks and with view counts that are not atomic: no kernel may run beside another thread. Build Kokkos without it."
#endif
#if KOKKOS_VERSION < 40700
#error "runnel needs Kokkos 4.7 or newer"
#endif

namespace runnel::inline RUNNEL_ABI::kokkos {

template <class E>
concept execution_space = Kokkos::is_execution_space_v<E>;
/// Spaces that enqueue kernels on this backend's native streams: `Kokkos::Cuda` on CUDA,
/// `Kokkos::HIP` on HIP.
template <class E>
concept device_space = execution_space<E> && std::constructible_from<E, native::stream>;

namespace detail {

// Creates instances that share no state with others. All default-constructed instances share one
// state, with one lock that a kernel holds while it runs; from Kokkos 5 on, this can also be so for
// the instances that partition_space() of OpenMP returns.
#ifdef KOKKOS_ENABLE_SERIAL
[[nodiscard]] inline Kokkos::Serial independent_instance(std::type_identity<Kokkos::Serial>, int) {
  return Kokkos::Serial{Kokkos::NewInstance{}};
}
[[nodiscard]] inline int threads_of(const Kokkos::Serial&) { return 1; }
#endif
#ifdef KOKKOS_ENABLE_OPENMP
[[nodiscard]] inline Kokkos::OpenMP independent_instance(std::type_identity<Kokkos::OpenMP>,
                                                         int threads) {
  return Kokkos::OpenMP{threads};
}
// Not concurrency(): in Kokkos 4.7 that can be a static function, which returns the default
// instance's number.
[[nodiscard]] inline int threads_of(const Kokkos::OpenMP& exec) {
  return exec.impl_thread_pool_size();
}
#endif

#ifdef KOKKOS_ENABLE_THREADS
template <class E>
inline constexpr bool is_threads = std::is_same_v<E, Kokkos::Threads>;
#else
template <class>
inline constexpr bool is_threads = false;
#endif

}  // namespace detail

/// Spaces whose kernels run in the calling thread; launch() therefore runs them in host functions
/// of the stream.
template <class E>
concept host_space =
    execution_space<E> && requires { detail::independent_instance(std::type_identity<E>{}, 1); };
/// `Kokkos::Threads`: it has one instance, and its kernels run only on the thread that initialized
/// Kokkos.
template <class E>
concept inline_space = execution_space<E> && detail::is_threads<E>;

namespace detail {

template <class E>
constexpr void check_space() {
  static_assert(device_space<E> || host_space<E> || inline_space<E>,
                "this execution space cannot run on the streams of this build of runnel: "
                "Kokkos::Cuda needs the backend cuda, Kokkos::HIP "
                "needs hip; Serial, OpenMP and Threads run on every backend; others are not known");
}

/// An instance that a stream owns; empty once Kokkos has begun to finalize.
struct Kept : runnel::detail::Attachment {
  Kept(const void* space, StreamRef with,
       void (*end)(runnel::detail::Attachment*) noexcept) noexcept
      : Attachment{space, end}, stream{with} {}
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  virtual ~Kept() = default;
  virtual void drop() noexcept = 0;

  StreamRef stream;
  Work* work = nullptr;  // For a host space: the stream's work; otherwise null.
};

/// All instances, which must be destroyed before Kokkos finalizes. There is one registry in the
/// process, so that each module finds the streams of the others. The name in registry() must change
/// with the layout of Registry, Kept and KeptOf.
struct Registry {
  // Also locked while instances are constructed: before Kokkos 5.1, concurrent constructors race.
  std::mutex mutex;
  std::vector<Kept*> kept;
  bool hooked = false;
  std::atomic<bool> finalizing{false};
  // The number of enqueued functions that contain an instance, and of instances that are being
  // destroyed.
  std::atomic<int> pending{0};
};
[[nodiscard]] inline Registry& registry() {
  static Registry& instance = *static_cast<Registry*>(
      runnel::detail::process_wide("kokkos registry 2", []() -> void* { return new Registry; }));
  return instance;
}

/// While it lives, Kokkos::finalize waits.
class Pending {
 public:
  Pending() noexcept { registry().pending.fetch_add(1); }
  Pending(Pending&& other) noexcept : counts_{std::exchange(other.counts_, false)} {}
  Pending& operator=(Pending&&) = delete;
  ~Pending() {
    if (counts_ && registry().pending.fetch_sub(1) == 1) registry().pending.notify_all();
  }

 private:
  bool counts_ = true;
};

/// @throws errc::not_permitted before Kokkos is initialized and after it is finalized
inline void require_kokkos() {
  constexpr const char* operation = "use Kokkos on a stream";
  if (registry().finalizing.load() || Kokkos::is_finalized())
    runnel::detail::throw_error(errc::not_permitted, operation, "Kokkos was finalized");
  if (!Kokkos::is_initialized())
    runnel::detail::throw_error(errc::not_permitted, operation, "Kokkos is not initialized yet");
}

inline void wait_for_pending() {
  std::atomic<int>& pending = registry().pending;
  for (int count = pending.load(); count > 0; count = pending.load()) pending.wait(count);
}

/// The finalize hook: Kokkos calls it when it begins to finalize.
inline void before_finalize() {
  Registry& all = registry();
  all.finalizing.store(true);
  wait_for_pending();
  all_work().finalizing.store(true);
  {
    const std::lock_guard lock{all.mutex};
    for (Kept* each : all.kept) each->drop();
  }
  // A stream that was destroyed meanwhile has removed its instance from the list and may still be
  // destroying it.
  wait_for_pending();
}

/// The attachment key of a space, the same in all modules.
template <class E>
[[nodiscard]] const void* space_key() {
  static const void* const key = runnel::detail::process_wide(
      (std::string{"kokkos space "} + E::name()).c_str(), []() -> void* { return new char; });
  return key;
}

template <class E>
struct KeptOf final : Kept {
  KeptOf(StreamRef with, E instance)
      : Kept{space_key<E>(), with, destroy_with_stream}, exec{std::move(instance)} {}
  void drop() noexcept override { exec.reset(); }

  static void destroy_with_stream(runnel::detail::Attachment* attachment) noexcept {
    KeptOf* const self = static_cast<KeptOf*>(attachment);
    std::optional<DeviceGuard> restores;  // Kokkos changes the current device.
    if constexpr (device_space<E>) try {
        restores.emplace(Device::current());
      } catch (const Error&) {  // A forked child.
      }
    const Quiet quiet;
    // Not the lock: destroying a device's instance waits for the device, whose work may wait for
    // the lock.
    const Pending held;
    {
      const std::lock_guard lock{registry().mutex};
      std::erase(registry().kept, self);
    }
    delete self;
  }

  std::optional<E> exec;
};

template <class E>
[[nodiscard]] const KeptOf<E>* find_kept(StreamRef stream) {
  const runnel::detail::StreamSlot* const slot = runnel::detail::Access::slot(stream);
  if (!runnel::detail::is_live(slot, stream.id())) return nullptr;
  const auto* const found = static_cast<const KeptOf<E>*>(find_attachment(*slot, space_key<E>()));
  return found != nullptr && found->exec ? found : nullptr;
}

/// The stream's instance; `make()` constructs it if there is none. The second value is whether
/// `make()` was called.
template <class Make, class E = std::invoke_result_t<Make&>>
std::pair<const KeptOf<E>&, bool> keep_instance(StreamRef stream, Make make) {
  static_cast<void>(stream.native());  // Throws if the stream was destroyed.
  Registry& all = registry();
  const std::lock_guard lock{all.mutex};
  require_kokkos();
  if (const KeptOf<E>* const found = find_kept<E>(stream)) return {*found, false};
  if (!all.hooked) Kokkos::push_finalize_hook(before_finalize);
  all.hooked = true;
  all.kept.reserve(all.kept.size() + 1);
  Work* const work = device_space<E> ? nullptr : &work_of(stream);
  const Quiet quiet;  // No fences here: a function in a stream may wait for the lock.
  auto* const kept = new KeptOf<E>{stream, make()};
  kept->work = work;
  all.kept.push_back(kept);
  attach(*runnel::detail::Access::slot(stream), kept);
  return {*kept, true};
}

/// The live stream that owns this instance; empty if there is none.
template <class E>
[[nodiscard]] std::optional<StreamRef> stream_of(const E& exec) {
  const std::lock_guard lock{registry().mutex};
  for (const Kept* each : registry().kept) {
    if (each->key != space_key<E>() || !each->stream.is_valid()) continue;
    const auto& instance = static_cast<const KeptOf<E>*>(each)->exec;
    if (instance && *instance == exec) return each->stream;
  }
  return std::nullopt;
}

template <device_space E>
[[nodiscard]] E make_instance(StreamRef stream, int) {
  constexpr const char* operation = "make a Kokkos instance";
  // Inside a host function this call throws before Kokkos is called.
  if (runnel::detail::is_capturing(stream, operation))
    runnel::detail::throw_error(errc::capture, operation,
                                "the stream is being captured: ask for its instance before that");
  // Kokkos' constructor changes the thread's device and its stack of contexts, so it runs on a
  // temporary thread.
  E exec = std::async(std::launch::async, [stream] {
             stream.device().use();
             return E(stream.native());
           }).get();
  // Kokkos clears the instance's scratch memory on the default stream, so this stream must wait for
  // it.
  stream.wait_stream(stream.device().default_stream());
  return exec;
}
template <host_space E>
[[nodiscard]] E make_instance(StreamRef, int threads) {
  return independent_instance(std::type_identity<E>{}, threads);
}

template <class E>
[[nodiscard]] const KeptOf<E>& kept_instance(StreamRef stream) {
  if (const KeptOf<E>* const found = find_kept<E>(stream)) [[likely]]
    return *found;
  return keep_instance(stream, [&] { return make_instance<E>(stream, 1); }).first;
}
template <class E>
[[nodiscard]] const E& instance(StreamRef stream) {
  return *kept_instance<E>(stream).exec;
}

/// The type that fenced_exec_space() returns: a reference to the instance that the stream owns, or
/// a value for Threads, which has one instance only.
template <class E>
using Given = std::conditional_t<inline_space<E>, E, const E&>;

/// Throws unless the calling thread may launch kernels. Kokkos has no query for this, but the
/// launch of a kernel throws.
template <inline_space E>
void require_threads_caller() {
  try {
    Kokkos::parallel_for(Kokkos::RangePolicy<E>(0, 1), [](int) {});
  } catch (const std::runtime_error&) {
    runnel::detail::throw_error(errc::not_supported, "launch on Kokkos::Threads",
                                "its kernels run on the thread that initialized Kokkos only; use "
                                "Kokkos::Serial on streams");
  }
}

template <device_space E>
[[nodiscard]] native::stream native_stream(const E& exec) {
  if constexpr (requires { exec.cuda_stream(); })
    return exec.cuda_stream();
  else
    return exec.hip_stream();
}
template <device_space E>
[[nodiscard]] Device device_of(const E& exec) {
  if constexpr (requires { exec.cuda_device(); })
    return Device{exec.cuda_device()};
  else
    return Device{exec.hip_device()};
}

/// A function enqueued by launch(), with its instance. `counted` is destroyed first, so that a
/// thread that discards the function does not wait for it, and `pending` last.
template <class E, class F>
struct Launched {
  Pending pending;
  E exec;
  std::optional<F> function;
  Counted counted;

  void operator()() {
    struct End {
      Launched& self;
      Quiet quiet{};
      ~End() {
        self.function.reset();  // It may contain a view, whose destructor is part of the work.
        self.counted.finish();
      }
    };
    const End end{*this};
    static_cast<void>((*function)(std::as_const(exec)));
  }
};

/// A function that launch() has enqueued in a capture, with an instance of its own, because the
/// graph may outlive the stream and Kokkos.
template <class E, class F>
class LaunchedInGraph {
 public:
  LaunchedInGraph(StreamRef captured, const E& like, F function) : function_{std::move(function)} {
    Registry& all = registry();
    const std::lock_guard lock{all.mutex};
    const Quiet quiet;
    all.kept.reserve(all.kept.size() + 1);
    instance_.reset(
        new KeptOf<E>{captured, independent_instance(std::type_identity<E>{}, threads_of(like))});
    all.kept.push_back(instance_.get());
    all_work().in_graphs.fetch_add(1);
  }

  /// @throws errc::not_permitted once Kokkos finalizes
  void operator()() {
    const Pending pending;  // Keeps the instance alive until the function returns.
    require_kokkos();
    const Quiet quiet;
    static_cast<void>(function_(std::as_const(*instance_->exec)));
  }

 private:
  struct Unregister {
    void operator()(KeptOf<E>* instance) const noexcept {
      all_work().in_graphs.fetch_sub(1);
      KeptOf<E>::destroy_with_stream(instance);
    }
  };
  std::unique_ptr<KeptOf<E>, Unregister> instance_;
  F function_;
};

}  // namespace detail
}  // namespace runnel::inline RUNNEL_ABI::kokkos
