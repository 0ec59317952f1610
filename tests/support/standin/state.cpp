// SPDX-License-Identifier: Apache-2.0
#include "state.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "settings.hpp"

namespace standin {
namespace {
constexpr size_t region_size = size_t{1} << 40U;
constexpr size_t page = 4096;
constexpr uintptr_t generation = uintptr_t{1} << 40U;
size_t pages(size_t size) { return (size + page - 1) / page * page; }
const byte* bytes(const void* pointer) { return static_cast<const byte*>(pointer); }
}  // namespace

// A handle has 20 bits of kind, 20 bits of index, and a generation in the remaining bits.
template <class Object>
Number Handles<Object>::add(std::shared_ptr<Object> object) {
  if (free_.empty()) {
    free_.push_back(newest_.size());
    newest_.push_back(base_ | newest_.size() << 20U);
  }
  uintptr_t& handle = newest_[free_.back()];
  free_.pop_back();
  if (!settings().reuse_handles) handle += generation;
  live_.emplace(handle, std::move(object));
  ++made_;
  return handle;
}

template <class Object>
bool Handles<Object>::was_live(uintptr_t handle) const {
  const size_t index = handle >> 20U & 0xFFFFFU;
  return (handle & 0xFFFFFU) == base_ && index < newest_.size() && handle <= newest_[index];
}

template <class Object>
std::shared_ptr<Object> Handles<Object>::find(Number handle) const {
  const auto found = live_.find(handle.value);
  if (found != live_.end()) return found->second;
  Misuse& misuse = state().misuse;
  ++(was_live(handle.value) ? misuse.use_after_destroy : misuse.unknown_handle);
  return nullptr;
}

template <class Object>
bool Handles<Object>::remove(Number handle) {
  if (live_.erase(handle.value) == 0) {
    Misuse& misuse = state().misuse;
    ++(was_live(handle.value) ? misuse.double_destroy : misuse.unknown_handle);
    return false;
  }
  free_.push_back(handle.value >> 20U & 0xFFFFFU);
  return true;
}

template class Handles<Stream>;
template class Handles<Event>;
template class Handles<Graph>;
template class Handles<NodePlace>;
template class Handles<ExecutableGraph>;

Blocks::Blocks() {
  void* const region =
      mmap(nullptr, region_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  region_ = next_ = region == MAP_FAILED ? nullptr : static_cast<byte*>(region);
}

bool Blocks::has_room(size_t size, Memory kind, int device, size_t counted) const {
  const size_t limit = settings().memory;
  return size <= limit && used(kind == Memory::pinned ? -1 : device) - counted + size <= limit;
}

/// Blocks of device memory may be neighbours, as on a device, where a copy over the end of a block
/// is refused all the same. Behind others there is a page that nobody can touch.
byte* Blocks::take_addresses(size_t size, bool may_have_neighbour) {
  const size_t taken = pages(size) + (may_have_neighbour ? 0 : page);
  if (region_ == nullptr || taken > region_size - static_cast<size_t>(next_ - region_))
    return nullptr;
  return std::exchange(next_, next_ + taken);
}

bool Blocks::begin(byte* block, const Block& as) {
  if (mprotect(block, pages(as.size), PROT_READ | PROT_WRITE) != 0) return false;
  // so that new memory is not zero
  std::memset(block, 0xCD, std::min(as.size, size_t{1} << 20U));
  used_[as.kind == Memory::pinned ? -1 : as.device] += as.size;
  if (as.pool != nullptr) {
    as.pool->used += as.size;
    as.pool->held = std::max(as.pool->held, as.pool->used);
  }
  return true;
}

void Blocks::end(byte* block, const Block& as) {
  used_[as.kind == Memory::pinned ? -1 : as.device] -= as.size;
  if (as.pool != nullptr) as.pool->used -= as.size;
  if (as.file.number >= 0) return unmap(block, as);
  mprotect(block, pages(as.size), PROT_NONE);
  madvise(block, pages(as.size), MADV_DONTNEED);
}

/// Puts inaccessible memory in the place of a file's.
void Blocks::unmap(byte* block, const Block& as) {
  mmap(block, pages(as.size), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
       -1, 0);
  if (!as.opened) ::close(static_cast<int>(as.file.number));
}

void* Blocks::allocate_shared(size_t size, int device) {
  if (!has_room(size, Memory::device, device, 0)) return nullptr;
  byte* const block = take_addresses(size);
  Block as{size, Memory::device, device};
  if (block == nullptr) return nullptr;
  as.file = make_file(pages(size));
  if (as.file.number < 0 ||
      map_file(static_cast<int>(as.file.number), pages(size), block) == nullptr)
    return nullptr;
  begin(block, as);
  blocks_.emplace(block, as);
  return block;
}

void* Blocks::open(const SharedFile& file, int device) {
  if (const auto known = opened_.find(file); known != opened_.end()) {
    ++known->second.second;
    return known->second.first;
  }
  const int number = open_file(file);
  if (number < 0) return nullptr;
  byte* const block = take_addresses(file.size);
  const bool is_mapped = block != nullptr && map_file(number, file.size, block) != nullptr;
  ::close(number);
  if (!is_mapped) return nullptr;
  Block as{file.size, Memory::device, device};
  as.file = file;
  as.opened = true;
  blocks_.emplace(block, as);
  opened_.emplace(file, std::pair{block, 1});
  return block;
}

bool Blocks::close(void* pointer) {
  const auto found = blocks_.find(bytes(pointer));
  if (found == blocks_.end() || !found->second.opened) return false;
  const auto known = opened_.find(found->second.file);
  if (--known->second.second > 0) return true;
  opened_.erase(known);
  unmap(static_cast<byte*>(pointer), found->second);
  blocks_.erase(found);
  return true;
}

void* Blocks::allocate(size_t size, Memory kind, int device, size_t counted, Pool* pool) {
  if (!has_room(size, kind, device, counted)) return nullptr;
  std::byte* const block = take_addresses(size, kind == Memory::device);
  Block as{size, kind, device};
  as.pool = pool;
  if (block == nullptr || !begin(block, as)) return nullptr;
  blocks_.emplace(block, as);
  return block;
}

void* Blocks::reserve(size_t size, int device) {
  byte* const block = take_addresses(size);
  if (block == nullptr) return nullptr;
  Block as{size, Memory::device, device};
  as.of_graph = true;
  blocks_.emplace(block, as);
  return block;
}

bool Blocks::begin_use(void* pointer) {
  Block& block = blocks_.at(bytes(pointer));
  if (block.uses == 0 && !(has_room(block.size, block.kind, block.device, 0) &&
                           begin(static_cast<byte*>(pointer), block)))
    return false;
  ++block.uses;
  return true;
}

bool Blocks::release(void* pointer) {
  const auto found = blocks_.find(bytes(pointer));
  if (found == blocks_.end() || found->second.registered || found->second.opened ||
      !found->second.in_use())
    return false;
  Block& block = found->second;
  block.kept = false;
  if (block.of_graph && --block.uses > 0) return true;
  end(static_cast<byte*>(pointer), block);
  if (!block.of_graph || block.orphaned) blocks_.erase(found);
  return true;
}

void Blocks::set_kept(const void* pointer, bool kept) {
  const auto found = blocks_.find(bytes(pointer));
  if (found != blocks_.end()) found->second.kept = kept;
}

void Blocks::orphan(void* pointer) {
  const auto found = blocks_.find(bytes(pointer));
  found->second.orphaned = true;
  if (!found->second.in_use()) blocks_.erase(found);
}

bool Blocks::add_registered(void* pointer, size_t size) {
  const auto after = blocks_.upper_bound(bytes(pointer));
  if (after != blocks_.end() && after->first < bytes(pointer) + size) return false;
  if (after != blocks_.begin() &&
      bytes(pointer) < std::prev(after)->first + std::prev(after)->second.size)
    return false;
  blocks_.emplace(bytes(pointer), Block{size, Memory::pinned, 0, true});
  used_[-1] += size;
  return true;
}

bool Blocks::remove_registered(void* pointer) {
  const auto found = blocks_.find(bytes(pointer));
  if (found == blocks_.end() || !found->second.registered) return false;
  used_[-1] -= found->second.size;
  blocks_.erase(found);
  return true;
}

bool Blocks::inside(const void* pointer) const {
  return bytes(pointer) >= region_ && bytes(pointer) < region_ + region_size;
}

Block Blocks::of(const void* pointer) const {
  auto found = blocks_.upper_bound(bytes(pointer));
  if (found != blocks_.begin()) {
    --found;
    if (bytes(pointer) < found->first + found->second.size) {
      Block block = found->second;
      block.is_start = found->first == pointer;
      return block;
    }
  }
  return {0, inside(pointer) ? Memory::freed : Memory::pageable, 0};
}

bool Blocks::holds(const void* pointer, size_t size) const {
  auto found = blocks_.upper_bound(bytes(pointer));
  if (found == blocks_.begin()) return !inside(pointer);
  --found;
  const byte* const end = found->first + found->second.size;
  if (bytes(pointer) >= end) return !inside(pointer);
  return size <= static_cast<size_t>(end - bytes(pointer));
}

size_t Blocks::used(int device) const {
  const auto found = used_.find(device);
  return found == used_.end() ? 0 : found->second;
}

size_t Blocks::live(Memory kind) const {
  return static_cast<size_t>(std::ranges::count_if(
      blocks_, [&](const auto& b) { return b.second.kind == kind && b.second.in_use(); }));
}

Pool* State::pool(vendor::MemoryPool handle) {
  const uintptr_t number = Number{handle}.value;
  if (number > 0 && number <= static_cast<uintptr_t>(settings().devices))
    return &pools.try_emplace(number, Pool{static_cast<int>(number) - 1}).first->second;
  const auto found = pools.find(number);
  return found == pools.end() ? nullptr : &found->second;
}

size_t State::unused(int device) const {
  size_t bytes = 0;
  for (const auto& [handle, pool] : pools)
    if (pool.device == device) bytes += pool.held - pool.used;
  const size_t used = blocks.used(device), all = settings().memory;
  return std::min(bytes, all - std::min(used, all));
}

void State::trim_pools() {
  for (auto& [handle, pool] : pools)
    pool.held = std::max(pool.used, std::min(pool.held, pool.threshold));
}

State& state() {
  static State& instance = *new State;
  return instance;
}

namespace {
/// Aborts if a thread ends in a state in which CUDA's own handler hangs: seen on an H200 (CUDA
/// 13.0, driver 580).
void refuse_to_end(const ThreadState& thread) {
#ifdef STANDIN_CUDA
  if (gettid() == getpid()) return;  // the end of the process is not affected
  const Lock lock{engine().mutex};
  for (const auto& [number, stream] : thread.default_streams) {
    if (!stream->has_allocated || stream->last_work == nullptr || stream->last_work->done) continue;
    if (stream->host_function != nullptr && !stream->host_function->done) continue;
    std::fputs(
        "stand-in: a thread ends while its default stream has pending work and has allocated "
        "memory: CUDA hangs here\n",
        stderr);
    std::abort();
  }
#else
  static_cast<void>(thread);
#endif
}
}  // namespace

// Never freed: threads that end while the process exits may still use it, and captures are
// identified by the address.
ThreadState& this_thread() {
  thread_local struct Ending {
    ~Ending() { refuse_to_end(*state); }
    ThreadState* state = new ThreadState;
  } ending;
  return *ending.state;
}

StreamPtr State::make_stream(int device, StreamKind kind, int priority) {
  auto made = std::make_shared<Stream>();
  made->id = next_stream_id++;
  made->device = device;
  made->kind = kind;
  made->priority = priority;
  return made;
}

StreamPtr State::stream(StreamHandle handle) {
  ThreadState& thread = this_thread();
  if (is_legacy(handle) || is_per_thread(handle)) {
    StreamPtr& found = (is_legacy(handle) ? legacy : thread.default_streams)[thread.device];
    if (found == nullptr)
      found = make_stream(thread.device,
                          is_legacy(handle) ? StreamKind::legacy : StreamKind::blocking, 0);
    found->thread_default = is_per_thread(handle);
    return found;
  }
  return streams.find(handle);
}

}  // namespace standin
