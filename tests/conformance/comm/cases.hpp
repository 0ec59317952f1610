// SPDX-License-Identifier: Apache-2.0
/// What the cases of communicators share.
#pragma once

#include <cstdio>

#include "../support.hpp"
#include "engine.hpp"

namespace comm {

using namespace conformance;

/// The processes but the first one print their failures only.
class PrintFailures : public testing::EmptyTestEventListener {
 public:
  explicit PrintFailures(int rank) : rank_{rank} {}

 private:
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (rank_ == 0 || !result.failed()) return;
    std::fprintf(stderr, "process %d: %s:%d: %s\n", rank_,
                 result.file_name() == nullptr ? "" : result.file_name(), result.line_number(),
                 result.message());
  }
  int rank_;
};

inline void print_failures_only(int rank) {
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new PrintFailures{rank});
}

#define NEEDS_TWO_PROCESSES \
  if (size == 1) GTEST_SKIP() << "needs two processes"

/// A case begins with all processes at the same place.
class Communicators : public testing::Test {
 protected:
  void SetUp() override {
    if (Device::count() == 0) GTEST_SKIP() << "no device: " << Device::why_no_device();
    meet();
  }
  /// Elements of this process: `first`, `first + step`, ...
  template <class T>
  static std::vector<T> numbers(size_t count, double first, double step = 1) {
    std::vector<T> made(count);
    const auto number = [](double value) {
      if constexpr (requires { typename T::value_type; })
        return T{static_cast<typename T::value_type>(value)};
      else
        return static_cast<T>(value);
    };
    for (size_t i : range(count)) made[i] = number(first + step * static_cast<double>(i));
    return made;
  }
  template <class T>
  DeviceBuffer<T> on_device(const std::vector<T>& values) const {
    DeviceBuffer<T> made{values.size(), stream};
    copy(stream, made, values);
    stream.synchronize();  // the caller's vector may be a temporary
    return made;
  }
  template <class T>
  std::vector<T> on_host(const DeviceBuffer<T>& values) const {
    return read_back(stream, values);
  }

  const Communicator all = make();
  const int rank = all.rank(), size = all.size();
  const size_t n = static_cast<size_t>(size), r = static_cast<size_t>(rank);
  const Stream stream;
};

}  // namespace comm
