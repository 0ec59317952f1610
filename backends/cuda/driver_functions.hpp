// SPDX-License-Identifier: Apache-2.0
/// Functions that only the CUDA driver has. The library does not link the driver: the runtime
/// returns the address of each function.
#pragma once

#include <cuda_runtime_api.h>
#include <runnel/config.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace runnel::inline RUNNEL_ABI::rt {

/// Finds a driver function, as CUDA `version` declares it. A function that the driver lacks is
/// null, with success. Before 12.5 the runtime only finds the declarations of its own version.
template <class Function>
cudaError_t find_in_driver(Function*& function, const char* name,
                           [[maybe_unused]] unsigned int version = 12000) noexcept {
  void* address = nullptr;
#if CUDART_VERSION >= 12050
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t e =
      cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &found);
#elif CUDART_VERSION >= 12000
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t e = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &found);
#else
  // CUDA 11.8, below the NVIDIA platform of HIP 5.2.
  const cudaError_t e = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault);
#endif
  function = e == cudaSuccess ? reinterpret_cast<Function*>(address) : nullptr;
  if (e != cudaErrorSymbolNotFound) return e;
  static_cast<void>(cudaGetLastError());  // some versions report a missing function as an error
  return cudaSuccess;
}

/// For functions with a substitute in the runtime: a failure counts as a missing function, and its
/// error is cleared.
template <class Function>
[[nodiscard]] bool has_in_driver(Function*& function, const char* name) noexcept {
  const cudaError_t e = find_in_driver(function, name);
  if (e != cudaSuccess && cudaPeekAtLastError() == e) static_cast<void>(cudaGetLastError());
  return function != nullptr;
}

/// A driver function. Looked up once.
template <class... Arguments>
class DriverFunction {
 public:
  explicit constexpr DriverFunction(const char* name) noexcept : name_{name} {}

  cudaError_t operator()(Arguments... arguments) noexcept {
    Function* function = function_.load(std::memory_order_relaxed);
    int result = cudaErrorDeviceUninitialized;
    if (function != nullptr) result = function(arguments...);
    if (result != cudaErrorDeviceUninitialized) return static_cast<cudaError_t>(result);
    // The first call in this process, or in this thread. Driver functions need a current context,
    // which cudaSetDevice creates.
    int device = 0;
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess) e = cudaSetDevice(device);
    if (e != cudaSuccess) return e;
    e = find_in_driver(function, name_);
    if (e != cudaSuccess) return e;
    if (function == nullptr) return cudaErrorNotSupported;
    function_.store(function, std::memory_order_relaxed);
    return static_cast<cudaError_t>(function(arguments...));
  }

 private:
  using Function = int(Arguments...);
  const char* name_;
  std::atomic<Function*> function_{nullptr};
};

using device_address = unsigned long long;
inline device_address address_of(const void* pointer) noexcept {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

// The runtime can only fill with bytes.
inline constinit DriverFunction<device_address, unsigned short, std::size_t, cudaStream_t>
    driver_fill_16{"cuMemsetD16Async"};
inline constinit DriverFunction<device_address, unsigned int, std::size_t, cudaStream_t>
    driver_fill_32{"cuMemsetD32Async"};
inline cudaError_t cuda_fill_16(void* to, std::uint32_t value, std::size_t count,
                                cudaStream_t stream) noexcept {
  return driver_fill_16(address_of(to), static_cast<unsigned short>(value), count, stream);
}
inline cudaError_t cuda_fill_32(void* to, std::uint32_t value, std::size_t count,
                                cudaStream_t stream) noexcept {
  return driver_fill_32(address_of(to), value, count, stream);
}

// Only the driver can wait for values and write them. Flags 0 mean: wait until the cyclic
// difference to the value is at least 0; write after a memory barrier.
inline constinit DriverFunction<cudaStream_t, device_address, std::uint32_t, unsigned int>
    driver_wait_value{"cuStreamWaitValue32"};
inline constinit DriverFunction<cudaStream_t, device_address, std::uint32_t, unsigned int>
    driver_write_value{"cuStreamWriteValue32"};
inline cudaError_t cuda_wait_value(cudaStream_t stream, std::uint32_t* place,
                                   std::uint32_t value) noexcept {
  return driver_wait_value(stream, address_of(place), value, 0);
}
inline cudaError_t cuda_write_value(cudaStream_t stream, std::uint32_t* place,
                                    std::uint32_t value) noexcept {
  return driver_write_value(stream, address_of(place), value, 0);
}

// The stream's context tells the device. cudaStreamGetDevice, which 12.8 added, breaks the capture
// of a stream that is being captured, and so do the questions for the flags and the number (seen on
// an H200, driver 580, in each capture mode).
inline constinit DriverFunction<cudaStream_t, void**> driver_stream_context{"cuStreamGetCtx"};
inline constinit DriverFunction<void*> driver_push_context{"cuCtxPushCurrent"};
inline constinit DriverFunction<void**> driver_pop_context{"cuCtxPopCurrent"};
inline constinit DriverFunction<int*> driver_context_device{"cuCtxGetDevice"};
inline constinit DriverFunction<void**> driver_current_context{"cuCtxGetCurrent"};
inline cudaError_t cuda_stream_device(cudaStream_t stream, int* device) noexcept {
  void* context = nullptr;
  cudaError_t e = driver_stream_context(stream, &context);
  if (e == cudaSuccess) e = driver_push_context(context);
  if (e != cudaSuccess) return e;
  e = driver_context_device(device);
  void* last = nullptr;
  const cudaError_t popped = driver_pop_context(&last);
  // The call may have taken effect in spite of the error.
  if (popped != cudaSuccess && driver_current_context(&last) == cudaSuccess && last == context)
    static_cast<void>(driver_pop_context(&last));
  return e == cudaSuccess ? popped : e;
}

#if CUDART_VERSION < 13000
/// The addresses of a batch, with the constness that this version of the runtime declares.
struct BatchAddresses {
  const void* const* list;
  operator void**() const noexcept { return const_cast<void**>(list); }
  operator const void**() const noexcept { return const_cast<const void**>(list); }
};
#endif

// CUDA 12.8 added one call for many copies, and CUDA 13 removed an argument from it. Neither
// version accepts the default streams.
inline cudaError_t cuda_copy_batch(void* const* to, const void* const* from,
                                   const std::size_t* bytes, std::size_t count,
                                   cudaStream_t stream) noexcept {
#if CUDART_VERSION >= 12080
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread)
    return cudaErrorNotSupported;
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  std::size_t first = 0;  // the attributes apply from the first copy on
#if CUDART_VERSION >= 13000
  return cudaMemcpyBatchAsync(to, from, bytes, count, &attributes, &first, 1, stream);
#else
  std::size_t failed = 0;
  return cudaMemcpyBatchAsync(BatchAddresses{to}, BatchAddresses{from},
                              const_cast<std::size_t*>(bytes), count, &attributes, &first, 1,
                              &failed, stream);
#endif
#else
  static_cast<void>(to), static_cast<void>(from), static_cast<void>(bytes),
      static_cast<void>(count), static_cast<void>(stream);
  return cudaErrorNotSupported;
#endif
}

}  // namespace runnel::inline RUNNEL_ABI::rt
