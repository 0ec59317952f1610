// SPDX-License-Identifier: Apache-2.0
/// The scenario of <runnel/execution.hpp>, built where stdexec is found.
#include "senders.hpp"

#include <runnel/execution.hpp>

#include <stdexcept>
#include <tuple>
#include <vector>

namespace sweep {
namespace {

using namespace runnel;
using stdexec::continues_on;
using stdexec::schedule;
using stdexec::sync_wait;
using stdexec::then;
using stdexec::when_all;

struct Mine : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace

void senders(Checker& c) {
  ATTEMPT(current_stream());
  std::optional<Stream> a, b;
  c.make("Stream", a);
  c.make("Stream", b);
  c.watches = true;
  c.enqueues_several = true;
  std::optional<std::tuple<int>> got;
  const auto sends = [&](int value) {
    c.require(got == std::tuple{value}, "a chain sends another value");
  };

  c.attempt("chain", [&] {
    got = sync_wait(schedule(scheduler(*a)) | then([alive = Callable{}] { return 20; }) |
                    continues_on(scheduler(*b)) |
                    then([alive = Callable{}](int x) { return x + 1; }));
  });
  sends(21);
  ATTEMPT(got = sync_wait(when_all(schedule(scheduler(*a)) | then([] { return 1; }),
                                   schedule(scheduler(*b)) | then([] { return 2; })) |
                          then([alive = Callable{}](int x, int y) { return 10 * x + y; })));
  sends(12);
  std::vector<int> squares(4);
  ATTEMPT(got = sync_wait(schedule(scheduler(*a)) |
                          enqueue([&](StreamRef stream) { stream.wait_stream(*b); }) |
                          stdexec::bulk(stdexec::par, 4,
                                        [&](int i) { squares[static_cast<size_t>(i)] = i * i; }) |
                          then([&] { return squares[3]; })));
  sends(9);

  bool is_thrown = false;
  c.attempt("chain that throws", [&] {
    is_thrown = false;
    try {
      sync_wait(schedule(scheduler(*a)) | then([alive = Callable{}] { throw Mine{"mine"}; }) |
                continues_on(scheduler(*b)));
    } catch (const Mine&) {
      is_thrown = true;
    }
  });
  c.require(is_thrown, "the function's exception is lost");
  bool is_stopped = false;
  c.attempt("chain that is stopped", [&] {
    is_stopped = sync_wait(when_all(stdexec::just_stopped(),
                                    schedule(scheduler(*a)) | then([alive = Callable{}] {})) |
                           stdexec::upon_stopped([] { return true; }))
                     .has_value();
  });
  c.require(is_stopped, "the chain was not stopped");
  for (const Stream* each : {&*a, &*b}) c.synchronize(*each);
}

}  // namespace sweep
