// SPDX-License-Identifier: Apache-2.0
/// Captures that are not the library's: a test calls the vendor's functions, as torch and CuPy do.
#pragma once

#include <dlfcn.h>
#include <runnel/runnel.hpp>

#include <string>
#include <utility>

namespace test_support {

/// The vendor's function: null on the host backend, where every capture is one of the library.
inline void* vendor_function(const std::string& name) {
  void* const function = dlsym(RTLD_DEFAULT, ("cuda" + name).c_str());
  return function != nullptr ? function : dlsym(RTLD_DEFAULT, ("hip" + name).c_str());
}
template <class... Arguments>
int vendor(const std::string& name, Arguments... arguments) {
  return reinterpret_cast<int (*)(Arguments...)>(vendor_function(name))(arguments...);
}

enum class CaptureMode { global, own_thread, relaxed };

/// A stream that other code has made and now captures.
class ForeignCapture {
 public:
  static constexpr int intact = 1;

  explicit ForeignCapture(CaptureMode mode) : stream_{runnel::Stream{}.release()} {
    began = vendor("StreamBeginCapture", stream_, static_cast<int>(mode));
  }
  ForeignCapture(const ForeignCapture&) = delete;
  ForeignCapture& operator=(const ForeignCapture&) = delete;
  ~ForeignCapture() {
    end();
    if (executable_ != nullptr) vendor("GraphExecDestroy", executable_);
    static_cast<void>(runnel::Stream::from_native(stream_, runnel::Ownership::take));
  }
  runnel::native::stream stream() const noexcept { return stream_; }
  /// `intact`, or 2 if a call has broken the capture.
  int state() const {
    int status = 0;
    vendor("StreamIsCapturing", stream_, &status);
    return status;
  }
  /// Ends the capture, and destroys its graph: an executable one remains. False if a call fails.
  bool end() {
    if (std::exchange(ended_, true)) return executable_ != nullptr;
    void* graph = nullptr;
    int e = vendor("StreamEndCapture", stream_, &graph);
    if (e == 0) e = vendor("GraphInstantiateWithFlags", &executable_, graph, 0ULL);
    if (graph != nullptr) vendor("GraphDestroy", graph);
    vendor("GetLastError");
    return e == 0;
  }
  /// Launches the graph, and waits. False if a call fails.
  bool replay() const {
    return executable_ != nullptr && vendor("GraphLaunch", executable_, stream_) == 0 &&
           vendor("StreamSynchronize", stream_) == 0;
  }
  int began = 0;

 private:
  runnel::native::stream stream_;
  void* executable_ = nullptr;
  bool ended_ = false;
};

}  // namespace test_support
