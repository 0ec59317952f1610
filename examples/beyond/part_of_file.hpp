// SPDX-License-Identifier: Apache-2.0
// What the examples of several processes share: each process reads its own part of a file.
#pragma once

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <runnel/mpi.hpp>
#include <stdexcept>
#include <string>

namespace beyond {

/// The elements [first, last) of `count` that belong to a process.
struct Part {
  std::size_t first, last;
};
inline Part part_of(std::size_t count, const runnel::Communicator& all) {
  const auto rank = static_cast<std::size_t>(all.rank()),
             size = static_cast<std::size_t>(all.size());
  return {count * rank / size, count * (rank + 1) / size};
}

/// A file that is open for reading from a byte on.
inline std::ifstream open_at(const std::string& path, std::size_t byte) {
  std::ifstream file{path, std::ios::binary};
  file.seekg(static_cast<std::streamoff>(byte));
  if (!file) throw std::runtime_error(path + ": cannot be read");
  return file;
}

/// Runs the program's work. A process that fails says why in one line, and ends the others.
template <class F>
int run(int argc, char** argv, const char* usage, int arguments, F&& work) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  try {
    if (argc != arguments + 1) throw std::runtime_error(usage);
    work();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return MPI_Finalize();
}

}  // namespace beyond
