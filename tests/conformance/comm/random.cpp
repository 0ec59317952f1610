// SPDX-License-Identifier: Apache-2.0
// Random operations of several communicators on several streams, compared with what they give one
// after the other. All processes draw the same operations; each draws for itself what delays or
// changes its own streams meanwhile.

#include "cases.hpp"

namespace comm { namespace {

// not unsigned, of which MPICH 4.0's MPI_Reduce() takes the wrong minimum and maximum
using Number = std::int32_t;
using Group = Ints;  // processes, in the order of their ranks in a communicator
constexpr size_t buffer_count = 4, own_streams = 3, none = ~size_t{0};

/// A communicator, and how it divides all processes.
struct Party {
  Communicator communicator;
  std::vector<Group> groups;
};

std::vector<Party> parties(const Communicator& all) {
  Group everybody(static_cast<size_t>(all.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  std::vector<Group> halves(std::min<size_t>(2, everybody.size())), single;
  for (const int process : everybody) {
    nth(halves, process % 2).insert(nth(halves, process % 2).begin(), process);
    single.push_back({process});
  }
  std::vector<Party> made;
  made.push_back({make(), {everybody}});
  made.push_back({make({.timeout = patience, .checked = engine() == Engine::mpi}), {everybody}});
  made.push_back({all.split(all.rank() % 2, -all.rank()), halves});
  made.push_back({all.split(all.rank()), single});
  return made;
}

Number reduced(Number a, Number b, Reduce how) {
  switch (how) {
    case Reduce::product:
      return static_cast<Number>(static_cast<uint32_t>(a) * static_cast<uint32_t>(b));
    case Reduce::min:
      return std::min(a, b);
    case Reduce::max:
      return std::max(a, b);
    case Reduce::sum:
      break;
  }
  return static_cast<Number>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}

class Program {
 public:
  Program(const std::vector<Party>& all_parties, int rank, int size, unsigned seed)
      : parties_{all_parties},
        rank_{rank},
        common_{seed},
        own_{1000 * seed + static_cast<unsigned>(rank)} {
    constexpr size_t widths[]{1, 7, 7, 1000, 1000, 1000, 20'000};
    length_ = static_cast<size_t>(size) * widths[common_() % std::size(widths)];
    repeat(buffer_count, [&] { buffers_.emplace_back(length_, streams_.front()); });
    expected_.assign(static_cast<size_t>(size),
                     std::vector<std::vector<Number>>(buffer_count, std::vector<Number>(length_)));
    for (size_t b : range(buffer_count)) fill_one(b, 0);
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      disturb();
      const size_t a = below(buffer_count), b = (a + 1 + below(buffer_count - 1)) % buffer_count,
                   s = below(own_streams + 2);
      if (chance(5)) {
        fill_one(a, s);
        continue;
      }
      if (chance(4)) {
        both(a, b);
        continue;
      }
      use(s, a);
      use(s, b);
      operate(parties_[below(parties_.size())], a, b, stream(s));
    }
    for (size_t b : range(buffer_count)) {
      EXPECT_TRUE(read_back(stream(last_[b]), buffers_[b]) == nth(expected_, rank_)[b])
          << "buffer " << b << ": " << story_;
    }
  }

 private:
  size_t below(size_t n) { return common_() % n; }
  bool chance(size_t one_in) { return below(one_in) == 0; }
  StreamRef stream(size_t s) const {
    if (s < own_streams) return streams_[s];
    return s == own_streams ? Device::current().default_stream()
                            : StreamRef::per_thread_default(Device::current());
  }
  std::vector<Number>& expected(int process, size_t buffer) {
    return nth(expected_, process)[buffer];
  }
  DeviceSpan<Number> part(size_t buffer, size_t count) {
    return buffers_[buffer].span().subspan(0, count);
  }

  /// What comes next in stream `s` comes after what was done with the buffer.
  void use(size_t s, size_t buffer) {
    if (last_[buffer] != s) stream(s).wait_stream(stream(last_[buffer]));
    last_[buffer] = s;
  }

  void fill_one(size_t buffer, size_t s) {
    use(s, buffer);
    const auto value = static_cast<uint32_t>(common_());
    fill(stream(s), buffers_[buffer], static_cast<Number>(value + static_cast<uint32_t>(rank_)));
    for (size_t process : range(expected_.size()))
      std::fill(expected_[process][buffer].begin(), expected_[process][buffer].end(),
                static_cast<Number>(value + static_cast<uint32_t>(process)));
    story_ += " fill";
  }

  /// Two operations at once, which share no buffer.
  void both(size_t a, size_t b) {
    std::vector<size_t> others;
    for (size_t i : range(buffer_count))
      if (i != a && i != b) others.push_back(i);
    const size_t first = below(own_streams + 2), second = below(own_streams + 2);
    for (const size_t buffer : {a, b}) use(first, buffer);
    for (const size_t buffer : others) use(second, buffer);
    Communicator::together([&] {
      operate(parties_[below(parties_.size())], a, b, stream(first));
      operate(parties_[below(parties_.size())], others[0], others[1], stream(second));
    });
  }

  /// What this process alone does: nothing that changes a result.
  void disturb() {
    const size_t s = own_() % (own_streams + 2);
    switch (own_() % 10) {
      case 0:
        stream(s).launch_host_func([] { std::this_thread::sleep_for(100us); });
        break;
      case 1:
        stream(s).synchronize();
        break;
      case 2:
        stream(s).launch_host_func([] { throw std::runtime_error{"on purpose"}; });
        EXPECT_THROW(stream(s).synchronize(), std::runtime_error) << story_;
        break;
      case 3:
        if (s < own_streams) {
          Stream fresh;
          fresh.wait_stream(streams_[s]);
          streams_[s] = std::move(fresh);
        }
        break;
      case 4:
        on_thread([&] { parties_.front().communicator.check(); });
        break;
      default:
        break;
    }
  }

  void operate(const Party& party, size_t a, size_t b, StreamRef on) {
    const Communicator& c = party.communicator;
    // The groups of a party may differ in size by one.
    const size_t most = party.groups.front().size(), each = below(length_ / most + 1),
                 root = below(party.groups.back().size());
    const auto how = static_cast<Reduce>(below(4));
    const auto verb = below(8);
    story_.append(" ")
        .append(std::to_string(verb))
        .append("/")
        .append(std::to_string(&party - parties_.data()));
    switch (verb) {
      case 0:
        c.all_reduce(on, part(a, each), part(b, each), how);
        return expect_reduction(party, a, b, each, how, [](size_t) { return 0; });
      case 1:
        c.all_reduce(on, part(a, each), how);
        return expect_reduction(party, a, a, each, how, [](size_t) { return 0; });
      case 2:
        c.reduce(on, part(a, each), part(b, each), how, static_cast<int>(root));
        return expect_reduction(party, a, b, each, how,
                                [root](size_t member) { return member == root ? 0 : none; });
      case 3:
        c.broadcast(on, part(a, each), static_cast<int>(root));
        return expect_copies(party, a, a, [&](size_t, size_t, size_t i) {
          return i < each ? Source{root, i} : Source{none, 0};
        });
      case 4:
        c.all_gather(on, part(a, each), part(b, each * static_cast<size_t>(c.size())));
        return expect_copies(party, a, b, [&](size_t members, size_t, size_t i) {
          return i < each * members ? Source{i / each, i % each} : Source{none, 0};
        });
      case 5:
        c.all_to_all(on, part(a, each * static_cast<size_t>(c.size())),
                     part(b, each * static_cast<size_t>(c.size())));
        return expect_copies(party, a, b, [&](size_t members, size_t member, size_t i) {
          return i < each * members ? Source{i / each, member * each + i % each} : Source{none, 0};
        });
      case 6: {
        const int next = (c.rank() + 1) % c.size(), before = (c.rank() + c.size() - 1) % c.size();
        if (c.size() == 1)  // a process cannot send to itself
          copy(on, part(b, each), part(a, each));
        else
          c.group(on, [&](Communicator::Group& group) {
            group.send(part(a, each), next);
            group.receive(part(b, each), before);
          });
        return expect_copies(party, a, b, [&](size_t members, size_t member, size_t i) {
          return i < each ? Source{(member + members - 1) % members, i} : Source{none, 0};
        });
      }
      default:
        c.reduce_scatter(on, part(a, each * static_cast<size_t>(c.size())), part(b, each), how);
        return expect_reduction(party, a, b, each, how,
                                [each](size_t member) { return member * each; });
    }
  }

  /// What the members of a group have in `a`, before an operation.
  std::vector<std::vector<Number>> members_of(const Group& group, size_t a) {
    std::vector<std::vector<Number>> all;
    for (const int process : group) all.push_back(expected(process, a));
    return all;
  }

  /// `first(member)` is the place in `a` where a member's result begins; or `none`.
  void expect_reduction(const Party& party, size_t a, size_t b, size_t count, Reduce how,
                        const std::function<size_t(size_t)>& first) {
    for (const Group& group : party.groups) {
      const auto before = members_of(group, a);
      for (size_t m : range(group.size()))
        for (size_t i = 0; first(m) != none && i < count; ++i) {
          Number& all = expected(group[m], b)[i];
          all = before.front()[first(m) + i];
          for (size_t k = 1; k < group.size(); ++k)
            all = reduced(all, before[k][first(m) + i], how);
        }
    }
  }

  /// Where an element comes from: a member of the group, and the place in its `a`. Or it stays as
  /// it is.
  struct Source {
    size_t member, place;
  };
  void expect_copies(const Party& party, size_t a, size_t b,
                     const std::function<Source(size_t members, size_t member, size_t i)>& source) {
    for (const Group& group : party.groups) {
      const auto before = members_of(group, a);
      for (size_t m : range(group.size()))
        for (size_t i : range(length_))
          if (const Source from = source(group.size(), m, i); from.member != none)
            expected(group[m], b)[i] = before[from.member][from.place];
    }
  }

  const std::vector<Party>& parties_;
  const int rank_;
  std::mt19937 common_, own_;
  size_t length_;
  Streams streams_ = Streams(own_streams);
  std::vector<DeviceBuffer<Number>> buffers_;
  // the stream that used a buffer last
  std::vector<size_t> last_ = std::vector<size_t>(buffer_count);
  std::vector<std::vector<std::vector<Number>>> expected_;  // by process and buffer
  std::string story_;
};

class Random : public Communicators {};

TEST_F(Random, OperationsGiveWhatTheyGiveOneAfterTheOther) {
  static unsigned seed = 0;  // --gtest_repeat goes on with other programs
  const std::vector<Party> made = parties(all);
  repeat(10, [&] {
    SCOPED_TRACE(seed);
    Program{made, rank, size, seed++}.run(40);
  });
}

}}  // namespace comm
