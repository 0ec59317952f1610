// SPDX-License-Identifier: Apache-2.0
/// The scenarios of <runnel/communicator.hpp>, built where the component comm is. A call that fails
/// may break its communicator: then the communicator says so, and a new one takes its place before
/// the call is repeated.
#include "communicators.hpp"

#include "gate.hpp"

#include <runnel/communicator.hpp>
#ifdef SWEEP_MPI
#include <runnel/mpi.hpp>
#endif

#include <exception>
#include <vector>

namespace sweep {
namespace {

using namespace runnel;
using namespace std::chrono_literals;

constexpr size_t few = 1000;
// two pieces of what goes through pinned memory
constexpr size_t many = (size_t{5} << 20) / sizeof(int);

bool is_broken(const Communicator& communicator) {
  try {
    communicator.check();
    return false;
  } catch (const Error&) {
    return true;
  }
}

/// False if the question fails.
template <class F>
bool ask(F f) {
  try {
    return f();
  } catch (const Error&) {
    return false;
  }
}

/// Two streams of a device, memory of each, and a communicator.
struct Member {
  std::optional<Stream> a, b;
  std::optional<DeviceBuffer<int>> x, y;
  std::optional<PinnedBuffer<int>> result;
  std::optional<Communicator> all;

  void start(Checker& c, Device device, size_t count) {
    c.make("Stream", a, device);
    c.make("Stream", b, device);
    c.make("DeviceBuffer", x, count, *a);
    c.make("DeviceBuffer", y, count, *b);
    c.make("PinnedBuffer", result, 64U);
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
  /// Whether the first stream says so. @throws any other error
  bool tells(errc code) const {
    try {
      a->synchronize();
      return false;
    } catch (const Error& error) {
      if (error.code() != code) throw;
      return true;
    }
  }
  void has(Checker& c, int value) {
    const bool had_faulted = c.faulted();
    const int thrown = c.thrown();
    ATTEMPT(copy(*a, *result, x->span().subspan(x->size() - 64, 64)));
    c.synchronize(*a);
    if (c.thrown() != thrown) forget_errors();
    // an operation may have failed, and so have no result
    if (c.thrown() != thrown || (c.faulted() && !had_faulted)) return;
    c.require(std::all_of(result->begin(), result->end(), [&](int each) { return each == value; }),
              "an operation gave wrong numbers");
    c.synchronize(*b);
  }
};

using Make = std::function<Communicator(CommunicatorOptions)>;

class Alone : public Member {
 public:
  Alone(Checker& checker, const Make& make, CommunicatorOptions options)
      : c_{checker}, make_{make}, options_{options} {}
  void start(size_t count = few) {
    c_.communicates(1);
    c_.kept_streams = 4;         // on which memory and graphs are freed that may be in use
    c_.enqueues_several = true;  // a gate's function, and then the operation
    c_.attempt("current_stream", [] { return current_stream(); });
    Member::start(c_, Device{0}, count);
    attempt("Communicator", [] {});
  }
  /// As Checker::attempt(), with a communicator that is whole.
  template <class F>
  void attempt(const char* what, F f) {
    hear_of_breakage();
    bool is_first = true;
    c_.attempt(what, [&] {
      if (!std::exchange(is_first, false)) forget_errors();
      if (!all || is_broken(*all)) {
        if (all) c_.is_told = true;
        all.reset();
        all.emplace(make_(options_));
      }
      f();
      if (exhaustion::is_planned())  // an operation may also fail later, on another thread
        for (const Stream* each : {&*a, &*b}) each->synchronize();
    });
  }

 private:
  /// Each stream that used a communicator says why it broke. Outside of attempts, because nothing
  /// of this is one's result.
  void hear_of_breakage() const {
    const exhaustion::Pause pause;
    if (all && is_broken(*all)) forget_errors();
  }

  Checker& c_;
  const Make& make_;
  CommunicatorOptions options_;
};

void operations(Checker& c, const Make& make, CommunicatorOptions options, size_t count) {
  Alone one{c, make, options};
  one.start(count);
  std::optional<Communicator> part;
  one.attempt("all_reduce", [&] {
    fill(*one.a, *one.x, 1);
    one.all->all_reduce(*one.a, *one.x);
  });
  one.attempt("broadcast in another stream", [&] { one.all->broadcast(*one.b, *one.y); });
  one.attempt("split", [&] { part.emplace(one.all->split(0)); });
  one.attempt("a part that ends with an operation under way", [&] {
    if (!part || is_broken(*part)) part.emplace(one.all->split(0));
    Gate gate;
    fill(*one.a, *one.x, 1);
    gate.close_on(*one.a);
    part->all_gather(*one.a, *one.x, *one.x);
    part.reset();
    one.all->barrier(*one.b);
  });
  // The next operation comes after it, whether the call worked or not.
  one.attempt("a stream that ends with an operation under way", [&] {
    const Stream brief;
    one.all->barrier(brief);
  });
  one.attempt("barrier", [&] { one.all->barrier(*one.b); });
  one.has(c, 1);
  one.attempt("check", [&] { one.all->check(); });
  bool is_told = false;
  c.aborts = true;
  one.attempt("abort", [&] {
    Gate gate;
    gate.close_on(*one.a);
    one.all->all_reduce(*one.a, *one.x);
    one.all->abort();
    gate.open();
    if (one.tells(errc::communicator_broken)) is_told = true;
    one.forget_errors();
  });
  c.require(is_told || c.faulted(), "the stream does not say that the communicator was aborted");
  one.attempt("all_reduce", [&] {
    fill(*one.a, *one.x, 2);
    one.all->all_reduce(*one.a, *one.x);
  });
  one.has(c, 2);
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
  one.start();
  std::optional<Graph> graph;
  const auto work = [&] {
    fill(*one.a, *one.x, 5);
    one.all->all_reduce(*one.a, *one.x);
  };
  one.attempt("capture", [&] { graph = capture(*one.a, work); });
  ATTEMPT(graph->launch(*one.a));
  // The library does not watch operations of a graph, so that the program has to look for their
  // errors.
  static_cast<void>(
      eventually([&] { return is_broken(*one.all) || ask([&] { return one.a->query(); }); }));
  one.has(c, 5);
}

namespace {

/// Two devices of the process, with a communicator each.
class Pair {
 public:
  Pair(Checker& checker, CommunicatorOptions options) : c_{checker}, options_{options} {}
  void start() {
    c_.communicates(2);
    c_.kept_streams = 4;
    c_.attempt("current_stream", [] { return current_stream(); });
    for (size_t i : range(2UL)) members[i].start(c_, devices_[i], few);
    attempt("of_devices", [] {});
  }
  /// As Checker::attempt(), with communicators that are whole.
  template <class F>
  void attempt(const char* what, F f) {
    bool is_first = true;
    c_.attempt(what, [&] {
      if (!std::exchange(is_first, false)) forget_errors();
      if (is_any_broken()) {
        if (members.front().all) c_.is_told = true;
        for (Member& each : members)
          if (each.all) each.all->abort();
        for (Member& each : members) each.all.reset();
        auto made = Communicator::of_devices(devices_, options_);
        for (size_t i : range(2UL)) members[i].all.emplace(std::move(made[i]));
      }
      f();
    });
  }
  /// Adds up over the ranks, into `x` of each.
  void sum(const char* what) {
    attempt(what, [&] {
      for (Member& each : members) fill(*each.a, *each.x, each.all->rank() + 1);
      Communicator::together([&] {
        for (Member& each : members) {
          each.all->all_reduce(*each.a, *each.x);
          each.all->broadcast(*each.b, *each.y);
        }
      });
    });
    const int thrown = c_.thrown();
    for (Member& each : members) {
      // Only a watched operation ends by itself after an error.
      if (options_.timeout.count() == 0)
        static_cast<void>(
            eventually([&] { return is_any_broken() || ask([&] { return each.a->query(); }); }));
      each.has(c_, 3);
      if (c_.thrown() == thrown) continue;
      forget_errors();
      return;
    }
  }
  /// Or there is none.
  bool is_any_broken() const {
    return std::any_of(members.begin(), members.end(),
                       [](const Member& each) { return !each.all || is_broken(*each.all); });
  }
  void forget_errors() const {
    for (const Member& each : members) each.forget_errors();
  }

  std::vector<Member> members{2};

 private:
  Checker& c_;
  const std::vector<Device> devices_{Device{0}, Device{1}};
  CommunicatorOptions options_;
};

}  // namespace

void ccl_devices(Checker& c) {
  Pair two{c, {.concurrent = true}};
  two.start();
  two.sum("together");
}

void ccl_verbs(Checker& c) {
  Pair two{c, {.timeout = 60s}};
  two.start();
  two.attempt("every verb", [&] {
    Communicator::together([&] {
      for (Member& each : two.members) {
        const auto half = [](DeviceBuffer<int>& all) {
          return all.span().subspan(0, all.size() / 2);
        };
        const Communicator& own = *each.all;
        const int other = 1 - own.rank();
        own.reduce(*each.a, *each.x, *each.y);
        own.reduce_scatter(*each.a, *each.x, half(*each.y));
        own.all_gather(*each.b, half(*each.x), *each.y);
        own.all_to_all(*each.b, *each.x, *each.y);
        own.barrier(*each.a);
        own.group(*each.a, [&](Communicator::Group& group) {
          group.send(*each.x, other);
          group.receive(*each.y, other);
        });
        if (own.rank() == 0)
          own.send(*each.a, *each.x, other);
        else
          own.receive(*each.a, *each.y, other);
      }
    });
  });
  two.sum("together");
}

void ccl_parts(Checker& c) {
  Pair two{c, {.timeout = 2s}};
  two.start();
  std::optional<Communicator> parts[2];
  // Each rank waits for the other one.
  const auto split = [&] {
    std::exception_ptr failures[2];
    const auto split_one = [&](size_t i) {
      try {
        // the vendor's library joins ranks without a timeout
        parts[i].emplace(two.members[i].all->split(static_cast<int>(i)));
      } catch (...) {
        failures[i] = std::current_exception();
      }
    };
    std::thread second{[&] { split_one(1); }};
    split_one(0);
    second.join();
    for (const std::exception_ptr& each : failures) {
      try {
        if (each) std::rethrow_exception(each);
      } catch (const Error& error) {
        if (error.code() != errc::timed_out) throw;  // what the other rank meets
      }
    }
    for (const std::exception_ptr& each : failures)
      if (each) std::rethrow_exception(each);
  };
  const auto forget_parts = [&] {
    for (auto& each : parts) each.reset();
  };
  two.attempt("parts that end with an operation under way", [&] {
    try {
      split();
      Gate gates[2];
      for (size_t i : range(2UL)) gates[i].close_on(*two.members[i].a);
      Communicator::together([&] {
        for (size_t i : range(2UL)) parts[i]->all_reduce(*two.members[i].a, *two.members[i].x);
      });
      forget_parts();
    } catch (const Error&) {
      forget_parts();
      throw;
    }
  });
  two.sum("together");
}

void ccl_timeout(Checker& c) {
  Pair two{c, {.timeout = 1s}};
  two.start();
  bool is_told = false;
  c.aborts = true;
  two.attempt("a timeout", [&] {
    two.members[0].all->all_reduce(*two.members[0].a, *two.members[0].x);
    if (two.members[0].tells(errc::timed_out)) is_told = true;
    two.forget_errors();
  });
  c.require(is_told || c.faulted(), "the stream does not say that the time is over");
  two.sum("together");
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
  one.start();
  bool is_told = false;
  one.attempt("all_reduce", [&] {
    one.all->all_reduce(*one.a, *one.x);
    try {
      one.a->synchronize();
    } catch (const Error& error) {
      if (error.code() != errc::peer_lost) throw;
      is_told = true;
      c.is_told = true;
    }
  });
  c.require(is_told || c.faulted(), "the stream does not say what an operation has met");
}

}  // namespace sweep
