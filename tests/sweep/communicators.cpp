// SPDX-License-Identifier: Apache-2.0
/// The scenarios of <runnel/communicator.hpp>, built where the component comm is. A call that fails may break its communicator: then the
/// communicator says so, and a new one takes its place before the call is repeated.
#include "communicators.hpp"

#include "gate.hpp"

#include <runnel/communicator.hpp>
#ifdef SWEEP_MPI
#include <runnel/mpi.hpp>
#endif

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace sweep {
namespace {

using namespace runnel;
using namespace std::chrono_literals;

constexpr std::size_t few = 1000;
constexpr std::size_t many = (std::size_t{5} << 20) / sizeof(int);  // two pieces of what goes through pinned memory

[[nodiscard]] bool is_broken(const Communicator& communicator) {
  try {
    communicator.check();
    return false;
  } catch (const Error&) {
    return true;
  }
}

/// Two streams of a device, memory of each, and a communicator.
struct Member {
  std::optional<Stream> a, b;
  std::optional<DeviceBuffer<int>> x, y;
  std::optional<PinnedBuffer<int>> result;
  std::optional<Communicator> all;

  bool start(Checker& c, Device device, std::size_t count) {
    return c.attempt("Stream", [&] { a.emplace(device); }) && c.attempt("Stream", [&] { b.emplace(device); }) &&
           c.attempt("DeviceBuffer", [&] { x.emplace(count, *a); }) && c.attempt("DeviceBuffer", [&] { y.emplace(count, *b); }) &&
           c.attempt("PinnedBuffer", [&] { result.emplace(64U); });
  }
  /// After a call has failed: the streams may also say why the communicator broke.
  void forget_errors() const {
    for (const Stream* each : {&*a, &*b}) {
      try {
        each->synchronize();
      } catch (const std::exception&) {
      }
    }
  }
  [[nodiscard]] bool has(Checker& c, int value) {
    const bool had_faulted = c.faulted();
    if (!c.attempt("copy", [&] { copy(*a, *result, x->span().subspan(x->size() - 64, 64)); }) ||
        !c.attempt("synchronize", [&] { a->synchronize(); }))
      return false;
    if (c.faulted() && !had_faulted) return c.sound();  // an operation may have failed, and so have no result
    c.require(std::all_of(result->begin(), result->end(), [&](int each) { return each == value; }), "an operation gave wrong numbers");
    return c.attempt("synchronize", [&] { b->synchronize(); });
  }
};

using Make = std::function<Communicator(CommunicatorOptions)>;

class Alone : public Member {
 public:
  Alone(Checker& checker, const Make& make, CommunicatorOptions options) : c_{checker}, make_{make}, options_{options} {}
  bool start(std::size_t count = few) {
    c_.communicates(1);
    c_.keeps_streams(4);    // on which memory and graphs are freed that may be in use
    c_.enqueues_several();  // a gate's function, and then the operation
    return c_.attempt("current_stream", [] { static_cast<void>(current_stream()); }) && Member::start(c_, Device{0}, count) &&
           attempt("Communicator", [] {});
  }
  /// As Checker::attempt(), with a communicator that is whole.
  template <class F>
  bool attempt(const char* what, F f) {
    bool is_first = true;
    return c_.attempt(what, [&] {
      if (!std::exchange(is_first, false)) forget_errors();
      if (!all || is_broken(*all)) {
        all.reset();
        all.emplace(make_(options_));
      }
      f();
      if (exhaustion::is_planned())  // an operation may also fail later, on another thread
        for (const Stream* each : {&*a, &*b}) each->synchronize();
    });
  }

 private:
  Checker& c_;
  const Make& make_;
  CommunicatorOptions options_;
};

void operations(Checker& c, const Make& make, CommunicatorOptions options, std::size_t count) {
  Alone one{c, make, options};
  if (!one.start(count)) return;
  std::optional<Communicator> part;
  if (!one.attempt("all_reduce", [&] {
        fill(*one.a, *one.x, 1);
        one.all->all_reduce(*one.a, *one.x);
      }))
    return;
  if (!one.attempt("broadcast in another stream", [&] { one.all->broadcast(*one.b, *one.y); })) return;
  if (!one.attempt("split", [&] { part.emplace(one.all->split(0)); })) return;
  if (!one.attempt("a part that ends with an operation under way", [&] {
        if (!part || is_broken(*part)) part.emplace(one.all->split(0));
        Gate gate;
        fill(*one.a, *one.x, 1);
        gate.close_on(*one.a);
        part->all_gather(*one.a, *one.x, *one.x);
        part.reset();
        one.all->barrier(*one.b);
      }))
    return;
  // The next operation comes after it, whether the call worked or not.
  if (!one.attempt("a stream that ends with an operation under way", [&] {
        const Stream brief;
        one.all->barrier(brief);
      }))
    return;
  if (!one.attempt("barrier", [&] { one.all->barrier(*one.b); })) return;
  if (!one.has(c, 1)) return;
  if (!one.attempt("check", [&] { one.all->check(); })) return;
  bool is_told = false;
  if (!one.attempt("abort", [&] {
        Gate gate;
        gate.close_on(*one.a);
        one.all->all_reduce(*one.a, *one.x);
        one.all->abort();
        gate.open();
        try {
          one.a->synchronize();
        } catch (const Error& error) {
          if (error.code() != errc::communicator_broken) throw;
          is_told = true;
        }
        one.forget_errors();
      }))
    return;
  c.require(is_told || c.faulted(), "the stream does not say that the communicator was aborted");
  if (!one.attempt("all_reduce", [&] {
        fill(*one.a, *one.x, 2);
        one.all->all_reduce(*one.a, *one.x);
      }))
    return;
  static_cast<void>(one.has(c, 2));
}

#ifdef SWEEP_MPI
/// MPI, as long as it lives.
class Mpi {
 public:
  Mpi() {
    int level = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
  }
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;
  ~Mpi() { MPI_Finalize(); }
};

Communicator over_mpi(CommunicatorOptions options) {
  options.engine = Engine::mpi;
  return Communicator{mpi::world(), options};
}
#endif

Communicator over_ccl(CommunicatorOptions options) {
  options.engine = Engine::ccl;
  return Communicator{World{}, options};
}

}  // namespace

#ifdef SWEEP_MPI
void mpi_operations(Checker& c) {
  const Mpi mpi;
  operations(c, over_mpi, {.timeout = 60s, .checked = true, .name = "mpi"}, many);
}
#endif

void ccl_operations(Checker& c) { operations(c, over_ccl, {.timeout = 60s, .name = "ccl"}, few); }

void ccl_captured(Checker& c) {
  const Make make{over_ccl};
  Alone one{c, make, {}};
  if (!one.start()) return;
  std::optional<Graph> graph;
  const auto work = [&] {
    fill(*one.a, *one.x, 5);
    one.all->all_reduce(*one.a, *one.x);
  };
  if (!one.attempt("capture", [&] { graph = capture(*one.a, work); })) return;
  if (!c.attempt("launch", [&] { graph->launch(*one.a); })) return;
  static_cast<void>(one.has(c, 5));
}

void ccl_devices(Checker& c) {
  c.communicates(2);
  c.keeps_streams(4);
  if (!c.attempt("current_stream", [] { static_cast<void>(current_stream()); })) return;
  const std::vector<Device> devices{Device{0}, Device{1}};
  std::vector<Member> members(2);
  for (std::size_t i = 0; i < 2; ++i)
    if (!members[i].start(c, devices[i], few)) return;
  const auto attempt = [&](const char* what, const std::function<void()>& f) {
    bool is_first = true;
    return c.attempt(what, [&] {
      const bool is_again = !std::exchange(is_first, false);
      const bool is_whole = std::all_of(members.begin(), members.end(), [](Member& each) { return each.all && !is_broken(*each.all); });
      if (!is_whole) {
        for (Member& each : members)
          if (each.all) each.all->abort();
        if (is_again)
          for (Member& each : members) each.forget_errors();
        for (Member& each : members) each.all.reset();
        auto made = Communicator::of_devices(devices, {.concurrent = true});
        for (std::size_t i = 0; i < 2; ++i) members[i].all.emplace(std::move(made[i]));
      }
      f();
    });
  };
  if (!attempt("of_devices", [] {})) return;
  if (!attempt("together", [&] {
        for (Member& each : members) fill(*each.a, *each.x, each.all->rank() + 1);
        Communicator::together([&] {
          for (Member& each : members) {
            each.all->all_reduce(*each.a, *each.x);
            each.all->broadcast(*each.b, *each.y);
          }
        });
      }))
    return;
  for (Member& each : members)
    if (!each.has(c, 3)) return;
}

void ccl_error(Checker& c) {
  // After a fault it may be the operation of a new communicator's own that meets the error.
  const Make make = [](CommunicatorOptions options) {
    try {
      return over_ccl(options);
    } catch (const Error& error) {
      if (error.code() != errc::peer_lost) throw;
      return over_ccl(options);
    }
  };
  Alone one{c, make, {.timeout = 60s}};
  if (!one.start()) return;
  bool is_told = false;
  if (!one.attempt("all_reduce", [&] {
        one.all->all_reduce(*one.a, *one.x);
        try {
          one.a->synchronize();
        } catch (const Error& error) {
          if (error.code() != errc::peer_lost) throw;
          is_told = true;
        }
      }))
    return;
  c.require(is_told || c.faulted(), "the stream does not say what an operation has met");
}

}  // namespace sweep
