// SPDX-License-Identifier: Apache-2.0
/// A communicator of the stand-in: ranks that move bytes through memory which their processes
/// share.
#pragma once

#ifdef STANDIN_CUDA
#include <nccl.h>
#else
#include <rccl/rccl.h>
#endif

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../../loops.hpp"
#include "shared_file.hpp"

namespace standin::ccl {

using std::byte, std::size_t, std::uint64_t;
using test_support::range;
enum class Kind : int { all_reduce, reduce, reduce_scatter, broadcast, all_gather, message };

/// One call of the vendor's interface. Of `message`, `in` or `out` is null.
struct Call {
  Kind kind;
  const byte* in;
  byte* out;
  size_t count;  // as the call has it
  ncclDataType_t type;
  ncclRedOp_t how;
  int root;  // or the peer of a message
};

/// What all ranks see.
struct Page;

class Communicator {
 public:
  /// Where the ranks of a communicator meet. number is -1 if there is no memory.
  static SharedFile make_place();
  /// Does not wait for the others. Null if the place is gone.
  static std::shared_ptr<Communicator> join(const SharedFile& place, int rank, int size);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  void wait_for_all() const;
  /// @{ The ranks connect in their first operation of all ranks: the caller waits for the others
  /// then.
  void begin_to_connect();
  void connect() const;
  /// @} Runs calls of a group, in which messages do not wait for each other. Holds the calling
  /// thread until all is done, or the communicator is aborted. `number` is that of the group: all
  /// ranks have to run the same one.
  void run(const std::vector<Call>& calls, uint64_t number);
  /// Holds the calling thread until then.
  void wait_for_abort() const;
  /// Lets every operation end without its result.
  void abort() { aborted_ = true; }
  void fail(ncclResult_t error) { error_ = error; }
  ncclResult_t error() const { return error_; }
  /// No operation may begin any more. Waits until none runs, and, if `of_all`, until all ranks have
  /// come so far.
  void finish(bool of_all);

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// How many groups with an operation of all ranks were enqueued.
  std::atomic<uint64_t> collectives{0};

 private:
  struct Part;
  Communicator(int file, Page* page, int rank, int size)
      : file_{file}, page_{page}, rank_{rank}, size_{size} {}
  void compare_with_all(const Call& call, uint64_t number);
  void run_collective(const Call& call, uint64_t number);
  void reduce(const Call& call, uint64_t number);
  void move(std::vector<Part>& parts);
  bool is_gone(int rank) const;

  int file_;
  Page* page_;
  int rank_, size_;
  bool connects_ = false;
  std::atomic_bool aborted_{false};
  std::atomic<ncclResult_t> error_{ncclSuccess};
  bool finished_ = false;
  std::mutex running_;  // guards `finished_`
};

}  // namespace standin::ccl
