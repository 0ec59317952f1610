// SPDX-License-Identifier: Apache-2.0
/// Declares functions that kernels call. This file and refused.hpp alone know the words that the
/// compilers of kernels have.
#pragma once

#include <runnel/detail/refused.hpp>

// RUNNEL_HOST_DEVICE: the function is for host code and for kernels. RUNNEL_TRAP_OR(statement): in
// a kernel the kernel ends with an error. RUNNEL_KERNEL_OPERATOR(reason, result, operator, body):
// for kernels only; host code is refused with the reason.
#if defined __CUDA__ || defined __HIP__ || defined __CUDACC__
#define RUNNEL_HOST_DEVICE __attribute__((host)) __attribute__((device))
#else
#define RUNNEL_HOST_DEVICE
#endif

#if defined __clang__ && (defined __CUDA_ARCH__ || defined __HIP_DEVICE_COMPILE__)
#define RUNNEL_TRAP_OR(...) __builtin_trap()
#elif defined __CUDA_ARCH__
#define RUNNEL_TRAP_OR(...) __trap()
#else
#define RUNNEL_TRAP_OR(...) __VA_ARGS__
#endif

#if defined __clang__ && (defined __CUDA__ || defined __HIP__)
// Clang has overloads for each side, and reads kernels also when it compiles for the host.
#define RUNNEL_KERNEL_OPERATOR(reason, result, op, ...)                         \
  __attribute__((device)) result op __VA_ARGS__ __attribute__((host)) result op \
      __attribute__((unavailable(reason)))
#elif defined __CUDA_ARCH__
#define RUNNEL_KERNEL_OPERATOR(reason, result, op, ...) RUNNEL_HOST_DEVICE result op __VA_ARGS__
#elif defined __CUDACC__
// nvcc has no such overloads. Here, where it compiles for the host, it ignores the attribute and
// passes it on to the host's compiler, which does not see what is in kernels.
#define RUNNEL_KERNEL_OPERATOR(reason, result, op, ...) \
  __attribute__((unavailable(reason))) RUNNEL_HOST_DEVICE result op __VA_ARGS__
#else
#define RUNNEL_KERNEL_OPERATOR(reason, result, op, ...) RUNNEL_REFUSED_OPERATOR(reason, op)
#endif
