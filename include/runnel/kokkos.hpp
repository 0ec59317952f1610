// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_kokkos
/// Kokkos' execution spaces on runnel's streams, and Kokkos' instances as streams. It is
/// header-only: the library itself does not use Kokkos. If Kokkos has CUDA or HIP, compile code
/// that includes this header with the compiler and the flags that Kokkos needs.
///
/// A stream owns one instance of each execution space, until the stream is destroyed or Kokkos is
/// finalized, whichever is earlier. Requires: copies of an instance are destroyed before either.
/// Every function here throws `errc::not_permitted` before Kokkos::initialize and after
/// Kokkos::finalize, and `errc::invalid_handle` for a stream that was destroyed.
#pragma once

#include <runnel/detail/kokkos_arguments.hpp>
#include <runnel/detail/kokkos_guarded.hpp>
#include <runnel/detail/kokkos_shapes.hpp>
#include <runnel/managed_buffer.hpp>

namespace runnel::inline RUNNEL_ABI::kokkos {

/// The host space whose kernels streams run: Kokkos' default host space, or Serial if that is
/// Threads.
#if defined KOKKOS_ENABLE_THREADS && defined KOKKOS_ENABLE_SERIAL
using HostSpace = Kokkos::Serial;
#else
using HostSpace = Kokkos::DefaultHostExecutionSpace;
#endif
/// The default space of all functions here: Kokkos' default space if the streams of this build can
/// run its kernels, otherwise `HostSpace`.
using DefaultSpace = std::conditional_t<device_space<Kokkos::DefaultExecutionSpace>,
                                        Kokkos::DefaultExecutionSpace, HostSpace>;

namespace detail {
inline constexpr bool is_host_backend = std::string_view{RUNNEL_BACKEND} == "host";
/// Spaces whose kernels can access this backend's device memory.
template <class E>
concept uses_device_memory = device_space<E> || (is_host_backend && execution_space<E>);
}  // namespace detail

/// The stream's instance of a space. Kernels on a device's instance are enqueued on the stream.
/// **On a host space, kernels run at once in the calling thread.** Therefore, on a host space this
/// call fences the stream, as its name says: it waits for all work submitted to the stream so far.
/// Call it directly before the kernel, after the copies. To enqueue kernels instead, use launch().
/// The call does not wait inside a host function, nor in a capture. It returns a reference that is
/// valid as long as the stream owns the instance; copying an instance takes ten times as long as
/// this call. The first call for a stream creates the instance; on a device this takes 0.4 ms and
/// memory, does not change the thread's device and contexts, and throws errc::capture while the
/// stream is being captured. An instance of OpenMP has one thread (see set_host_threads()); Threads
/// has only one instance.
template <execution_space E = DefaultSpace>
[[nodiscard]] detail::Given<E> fenced_exec_space(StreamRef stream) {
  detail::check_space<E>();
  if constexpr (inline_space<E>) {
    detail::require_kokkos();
    static_cast<void>(detail::work_of(stream));
    detail::wait_for_stream(stream);
    return E{};
  } else if constexpr (host_space<E>) {
    const detail::KeptOf<E>& kept = detail::kept_instance<E>(stream);
    detail::wait_for_stream(stream);
    return *kept.exec;
  } else {
    return detail::instance<E>(stream);
  }
}

/// @cond
template <execution_space E = DefaultSpace, runnel::detail::TemporaryStream S>
const E& fenced_exec_space RUNNEL_REFUSED_TEMPORARY_STREAM(S&&);
/// @endcond

namespace detail {
/// A function that launches kernels on an instance.
template <class F, class E>
concept LaunchableOn = std::invocable<F&, const E&>;
}  // namespace detail

/// The current stream's instance, as fenced_exec_space().
template <execution_space E = DefaultSpace>
[[nodiscard]] detail::Given<E> fenced_current_exec_space() {
  return fenced_exec_space<E>(current_stream());
}

/// Creates the stream's OpenMP instance with `threads` threads (without this call: 1). OpenMP
/// creates these threads for each thread that runs kernels of the stream. For spaces whose number
/// of threads cannot be set, the call does nothing. @throws errc::not_permitted if the stream has
/// an instance already, errc::invalid_argument for less than one thread
template <execution_space E = DefaultSpace>
void set_host_threads(StreamRef stream, int threads) {
  constexpr const char* operation = "set the threads of a stream's instance";
  if (threads < 1) runnel::detail::throw_invalid_argument(operation, "fewer than one");
  if constexpr (host_space<E> && std::constructible_from<E, int>)
    if (!detail::keep_instance(stream, [&] {
           return detail::make_instance<E>(stream, threads);
         }).second)
      runnel::detail::throw_error(errc::not_permitted, operation,
                                  "the stream has an instance already");
}

/// Runs the kernels that `function(exec)` launches on `exec` in stream order, without waiting. On a
/// device, `function` is called at once, and its kernels are enqueued. On a host space, `function`
/// becomes a host function of the stream: see launch_host_func for what it may do and which call
/// throws its exceptions; parallel_for() forwards exceptions of kernels. On OpenMP its kernels have
/// one thread (see set_host_threads()). Kernels on several streams must not share a random pool, or
/// memory that a `Kokkos::Experimental::UniqueToken` indexes: they would get the same states and
/// tokens. On Threads, launch() waits for the stream and then calls `function`. nvcc accepts no
/// KOKKOS_LAMBDA inside a generic lambda: write `[=](const Kokkos::Cuda& exec) { ... }`, or create
/// the functor outside.
/// @throws errc::not_supported on Threads if the calling thread is not the one that initialized
/// Kokkos
template <execution_space E = DefaultSpace, detail::LaunchableOn<E> F>
void launch(StreamRef stream, F function) {
  detail::check_space<E>();
  // Throws in a host function.
  [[maybe_unused]] const bool captured =
      runnel::detail::is_capturing(stream, "launch kernels on a stream");
  if constexpr (device_space<E>) {
    const DeviceGuard on{stream.device()};  // Kokkos changes the current device.
    static_cast<void>(function(detail::instance<E>(stream)));
  } else if constexpr (inline_space<E>) {
    const E exec = fenced_exec_space<E>(stream);
    detail::require_threads_caller<E>();
    stream.record_event().synchronize();
    static_cast<void>(function(exec));
  } else {
    detail::Pending pending;
    detail::require_kokkos();
    const detail::KeptOf<E>& kept = detail::kept_instance<E>(stream);
    if (captured) [[unlikely]]
      stream.launch_host_func(
          detail::LaunchedInGraph<E, F>{stream, *kept.exec, std::move(function)});
    else
      stream.launch_host_func(detail::Launched<E, F>{
          std::move(pending), *kept.exec, std::move(function), detail::Counted{*kept.work}});
  }
}

namespace detail {
template <class P>
concept Policy = Kokkos::is_execution_policy<P>::value;
}
/// @{ Kokkos::parallel_for and Kokkos::parallel_reduce for functors that throw. On a host space
/// they throw the first exception of `functor` in the calling thread, whereas Kokkos' own functions
/// terminate the process on OpenMP and Threads. In a function of launch() the exception leaves that
/// function, so the stream's next synchronize() throws it. Once a thread has thrown, indices that
/// have not begun are skipped, and the results of parallel_reduce() are invalid. On a device, where
/// kernels cannot throw, they call Kokkos' own functions. An exception that leaves a team of more
/// than one thread, or `init` and `join` of a reducer, still terminates the process. `policy` must
/// be a policy and not just a count, because a count does not specify an instance.
/// @throws what `functor` throws
template <detail::Policy Policy, class F>
void parallel_for(const std::string& label, const Policy& policy, const F& functor) {
  detail::launch_guarded<typename Policy::execution_space>(
      functor, [&](const auto& guarded) { Kokkos::parallel_for(label, policy, guarded); });
}
template <detail::Policy Policy, class F>
void parallel_for(const Policy& policy, const F& functor) {
  kokkos::parallel_for(std::string{}, policy, functor);
}
template <detail::Policy Policy, class F, class... Results>
void parallel_reduce(const std::string& label, const Policy& policy, const F& functor,
                     Results&&... results) {
  detail::launch_guarded<typename Policy::execution_space>(functor, [&](const auto& guarded) {
    Kokkos::parallel_reduce(label, policy, guarded, std::forward<Results>(results)...);
  });
}
template <detail::Policy Policy, class F, class... Results>
void parallel_reduce(const Policy& policy, const F& functor, Results&&... results) {
  kokkos::parallel_reduce(std::string{}, policy, functor, std::forward<Results>(results)...);
}
///@}

/// A Kokkos instance as a stream: pass its stream() where a StreamRef is expected. If the instance
/// came from a stream, it is that stream. On a device, the work that runnel and Kokkos submit is in
/// one order. On a host space, kernels run at once in the thread that launches them: work submitted
/// to stream() runs after the kernels that were launched before, and wait_event() and wait_stream()
/// block the calling thread. The members throw the same errors as those of StreamRef with the same
/// names; fenced_exec() throws as fenced_exec_space().
template <execution_space E>
class ExecStream {
 public:
  /// Finds or creates the stream of `exec`. @throws errc::not_permitted before Kokkos is
  /// initialized and after it is finalized
  explicit ExecStream(const E& exec) : stream_{find(exec)} {}

  /// The stream, for submitting work. On a host space this first waits for the kernels that run on
  /// the instance, so that work that is submitted next runs after them.
  [[nodiscard]] StreamRef stream() const {
    finish_kernels();
    return stream_;
  }
  /// The stream, without waiting: on a host space, work that is submitted next may run concurrently
  /// with kernels that still run on the instance.
  [[nodiscard]] StreamRef unfenced_stream() const noexcept { return stream_; }
  /// The instance, as fenced_exec_space().
  [[nodiscard]] detail::Given<E> fenced_exec() const { return fenced_exec_space<E>(stream_); }

  /// Kernels launched on the instance from now on run after the work that `event` has recorded at
  /// the time of the call.
  void wait_event(const Event& event) const {
    stream_.wait_event(event);
    if constexpr (!device_space<E>) event.synchronize();
  }
  /// Kernels launched on the instance from now on run after everything submitted to `other` so far.
  void wait_stream(StreamRef other) const {
    stream_.wait_stream(other);
    if constexpr (!device_space<E>) stream_.record_event().synchronize();
  }
  /// Returns a new event that records the kernels and everything else submitted so far.
  [[nodiscard]] Event record_event() const { return stream().record_event(); }
  /// Waits until the kernels and everything else submitted so far have completed.
  void synchronize() const { stream().synchronize(); }

 private:
  StreamRef find(const E& exec) {
    detail::check_space<E>();
    detail::require_kokkos();
    if constexpr (!inline_space<E>)
      if (const auto known = detail::stream_of(exec)) return *known;
    if constexpr (device_space<E>) {
      const native::stream handle = detail::native_stream(exec);
      const Device device = detail::device_of(exec);
      if (handle == nullptr) return device.default_stream();
      own_.emplace(Stream::from_native(handle, device, Ownership::borrow));
    } else {
      own_.emplace();
    }
    if constexpr (!inline_space<E>)
      static_cast<void>(detail::keep_instance(*own_, [&] { return exec; }));
    return *own_;
  }
  void finish_kernels() const {
    if constexpr (host_space<E>)
      detail::instance<E>(stream_).fence("runnel: an instance as a stream");
  }

  std::optional<Stream> own_;
  StreamRef stream_;
};

/// Returns a Kokkos instance as a stream, which is valid as long as the result lives.
template <execution_space E>
[[nodiscard]] ExecStream<E> as_stream(const E& exec) {
  return ExecStream<E>{exec};
}

/// Kernels launched on `waiting` from now on run after the kernels launched on `other` before, on
/// the instance itself or by launch() on its stream. If both are device instances, the call does
/// not wait. Otherwise it waits, because kernels of a host space run in the thread that launches
/// them.
template <execution_space Waiting, execution_space Other>
void wait(const Waiting& waiting, const Other& other) {
  if constexpr (device_space<Waiting> && device_space<Other>) {
    as_stream(waiting).unfenced_stream().wait_stream(as_stream(other).unfenced_stream());
  } else {
    // The fence waits only for running kernels. Functions that launch() enqueued are in the stream;
    // on devices there are none.
    if constexpr (host_space<Other>)
      if (const auto stream = detail::stream_of(other)) stream->record_event().synchronize();
    other.fence("runnel: an instance waits for another");
  }
}

/// A stream together with an instance of its own.
template <execution_space E>
class Instance : public Stream {
 public:
  /// Takes ownership of the stream; its instance is created at first use.
  explicit Instance(Stream stream) : Stream{std::move(stream)} {}
  /// The stream's instance, as fenced_exec_space().
  [[nodiscard]] detail::Given<E> fenced_exec() const { return fenced_exec_space<E>(*this); }
};

/// Creates `count` instances on the current device, with the same options. They share no resources
/// with each other or with Kokkos' own instances. `host_threads`: threads of each instance on
/// OpenMP (default: 1).
template <execution_space E = DefaultSpace>
[[nodiscard]] std::vector<Instance<E>> make_instances(std::size_t count, StreamOptions options = {},
                                                      int host_threads = 1) {
  static_assert(!inline_space<E>, "Kokkos::Threads has one instance only");
  detail::check_space<E>();
  if (host_threads < 1)
    runnel::detail::throw_invalid_argument("make instances", "fewer than one thread");
  std::vector<Instance<E>> all;
  all.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Instance<E>& made = all.emplace_back(Stream{options});
    static_cast<void>(
        detail::keep_instance(made, [&] { return detail::make_instance<E>(made, host_threads); }));
  }
  return all;
}

/// Makes an instance's stream the current stream, and its device the current device, for a scope.
template <execution_space E>
class [[nodiscard]] ExecGuard {
 public:
  /// Makes the stream of `exec` current. @throws as ExecStream and StreamGuard; on a host space it
  /// throws in a function of launch()
  [[nodiscard]] explicit ExecGuard(const E& exec) : stream_{exec}, guard_{stream_.stream()} {}

 private:
  ExecStream<E> stream_;
  StreamGuard guard_;
};

/// Copies all elements of `src` to `dst` in stream order. It returns before the data has moved, for
/// any kind of host memory (for others see `CopyOptions`). Requires: both sides stay alive,
/// and the source unchanged, until the copy has completed. The views have the same extents and
/// element type, and their elements form rows with one stride, or planes of such rows: contiguous
/// views, subviews of rows, columns, faces and blocks, padded views. Strided single elements are
/// slow on a device.
/// @throws errc::invalid_argument, with a text that names both views, for different extents, and
/// for layouts that would need a transposition
template <detail::KokkosView Dst, detail::KokkosView Src,
          runnel::detail::CopyPolicy O = CopyOptions>
CopyResult copy_async(StreamRef stream, const Dst& dst, const Src& src, const O& options = {}) {
  static_assert(Dst::rank() == Src::rank(), "copy_async: the views have different ranks");
  static_assert(!std::is_const_v<typename Dst::value_type>,
                "copy_async: the destination is read-only");
  static_assert(
      std::is_same_v<typename Dst::non_const_value_type, typename Src::non_const_value_type>,
      "copy_async: the views have different element types");
  static_assert(std::is_trivially_copyable_v<typename Dst::value_type>,
                "copy_async: only trivially copyable elements can be moved as bytes");
  if (device_space<Kokkos::DefaultExecutionSpace> || !Kokkos::is_initialized())
    return detail::copy_views(stream, dst, src, runnel::detail::options_of(options));
  detail::Work& work = detail::work_of(stream);
  const CopyResult result =
      detail::copy_views(stream, dst, src, runnel::detail::options_of(options));
  if (result != CopyResult::nothing) detail::note_copy(work, stream);
  return result;
}

namespace detail {
template <class T>
using Elements = Kokkos::View<T*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
template <class T>
using Scalar = Kokkos::View<T, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
template <class R>
using ElementOf = std::remove_pointer_t<decltype(std::declval<R&>().data())>;
}  // namespace detail
///@{ The same with a vector, a span or a buffer on one side.
template <detail::KokkosViewOf<1> Dst, detail::Elementwise R,
          runnel::detail::CopyPolicy O = CopyOptions>
CopyResult copy_async(StreamRef stream, const Dst& dst, const R& from, const O& options = {}) {
  runnel::detail::record_use(stream, from);
  return copy_async(
      stream, dst, detail::Elements<detail::ElementOf<const R>>(from.data(), from.size()), options);
}
template <detail::LastingElementwise R, detail::KokkosViewOf<1> Src,
          runnel::detail::CopyPolicy O = CopyOptions>
CopyResult copy_async(StreamRef stream, R&& to, const Src& src, const O& options = {}) {
  runnel::detail::record_use(stream, to);
  return copy_async(
      stream, detail::Elements<detail::ElementOf<std::remove_reference_t<R>>>(to.data(), to.size()),
      src, options);
}
/// @} @{ The same with a variable of the caller on one side, and a view of rank 0 on the other.
/// Requires: the variable lives until the copy has completed.
template <detail::KokkosViewOf<0> Dst, runnel::detail::CopyPolicy O = CopyOptions>
CopyResult copy_async(StreamRef stream, const Dst& dst,
                      const typename Dst::non_const_value_type& from, const O& options = {}) {
  return copy_async(stream, dst, detail::Scalar<const typename Dst::non_const_value_type>(&from),
                    options);
}
template <detail::KokkosViewOf<0> Src, runnel::detail::CopyPolicy O = CopyOptions>
CopyResult copy_async(StreamRef stream, typename Src::non_const_value_type& to, const Src& src,
                      const O& options = {}) {
  return copy_async(stream, detail::Scalar<typename Src::non_const_value_type>(&to), src, options);
}
///@}

/// @cond
// Overloads that refuse common mistakes, each with a text that says what to write instead.
template <detail::KokkosViewOf<0> Dst>
CopyResult copy_async RUNNEL_REFUSED(
    "a temporary ends before the copy: give it a name and keep it until the stream has passed",
    StreamRef, const Dst&, typename Dst::non_const_value_type&&, const CopyOptions& = {});
template <class A, class B, detail::WrongCopy<detail::Mistake::temporary, A, B> C,
          class D = runnel::detail::Absent>
CopyResult copy_async RUNNEL_REFUSED(
    "a temporary container ends before the copy: give it a name and keep it until the stream has "
    "passed",
    A&&, B&&, C&&, D&& = {});
template <class A, class B,
          detail::WrongCopy<detail::Mistake::stream_order, A, B> C = runnel::detail::Absent,
          class D = runnel::detail::Absent>
CopyResult copy_async
    RUNNEL_REFUSED("the stream comes first: the order is copy_async(stream, to, from)", A&&, B&&,
                   C&& = {}, D&& = {});
template <class A, class B, detail::WrongCopy<detail::Mistake::pointer, A, B> C,
          class D = runnel::detail::Absent>
CopyResult copy_async RUNNEL_REFUSED("a pointer has no size: pass a std::span or an unmanaged view",
                                     A&&, B&&, C&&, D&& = {});
/// @endcond

namespace detail {
using PinnedSpace = std::conditional_t<device_space<Kokkos::DefaultExecutionSpace>,
                                       Kokkos::SharedHostPinnedSpace, Kokkos::HostSpace>;
}
/// An unmanaged Kokkos view of pinned memory; in Kokkos::HostSpace if Kokkos' default space is a
/// host space. `T` is as in Kokkos::View: `pinned_view<float**>`.
template <class T, class Layout = Kokkos::LayoutRight>
using pinned_view =
    Kokkos::View<T, Layout, detail::PinnedSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

namespace detail {
using ManagedSpace = std::conditional_t<device_space<Kokkos::DefaultExecutionSpace>,
                                        Kokkos::SharedSpace, Kokkos::HostSpace>;
template <class T>
// Excludes view<E>(...), where E is a space.
concept Element = !Kokkos::is_execution_space_v<T>;
template <class T, class Space>
using Unmanaged = Kokkos::View<T*, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
}  // namespace detail
/// @{ The buffer as a view. Requires: the buffer outlives the view. Call the buffer's
/// record_stream() for each stream whose kernels use the view, so that its memory is not reused
/// before they complete.
template <detail::Element T>
[[nodiscard]] pinned_view<T*> view(PinnedBuffer<T>& buffer) {
  return pinned_view<T*>(buffer.data(), buffer.size());
}
template <template <class> class Buffer, class T>
// The buffer's type is deduced as a whole: for view<E>(...), clang 14 would instantiate
// PinnedBuffer<E>.
  requires std::same_as<Buffer<T>, PinnedBuffer<T>>
[[nodiscard]] pinned_view<const T*> view(const Buffer<T>& buffer) {
  return pinned_view<const T*>(buffer.data(), buffer.size());
}
/// @} @{ The memory as a view for kernels of a space. With a device backend this must be a device
/// space, because kernels of a host space cannot access device memory. Requires: the memory
/// outlives the view.
template <detail::uses_device_memory E = DefaultSpace, class T>
[[nodiscard]] auto view(DeviceSpan<T> span) {
  return detail::Unmanaged<T, typename E::memory_space>(span.data(), span.size());
}
template <detail::uses_device_memory E = DefaultSpace, class T>
[[nodiscard]] auto view(DeviceBuffer<T>& buffer) {
  return view<E>(buffer.span());
}
template <detail::uses_device_memory E = DefaultSpace, class T>
[[nodiscard]] auto view(const DeviceBuffer<T>& buffer) {
  return view<E>(buffer.span());
}
///@}
///@{ The buffer as a view for kernels and for the host. Requires: the buffer outlives the view.
template <detail::Element T>
[[nodiscard]] auto view(ManagedBuffer<T>& buffer) {
  return detail::Unmanaged<T, detail::ManagedSpace>(buffer.data(), buffer.size());
}
template <template <class> class Buffer, class T>
  requires std::same_as<Buffer<T>, ManagedBuffer<T>>
[[nodiscard]] auto view(const Buffer<T>& buffer) {
  return detail::Unmanaged<const T, detail::ManagedSpace>(buffer.data(), buffer.size());
}
///@}
/// @cond
template <detail::TemporaryBuffer Buffer>
detail::Elements<detail::ElementOf<Buffer>> view RUNNEL_REFUSED(
    "a temporary buffer ends before its view: give it a name and keep it as long as the view",
    Buffer&&);
template <detail::uses_device_memory E, detail::TemporaryBuffer Buffer>
detail::Elements<detail::ElementOf<Buffer>> view RUNNEL_REFUSED(
    "a temporary buffer ends before its view: give it a name and keep it as long as the view",
    Buffer&&);
/// @endcond

/// The elements of a view of any rank, for copies and communicators: a DeviceSpan for memory that
/// the host cannot access, a std::span for other memory. Requires: the view's memory outlives the
/// span. @throws errc::invalid_argument, with a text that names the view, unless its elements are
/// contiguous
template <detail::KokkosView V>
[[nodiscard]] auto span(const V& view) {
  using Element = typename V::value_type;
  constexpr bool on_host =
      Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename V::memory_space>::accessible;
  if (!view.span_is_contiguous()) {
    std::string reason{"the elements of the view '"};
    reason.append(view.label())
        .append("' are not contiguous: copy them to a view that is, by copy_async()");
    runnel::detail::throw_error(errc::invalid_argument, "take the span of a view", reason.c_str());
  }
  return std::conditional_t<on_host, std::span<Element>, DeviceSpan<Element>>{view.data(),
                                                                              view.size()};
}

}  // namespace runnel::inline RUNNEL_ABI::kokkos
