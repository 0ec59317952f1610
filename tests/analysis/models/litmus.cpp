// SPDX-License-Identifier: Apache-2.0
/// Checks of the checker: small programs whose outcomes the C++ standard allows or forbids. Every
/// schedule is tried; the outcomes that are listed must all occur, and no other.
#include "model/sync.hpp"

#include <iterator>
#include <string_view>

namespace {

namespace sync = runnel::sync;
using Order = std::memory_order;
constexpr Order relaxed = Order::relaxed, acquire = Order::acquire, release = Order::release,
                acq_rel = Order::acq_rel, seq_cst = Order::seq_cst;

struct Shared {
  sync::Atomic<int> x{0}, y{0}, z{0};
  int plain = 0;
  int a = 0, b = 0, c = 0, d = 0;
};
constinit Shared s;  // as at the program's start in each run

/// Runs the functions in a thread each, and waits for them.
template <class... F>
void together(F... run) {
  const model::Calm calm;  // of this thread
  sync::Thread threads[] = {sync::Thread{run}...};
  for (sync::Thread& thread : threads) thread.join();
}
template <class... Digits>
void outcome(Digits... digits) {
  (model::outcome(digits), ...);
}

template <Order to, Order from>
void message_passing() {
  together([&] { s.x.store(1, relaxed), s.y.store(1, to); },
           [&] { s.a = s.y.load(from), s.b = s.x.load(relaxed); });
  outcome(s.a, s.b);
}

void message_passing_by_fences() {
  together([&] { s.x.store(1, relaxed), model::fence(release), s.y.store(1, relaxed); },
           [&] { s.a = s.y.load(relaxed), model::fence(acquire), s.b = s.x.load(relaxed); });
  outcome(s.a, s.b);
}

template <Order order>
void store_buffering() {
  together([&] { s.x.store(1, order), s.a = s.y.load(order); },
           [&] { s.y.store(1, order), s.b = s.x.load(order); });
  outcome(s.a, s.b);
}

/// `seq_cst` on the stores alone does not suffice.
void store_buffering_weak_loads() {
  together([&] { s.x.store(1, seq_cst), s.a = s.y.load(acquire); },
           [&] { s.y.store(1, seq_cst), s.b = s.x.load(seq_cst); });
  outcome(s.a, s.b);
}

template <Order order>
void store_buffering_by_fences() {
  together([&] { s.x.store(1, relaxed), model::fence(order), s.a = s.y.load(relaxed); },
           [&] { s.y.store(1, relaxed), model::fence(order), s.b = s.x.load(relaxed); });
  outcome(s.a, s.b);
}

/// One side with a fence, the other with a seq_cst exchange, which is both.
void store_buffering_by_exchange() {
  together([&] { s.x.exchange(1, seq_cst), s.a = s.y.load(seq_cst); },
           [&] { s.y.store(1, relaxed), model::fence(seq_cst), s.b = s.x.load(relaxed); });
  outcome(s.a, s.b);
}

/// 1 1 is allowed by the standard for relaxed operations, and not explored: a load returns what was
/// stored before it ran.
void load_buffering() {
  together([&] { s.a = s.x.load(relaxed), s.y.store(1, relaxed); },
           [&] { s.b = s.y.load(relaxed), s.x.store(1, relaxed); });
  outcome(s.a, s.b);
}

template <Order to, Order from>
void independent_reads() {
  together([&] { s.x.store(1, to); }, [&] { s.y.store(1, to); },
           [&] { s.a = s.x.load(from), s.b = s.y.load(from); },
           [&] { s.c = s.y.load(from), s.d = s.x.load(from); });
  // Only whether the two readers disagree about which store came first.
  outcome(s.a == 1 && s.b == 0 && s.c == 1 && s.d == 0);
}

/// Two loads of one object never go backwards, and two threads see its stores in one order.
void coherence() {
  together([&] { s.x.store(1, relaxed); }, [&] { s.x.store(2, relaxed); },
           [&] { s.a = s.x.load(relaxed), s.b = s.x.load(relaxed); },
           [&] { s.c = s.x.load(relaxed), s.d = s.x.load(relaxed); });
  outcome(s.a == 1 && s.b == 2 && s.c == 2 && s.d == 1, s.a != 0 && s.b == 0);
}

/// A later store of another thread may come first in modification order.
void two_writers_each() {
  together([&] { s.x.store(1, relaxed), s.y.store(2, relaxed); },
           [&] { s.y.store(1, relaxed), s.x.store(2, relaxed); });
  outcome(s.x.load(relaxed), s.y.load(relaxed));
}

void write_to_read_causality() {
  together([&] { s.x.store(1, relaxed); },
           [&] {
             s.a = s.x.load(relaxed);
             s.y.store(s.a, release);
           },
           [&] { s.b = s.y.load(acquire), s.c = s.x.load(relaxed); });
  outcome(s.b, s.c);
}

/// A read-modify-write of another thread continues a release sequence. A plain store does not.
template <bool modifies>
void release_sequence() {
  together([&] { s.x.store(1, relaxed), s.y.store(1, release); },
           [&] {
             if (modifies)
               s.y.fetch_add(2, relaxed);
             else if (s.y.load(relaxed) == 1)
               s.y.store(3, relaxed);
           },
           [&] { s.a = s.y.load(acquire), s.b = s.x.load(relaxed); });
  s.a == 3 ? outcome(3, s.b) : outcome(0, 0);
}

void additions_are_not_lost() {
  const auto add = [&] { s.x.fetch_add(1, relaxed); };
  together(add, add, add);
  outcome(s.x.load(relaxed));
}

void one_of_two_changes_it() {
  const auto change = [&](int& won) {
    int expected = 0;
    won = s.x.compare_exchange_strong(expected, 1, acq_rel, acquire);
  };
  together([&] { change(s.a); }, [&] { change(s.b); });
  outcome(s.a + s.b);
}

// Of plain data, of locks, and of what blocks: here the run itself fails, or it must not.

template <Order to, Order from>
void handed_over() {
  together([&] { s.plain = 1, s.x.store(1, to); },
           [&] { s.a = s.x.load(from) == 1 ? s.plain : 2; });
  outcome(s.a);
}

void under_a_mutex() {
  auto& mutex = *new sync::Mutex;
  const auto add = [&] {
    const std::lock_guard lock{mutex};
    ++s.plain;
  };
  together(add, add);
  outcome(s.plain);
}

template <bool notifies>
void condition() {
  auto& mutex = *new sync::Mutex;
  auto& changed = *new sync::ConditionVariable;
  together(
      [&] {
        std::unique_lock lock{mutex};
        changed.wait(lock, [&] { return s.plain == 1; });
      },
      [&] {
        const std::lock_guard lock{mutex};
        s.plain = 1;
        if (notifies) changed.notify_one();
      });
  outcome(s.plain);
}

void opposite_locks() {
  auto& first = *new sync::Mutex;
  auto& second = *new sync::Mutex;
  const auto both = [](sync::Mutex& a, sync::Mutex& b) {
    const std::lock_guard outer{a};
    const std::lock_guard inner{b};
  };
  together([&] { both(first, second); }, [&] { both(second, first); });
}

void freed_too_early() {
  auto* const freed = new Shared;
  together([&] { freed->x.store(1, relaxed); }, [&] { delete freed; });
}

constexpr model::Check checks[] = {
    {"mp_relaxed", message_passing<relaxed, relaxed>, "00 01 10 11"},
    {"mp_release_only", message_passing<release, relaxed>, "00 01 10 11"},
    {"mp_acquire_only", message_passing<relaxed, acquire>, "00 01 10 11"},
    {"mp_release_acquire", message_passing<release, acquire>, "00 01 11"},
    {"mp_fences", message_passing_by_fences, "00 01 11"},
    {"sb_relaxed", store_buffering<relaxed>, "00 01 10 11"},
    {"sb_seq_cst", store_buffering<seq_cst>, "01 10 11"},
    {"sb_weak_load", store_buffering_weak_loads, "00 01 10 11"},
    {"sb_fences_seq_cst", store_buffering_by_fences<seq_cst>, "01 10 11"},
    {"sb_fences_acq_rel", store_buffering_by_fences<acq_rel>, "00 01 10 11"},
    {"sb_exchange_and_fence", store_buffering_by_exchange, "01 10 11"},
    {"lb_not_explored", load_buffering, "00 01 10"},
    {"iriw_acquire", independent_reads<release, acquire>, "0 1"},
    {"iriw_seq_cst", independent_reads<seq_cst, seq_cst>, "0"},
    {"coherence", coherence, "00"},
    {"2+2w_relaxed", two_writers_each, "11 12 21 22"},
    {"wrc", write_to_read_causality, "00 01 11"},
    {"release_sequence", release_sequence<true>, "00 31"},
    {"no_release_sequence", release_sequence<false>, "00 30 31"},
    {"fetch_add", additions_are_not_lost, "3"},
    {"compare_exchange", one_of_two_changes_it, "1"},
    {"plain_handed_over", handed_over<release, acquire>, "1 2"},
    {"mutex", under_a_mutex, "2"},
    {"condition", condition<true>, "1"},
};
/// With --faulty: these must be found faulty.
constexpr model::Check faulty[] = {
    {"plain_relaxed", handed_over<relaxed, acquire>},
    {"plain_not_acquired", handed_over<release, relaxed>},
    {"condition_not_notified", condition<false>},
    {"opposite_locks", opposite_locks},
    {"freed_too_early", freed_too_early},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view{argv[1]} == "--faulty")
    return model::explore(argc - 1, argv + 1, faulty, std::size(faulty));
  return model::explore(argc, argv, checks, std::size(checks));
}
