// SPDX-License-Identifier: Apache-2.0
#include "plugin.hpp"

#include <runnel/runnel.hpp>

#include <map>

using std::uint64_t;

namespace plugin {

namespace {
std::map<uint64_t, runnel::Stream>& streams() {
  static std::map<uint64_t, runnel::Stream> made;
  return made;
}
}  // namespace

uint64_t current_stream_id() { return runnel::current_stream().id(); }
void make_current(uint64_t id) { streams().at(id).use(); }
uint64_t make_stream() {
  runnel::Stream stream;
  const uint64_t id = stream.id();
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
