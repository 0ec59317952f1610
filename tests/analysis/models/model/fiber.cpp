// SPDX-License-Identifier: Apache-2.0
#include "fiber.hpp"

#include <cxxabi.h>
#include <link.h>
#include <sys/mman.h>
#include <cstdint>
#include <cstdio>

#include <cstdlib>
#include <cstring>

#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace model {
namespace {

constexpr size_t stack_bytes = size_t{256} << 10;

/// The program's thread_local variables: where they are in this thread, and what they begin with.
struct Locals {
  unsigned char* place = nullptr;
  size_t bytes = 0;
  const unsigned char* initial = nullptr;
  size_t initial_bytes = 0;
} own;

int find_locals(dl_phdr_info* info, size_t, void*) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_TLS) continue;
    own = {static_cast<unsigned char*>(info->dlpi_tls_data), header.p_memsz,
           reinterpret_cast<const unsigned char*>(info->dlpi_addr + header.p_vaddr),
           header.p_filesz};
  }
  // the first object is the program; the libraries' variables belong to the thread of the system
  return 1;
}

/// What the C++ run-time keeps of a thread's exceptions.
struct Exceptions {
  void* caught;
  unsigned uncaught;
};

void leave(Fiber& from, Fiber& to) {
  auto* const exceptions = reinterpret_cast<Exceptions*>(abi::__cxa_get_globals());
  from.caught = exceptions->caught;
  from.uncaught = exceptions->uncaught;
  *exceptions = {to.caught, to.uncaught};
  if (own.bytes == 0) return;
  std::memcpy(from.locals, own.place, own.bytes);
  std::memcpy(own.place, to.locals, own.bytes);
}

void allocate(Fiber& fiber) {
  if (fiber.locals == nullptr)
    fiber.locals = static_cast<unsigned char*>(std::malloc(own.bytes + 1));
}

}  // namespace

void prepare_fibers() { dl_iterate_phdr(find_locals, nullptr); }

#ifdef __x86_64__

// Saves what a called function must keep, and goes on with what the other stack has saved.
extern "C" void model_switch_stack(void** from, void* to);
asm(R"(
.text
.globl model_switch_stack
.type model_switch_stack, @function
model_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size model_switch_stack, .-model_switch_stack
)");

void switch_fiber(Fiber& from, Fiber& to) {
  allocate(from);
  leave(from, to);
  model_switch_stack(&from.stack_pointer, to.stack_pointer);
}

namespace {
void* first_frame(Fiber& fiber, void (*entry)()) {
  auto** top = reinterpret_cast<void**>(fiber.stack + stack_bytes);
  *--top = nullptr;  // where a caller would return to, so that the stack is aligned as after a call
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  return top;
}
}  // namespace

#else

void switch_fiber(Fiber& from, Fiber& to) {
  allocate(from);
  leave(from, to);
  if (from.stack_pointer == nullptr) from.stack_pointer = new ucontext_t{};
  swapcontext(static_cast<ucontext_t*>(from.stack_pointer),
              static_cast<ucontext_t*>(to.stack_pointer));
}

namespace {
void* first_frame(Fiber& fiber, void (*entry)()) {
  auto* context = static_cast<ucontext_t*>(fiber.stack_pointer);
  if (context == nullptr) context = new ucontext_t{};
  getcontext(context);
  context->uc_stack.ss_sp = fiber.stack;
  context->uc_stack.ss_size = stack_bytes;
  makecontext(context, entry, 0);
  return context;
}
}  // namespace

#endif

void reset_fiber(Fiber& fiber, void (*entry)()) {
  if (fiber.stack == nullptr) {
    void* const stack =
        mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED) std::abort();
    fiber.stack = static_cast<unsigned char*>(stack);
  }
  allocate(fiber);
  std::memset(fiber.locals, 0, own.bytes);
  std::memcpy(fiber.locals, own.initial, own.initial_bytes);
  fiber.caught = nullptr;
  fiber.uncaught = 0;
  fiber.at_end = nullptr;
  fiber.stack_pointer = first_frame(fiber, entry);
}

}  // namespace model
