// SPDX-License-Identifier: Apache-2.0
#include "plugin.hpp"

#include <runnel/runnel.hpp>

#include <map>

namespace plugin {

namespace {
std::map<std::uint64_t, runnel::Stream>& streams() {
  static std::map<std::uint64_t, runnel::Stream> made;
  return made;
}
}  // namespace

std::uint64_t current_stream_id() { return runnel::current_stream().id(); }
void make_current(std::uint64_t id) { streams().at(id).use(); }
std::uint64_t make_stream() {
  runnel::Stream stream;
  const std::uint64_t id = stream.id();
  streams().emplace(id, std::move(stream));
  return id;
}
void* pinned_block(std::size_t bytes) { return runnel::pinned_resource()->allocate(bytes); }
void give_back(void* block, std::size_t bytes) {
  runnel::pinned_resource()->deallocate(block, bytes);
}
std::size_t live_streams() { return runnel::live_objects().streams; }
void throw_an_error() { runnel::Stream nowhere{runnel::Device{1000}}; }

}  // namespace plugin
