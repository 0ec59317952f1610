// SPDX-License-Identifier: Apache-2.0
#include "communicator.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "inspect.hpp"

namespace standin::ccl {

namespace {

constexpr int max_ranks = 8;
constexpr size_t pipe_bytes = size_t{1} << 18U;
constexpr size_t chunk_bytes = size_t{1} << 17U;  // of a reduction

/// From one rank to another one.
struct Pipe {
  std::atomic<uint64_t> written;
  std::atomic<uint64_t> read;
  byte data[pipe_bytes];
};

/// Goes before the bytes of each message, so that the other side sees what this one does.
struct Header {
  Kind kind;
  ncclDataType_t type;
  ncclRedOp_t how;
  int root;
  uint64_t count;
  uint64_t number;
  uint64_t bytes;
  bool operator==(const Header&) const = default;
};

size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

std::string text_of(const Header& header) {
  constexpr const char* names[] = {"all-reduce", "reduce",     "reduce-scatter",
                                   "broadcast",  "all-gather", "message"};
  return "group " + std::to_string(header.number) + ": " + names[static_cast<int>(header.kind)] +
         " of " + std::to_string(header.count) + " elements of type " +
         std::to_string(header.type) + ", reduction " + std::to_string(header.how) + ", root " +
         std::to_string(header.root) + ", " + std::to_string(header.bytes) + " bytes";
}

[[noreturn]] void disagree(int rank, const Header& own, int other, const Header& found) {
  std::fprintf(stderr, "stand-in: rank %d (%s) and rank %d (%s) do not agree\n", rank,
               text_of(own).c_str(), other, text_of(found).c_str());
  std::abort();
}

template <class T>
void reduce_elements(byte* into, const byte* from, size_t count, ncclRedOp_t how) {
  auto* const a = reinterpret_cast<T*>(into);
  const auto* const b = reinterpret_cast<const T*>(from);
  for (size_t i : range(count))
    a[i] = how == ncclSum    ? static_cast<T>(a[i] + b[i])
           : how == ncclProd ? static_cast<T>(a[i] * b[i])
           : how == ncclMin  ? std::min(a[i], b[i])
                             : std::max(a[i], b[i]);
}

void reduce_into(byte* into, const byte* from, size_t count, ncclDataType_t type, ncclRedOp_t how) {
  switch (type) {
    case ncclInt8:
      return reduce_elements<std::int8_t>(into, from, count, how);
    case ncclUint8:
      return reduce_elements<std::uint8_t>(into, from, count, how);
    case ncclInt32:
      return reduce_elements<std::int32_t>(into, from, count, how);
    case ncclUint32:
      return reduce_elements<std::uint32_t>(into, from, count, how);
    case ncclInt64:
      return reduce_elements<std::int64_t>(into, from, count, how);
    case ncclUint64:
      return reduce_elements<uint64_t>(into, from, count, how);
    case ncclFloat32:
      return reduce_elements<float>(into, from, count, how);
    case ncclFloat64:
      return reduce_elements<double>(into, from, count, how);
    default:
      std::fprintf(stderr, "stand-in: no reduction of type %d\n", static_cast<int>(type));
      std::abort();
  }
}

void pause(unsigned round) {
  if (round < 20)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds{50});
}

}  // namespace

struct Page {
  std::atomic_int arrived;
  std::atomic_int connected;
  std::atomic_int finished;
  Pipe pipes[max_ranks][max_ranks];  // from, to
};

/// A header and some bytes that go to a rank, or come from it.
struct Communicator::Part {
  bool sends;
  int peer;
  Header header;
  byte* memory;  // is not written by a part that sends
  size_t done = 0;
  Header found{};

  bool is_done() const { return done == sizeof header + header.bytes; }
  /// The next bytes, of which at most `most` can go.
  byte* next(size_t& most) {
    auto* const head = reinterpret_cast<byte*>(sends ? &header : &found);
    const size_t end = done < sizeof header ? sizeof header : sizeof header + header.bytes;
    most = std::min(most, end - done);
    return done < sizeof header ? head + done : memory + (done - sizeof header);
  }
  /// Returns whether any byte went.
  bool go_on(Pipe& pipe, int rank) {
    const uint64_t written = pipe.written, read = pipe.read;
    const uint64_t at = sends ? written : read;
    size_t count = sends ? pipe_bytes - (written - read) : written - read;
    count = std::min<size_t>(count, pipe_bytes - at % pipe_bytes);
    if (count == 0) return false;
    byte* const bytes = next(count);
    if (sends) {
      standin_move(pipe.data + at % pipe_bytes, bytes, count);
      pipe.written = at + count;
    } else {
      standin_move(bytes, pipe.data + at % pipe_bytes, count);
      pipe.read = at + count;
    }
    done += count;
    if (!sends && done == sizeof header && found != header) disagree(rank, header, peer, found);
    return true;
  }
};

SharedFile Communicator::make_place() { return make_file(sizeof(Page)); }

std::shared_ptr<Communicator> Communicator::join(const SharedFile& place, int rank, int size) {
  if (size > max_ranks) return nullptr;
  const int file = open_file(place);
  if (file < 0) return nullptr;
  auto* const page = static_cast<Page*>(map_file(file, sizeof(Page)));
  if (page == nullptr) return nullptr;
  // The kernel drops the lock when the process ends, however it ends.
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_start = rank;
  lock.l_len = 1;
  fcntl(file, F_OFD_SETLK, &lock);
  ++page->arrived;
  return std::shared_ptr<Communicator>{new Communicator{file, page, rank, size}};
}

Communicator::~Communicator() {
  munmap(page_, sizeof(Page));
  close(file_);
}

bool Communicator::is_gone(int rank) const {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_start = rank;
  lock.l_len = 1;
  return rank != rank_ && fcntl(file_, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

void Communicator::wait_for_all() const {
  for (unsigned round = 0; page_->arrived < size_; ++round) pause(round);
}

void Communicator::begin_to_connect() {
  if (!std::exchange(connects_, true)) ++page_->connected;
}

void Communicator::connect() const {
  for (unsigned round = 0; page_->connected < size_ && !aborted_; ++round) pause(round);
}

void Communicator::wait_for_abort() const {
  for (unsigned round = 0; !aborted_; ++round) pause(round);
}

void Communicator::finish(bool of_all) {
  const std::lock_guard lock{running_};
  finished_ = true;
  if (!of_all) return;
  ++page_->finished;
  for (unsigned round = 0; page_->finished < size_; ++round) pause(round);
}

/// Parts of one pipe go one after the other, all others at the same time.
void Communicator::move(std::vector<Part>& parts) {
  for (unsigned round = 0; !aborted_; ++round) {
    bool is_over = true, any = false;
    bool taken[2][max_ranks] = {};
    for (Part& part : parts) {
      if (part.is_done() || std::exchange(taken[part.sends][part.peer], true)) continue;
      is_over = false;
      any = part.go_on(part.sends ? page_->pipes[rank_][part.peer] : page_->pipes[part.peer][rank_],
                       rank_) ||
            any;
    }
    if (is_over) return;
    if (any) round = 0;
    if (round > 400)  // 20 ms
      for (const Part& part : parts)
        if (!part.is_done() && is_gone(part.peer)) error_ = ncclRemoteError;
    pause(round);
  }
}

/// All ranks have to make the same call.
void Communicator::compare_with_all(const Call& call, uint64_t number) {
  const bool has_root = call.kind == Kind::reduce || call.kind == Kind::broadcast;
  const Header header{call.kind,  call.type, call.how, has_root ? call.root : 0,
                      call.count, number,    0};
  std::vector<Part> parts;
  for (int peer : range(size_)) {
    if (peer == rank_) continue;
    parts.push_back({true, peer, header, nullptr});
    parts.push_back({false, peer, header, nullptr});
  }
  move(parts);
}

void Communicator::reduce(const Call& call, uint64_t number) {
  const size_t unit = size_of(call.type), width = chunk_bytes / unit;
  const bool scatters = call.kind == Kind::reduce_scatter;
  const bool receives = call.kind != Kind::reduce || call.root == rank_;
  std::vector<byte> others(static_cast<size_t>(size_) * chunk_bytes);
  const auto in_of = [&](int rank, size_t first) {
    return const_cast<byte*>(call.in) +
           (first + (scatters ? static_cast<size_t>(rank) * call.count : 0)) * unit;
  };
  for (size_t first = 0; first < call.count && !aborted_; first += width) {
    const size_t count = std::min(width, call.count - first);
    const Header header{call.kind, call.type, call.how, 0, count, number, count * unit};
    std::vector<Part> parts;
    for (int peer : range(size_)) {
      byte* const place = others.data() + static_cast<size_t>(peer) * chunk_bytes;
      if (peer == rank_) standin_move(place, in_of(rank_, first), count * unit);
      if (peer != rank_ && (call.kind != Kind::reduce || call.root == peer))
        parts.push_back({true, peer, header, in_of(peer, first)});
      if (peer != rank_ && receives) parts.push_back({false, peer, header, place});
    }
    move(parts);
    if (!receives || aborted_) continue;
    for (int peer = 1; peer < size_; ++peer)
      reduce_into(others.data(), others.data() + static_cast<size_t>(peer) * chunk_bytes, count,
                  call.type, call.how);
    standin_move(call.out + first * unit, others.data(), count * unit);
  }
}

void Communicator::run_collective(const Call& call, uint64_t number) {
  compare_with_all(call, number);
  if (call.kind != Kind::broadcast && call.kind != Kind::all_gather) return reduce(call, number);
  const size_t bytes = call.count * size_of(call.type);
  const Header header{call.kind, call.type, call.how, 0, call.count, number, bytes};
  const bool gathers = call.kind == Kind::all_gather;
  std::vector<Part> parts;
  for (int peer : range(size_)) {
    byte* const place = gathers ? call.out + static_cast<size_t>(peer) * bytes : call.out;
    if (peer == rank_) {
      if ((gathers || call.root == rank_) && place != call.in && !aborted_)
        standin_move(place, call.in, bytes);
      continue;
    }
    if (gathers || call.root == rank_)
      parts.push_back({true, peer, header, const_cast<byte*>(call.in)});
    if (gathers || call.root == peer) parts.push_back({false, peer, header, place});
  }
  move(parts);
}

void Communicator::run(const std::vector<Call>& calls, uint64_t number) {
  const std::lock_guard lock{running_};
  if (aborted_) return;
  if (finished_) {
    std::fprintf(stderr, "stand-in: an operation runs after its communicator was destroyed\n");
    std::abort();
  }
  std::vector<Part> messages;
  for (const Call& call : calls) {
    if (call.kind != Kind::message) {
      run_collective(call, number);
      continue;
    }
    const size_t bytes = call.count * size_of(call.type);
    const Header header{call.kind, call.type, ncclSum, 0, call.count, 0, bytes};
    messages.push_back({call.in != nullptr, call.root, header,
                        call.in != nullptr ? const_cast<byte*>(call.in) : call.out});
  }
  move(messages);
}

}  // namespace standin::ccl
