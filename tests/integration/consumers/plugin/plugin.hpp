// SPDX-License-Identifier: Apache-2.0
// The functions of a shared library that uses runnel, for the program that loads it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plugin {

std::uint64_t current_stream_id();
void make_current(std::uint64_t id);  // Requires: make_stream() returned the id
std::uint64_t make_stream();
void* pinned_block(std::size_t bytes);
void give_back(void* block, std::size_t bytes);
std::size_t live_streams();
void throw_an_error();

}  // namespace plugin
