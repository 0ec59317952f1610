// SPDX-License-Identifier: Apache-2.0
#include "ipc.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "../eventually.hpp"
#include "calls.hpp"

namespace standin {

std::shared_ptr<SharedRecords> SharedRecords::make() {
  const SharedFile file = make_file(sizeof(Page));
  void* const page =
      file.number < 0 ? nullptr : map_file(static_cast<int>(file.number), sizeof(Page));
  return page == nullptr ? nullptr : std::shared_ptr<SharedRecords>{new SharedRecords{file, page}};
}

std::shared_ptr<SharedRecords> SharedRecords::open(const SharedFile& file) {
  const int number = file.size == sizeof(Page) ? open_file(file) : -1;
  if (number < 0) return nullptr;
  void* const page = map_file(number, sizeof(Page));
  close(number);
  return page == nullptr ? nullptr
                         : std::shared_ptr<SharedRecords>{new SharedRecords{{0, -1, 0, 0}, page}};
}

SharedRecords::~SharedRecords() {
  munmap(page_, sizeof(Page));
  if (file_.number >= 0) close(static_cast<int>(file_.number));
}

void SharedRecords::wait(uint64_t number) const {
  for (test_support::Pauses pause; !is_done(number);) pause();
}

}  // namespace standin

using namespace standin;

namespace {

/// What a handle consists of. Zeros are no handle.
struct Content {
  uint64_t kind;  // 1: an event, 2: memory
  std::int64_t device;
  SharedFile file;
};

template <class Handle>
int write_handle(Handle* handle, const Content& content) {
  static_assert(sizeof(Content) <= sizeof(Handle));
  if (content.file.number < 0) return invalid_value;
  *handle = {};
  std::memcpy(handle, &content, sizeof content);
  return ok;
}

/// Reads a handle that is of the current device and of another process.
template <class Handle>
int read_handle(const Handle& handle, uint64_t kind, Content& content) {
  std::memcpy(static_cast<void*>(&content), &handle, sizeof content);
  if (content.kind != kind) return invalid_value;
  if (content.file.process == getpid()) return no_context;
  return content.device == this_thread().device ? ok : invalid_device;
}

}  // namespace

extern "C" {

Error API(IpcGetEventHandle)(vendor::IpcEventHandle* handle, EventHandle of) {
  return call([&] {
    const auto event = state().events.find(of);
    if (event == nullptr) return invalid_handle;
    if (event->shared == nullptr) return invalid_value;
    return write_handle(handle, {1, event->device, event->shared->file()});
  });
}

Error API(IpcOpenEventHandle)(EventHandle* opened, vendor::IpcEventHandle handle) {
  return call(Call::makes, [&] {
    Content content{};
    if (const int code = read_handle(handle, 1, content); code != ok) return code;
    auto event = std::make_shared<Event>();
    event->device = this_thread().device;
    event->shared = SharedRecords::open(content.file);
    if (event->shared == nullptr) return invalid_value;
    *opened = state().events.add(std::move(event));
    return ok;
  });
}

Error API(IpcGetMemHandle)(vendor::IpcMemoryHandle* handle, void* memory) {
  return call([&] {
    const Block block = state().blocks.of(memory);
    if (!block.is_start || block.kind != Memory::device || block.opened) return invalid_value;
    return write_handle(handle, {2, block.device, block.file});
  });
}

// A handle that is open already is counted once more, and gives the same address.
Error API(IpcOpenMemHandle)(void** memory, vendor::IpcMemoryHandle handle, unsigned int) {
  return call(Call::makes, [&] {
    Content content{};
    if (const int code = read_handle(handle, 2, content); code != ok) return code;
    *memory = state().blocks.open(content.file, this_thread().device);
    return *memory != nullptr ? ok : invalid_value;
  });
}

Error API(IpcCloseMemHandle)(void* memory) {
  return call(Call::releases, [&] { return state().blocks.close(memory) ? ok : invalid_value; });
}

}  // extern "C"
