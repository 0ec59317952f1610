// SPDX-License-Identifier: Apache-2.0
// Stands in for the file of this name of gray-scott-kokkos, which needs HDF5: images go to a file
// as bytes. It prints the time from its constructor to its destructor, which is the program's loop.
//
// With THROUGH_RUNNEL defined, and given to the compiler by `-include`, it also takes the place of
// Kokkos::deep_copy: a copy to the host takes a snapshot on the device and returns, and write()
// writes the image behind the copy, in stream order. Nothing of the program changes.
#pragma once
#include <Kokkos_Core.hpp>

#ifdef THROUGH_RUNNEL
#include <runnel/kokkos.hpp>
#include <runnel/runnel.hpp>
#endif

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <stdexcept>

#ifdef THROUGH_RUNNEL
namespace programs {

inline runnel::Stream& output() {
  static runnel::Stream* const stream = [] {
    auto* const made = new runnel::Stream;
    Kokkos::push_finalize_hook([made] { delete made; });
    return made;
  }();
  return *stream;
}

template <class View>
View& snapshot_like(const View& field) {
  static View* snapshot = nullptr;
  if (snapshot == nullptr) {
    snapshot =
        new View(Kokkos::view_alloc(Kokkos::WithoutInitializing, "snapshot"), field.layout());
    Kokkos::push_finalize_hook([] { delete snapshot; });
  }
  return *snapshot;
}

template <class Dst, class Src>
void deep_copy(const Dst& dst, const Src& src) {
  if constexpr (Kokkos::is_view_v<Src>) {
    if constexpr (!Kokkos::SpaceAccessibility<Kokkos::HostSpace,
                                              typename Src::memory_space>::accessible) {
      const Kokkos::DefaultExecutionSpace computing;
      const auto main = runnel::kokkos::as_stream(computing);
      auto& snapshot = snapshot_like(src);
      main.stream().wait_stream(output());  // the last image has left the snapshot
      runnel::kokkos::copy_async(main.stream(), snapshot, src);
      output().wait_stream(main.stream());
      runnel::kokkos::copy_async(output(), dst, snapshot);
      return;
    }
  }
  Kokkos::deep_copy(dst, src);
}

}  // namespace programs
#endif

template <class Real>
class OutputWriter {
 public:
  OutputWriter() = default;
  OutputWriter(const OutputWriter&) = delete;
  OutputWriter& operator=(const OutputWriter&) = delete;
  ~OutputWriter() {
#ifdef THROUGH_RUNNEL
    programs::output().synchronize();
#endif
    Kokkos::fence();
    std::printf("loop %.1f ms\n",
                std::chrono::duration<double, std::milli>(Clock::now() - start_).count());
    if (file_ != nullptr) std::fclose(file_);
  }
  void prepare(const std::filesystem::path& path, std::size_t, std::size_t rows,
               std::size_t columns) {
    file_ = std::fopen(path.c_str(), "wb");
    if (file_ == nullptr) throw std::runtime_error("the file cannot be written");
    std::setvbuf(file_, nullptr, _IONBF, 0);
    size_ = rows * columns;
  }
  void write(const Real* field) {
#ifdef THROUGH_RUNNEL
    programs::output().launch_host_func([this, field] { put(field); },
                                        {.writes_host_memory = false});
#else
    put(field);
#endif
  }

 private:
  using Clock = std::chrono::steady_clock;
  void put(const Real* field) {
    if (std::fwrite(field, sizeof(Real), size_, file_) != size_)
      throw std::runtime_error("the file cannot be written");
  }

  std::FILE* file_ = nullptr;
  std::size_t size_ = 0;
  Clock::time_point start_ = Clock::now();
};

#ifdef THROUGH_RUNNEL
namespace Kokkos {
template <class Dst, class Src>
void deep_copy_through_runnel(const Dst& dst, const Src& src) {
  programs::deep_copy(dst, src);
}
}  // namespace Kokkos
#define deep_copy deep_copy_through_runnel
#endif
