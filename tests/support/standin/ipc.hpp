// SPDX-License-Identifier: Apache-2.0
/// Memory of several processes: what is beneath the handles for other processes.
#pragma once

#include <atomic>
#include <memory>

#include "shared_file.hpp"

namespace standin {

/// The records of an event of several processes.
class SharedRecords {
 public:
  static std::shared_ptr<SharedRecords> make();
  /// Null if the event is gone.
  static std::shared_ptr<SharedRecords> open(const SharedFile& file);
  SharedRecords(const SharedRecords&) = delete;
  SharedRecords& operator=(const SharedRecords&) = delete;
  ~SharedRecords();

  const SharedFile& file() const { return file_; }
  std::uint64_t begin() const { return ++page_->recorded; }
  void end(std::uint64_t number) const { page_->done[number % places] = number; }
  std::uint64_t last() const { return page_->recorded; }
  bool is_done(std::uint64_t number) const { return page_->done[number % places] >= number; }
  void wait(std::uint64_t number) const;

 private:
  static constexpr std::size_t places = 1000;
  struct Page {
    std::atomic<std::uint64_t> recorded;
    std::atomic<std::uint64_t> done[places];
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  SharedRecords(const SharedFile& file, void* page)
      : file_{file}, page_{static_cast<Page*>(page)} {}

  SharedFile file_;
  Page* page_;
};

}  // namespace standin
