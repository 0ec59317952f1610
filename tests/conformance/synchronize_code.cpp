// SPDX-License-Identifier: Apache-2.0
// synchronize() that sets a std::error_code instead of throwing, of streams, events and devices.

#include "support.hpp"

namespace conformance::synchronize_code_cases {
using SynchronizeCode = Conformance;

const std::error_code stale = make_error_code(errc::unknown);

static_assert(noexcept(std::declval<StreamRef>().synchronize(std::declval<std::error_code&>())));
static_assert(noexcept(std::declval<Event&>().synchronize(std::declval<std::error_code&>())));
static_assert(noexcept(std::declval<Device>().synchronize(std::declval<std::error_code&>())));
static_assert(noexcept(runnel::synchronize(std::declval<std::error_code&>())));

/// Checks that `wait(code)` waits for the stream, and clears the code.
template <class Wait>
void expect_waits(StreamRef stream, Wait&& wait) {
  Gate gate{stream};
  Event event{stream};
  std::error_code code = stale;
  EXPECT_HELD(gate, wait(event, code));
  EXPECT_EQ(code, nothing_thrown);
  EXPECT_DONE(event);
}

TEST_F(SynchronizeCode, WaitsAndClearsTheCode) {
  Stream stream;
  expect_waits(stream, [&](Event&, std::error_code& code) { stream.synchronize(code); });
  expect_waits(stream, [&](Event& event, std::error_code& code) { event.synchronize(code); });
  expect_waits(stream, [&](Event&, std::error_code& code) { device().synchronize(code); });
  expect_waits(stream, [&](Event&, std::error_code& code) {
    const StreamGuard with{stream};
    runnel::synchronize(code);
  });
}

TEST_F(SynchronizeCode, SetsTheCodeOfARefusal) {
  Stream stream;
  Stream moved{std::move(stream)};
  Event event;
  const Event moved_event{std::move(event)};
  std::error_code code;
  stream.synchronize(code);  // NOLINT: this is what is tested
  EXPECT_EQ(code, errc::invalid_handle);
  code.clear();
  event.synchronize(code);  // NOLINT
  EXPECT_EQ(code, errc::invalid_handle);
  code.clear();
  Device{Device::count()}.synchronize(code);
  EXPECT_EQ(code, errc::invalid_device);
  moved_event.synchronize(code);
  EXPECT_EQ(code, nothing_thrown) << "an event that was never recorded is complete";
}

/// Opens the gate once another thread is held by the scope's end.
void leave_a_scope(Stream& stream, bool ends) {
  DeviceBytes x{mib, stream};
  fill(stream, x, std::uint8_t{7});
  Gate gate{stream};
  Bytes result(x.size());
  EXPECT_TRUE(held_by(gate, [&] {
    EXPECT_THROW(
        {
          const SynchronizeAtExit waiting{stream};
          copy(stream, result, x);
          stream.launch_host_func([] { throw std::out_of_range{"the function's"}; });
          if (ends) stream = Stream{};
          throw std::runtime_error{"the scope's"};
        },
        std::runtime_error);
    EXPECT_EQ(result, Bytes(mib, 7));
  }));
}

TEST_F(SynchronizeCode, AScopeThatEndsByAnExceptionWaits) {
  Stream stream;
  leave_a_scope(stream, false);
  EXPECT_THROW(stream.synchronize(), std::out_of_range) << "the next wait throws";
}

TEST_F(SynchronizeCode, AScopeThatDestroysItsStreamWaits) {
  Stream stream;
  leave_a_scope(stream, true);
}

TEST_F(SynchronizeCode, AScopeThatDestroysItsStreamWaitsBesideACapture) {
  Stream stream;
  const Stream captured;
  begin_capture(captured);
  leave_a_scope(stream, true);
  drop(end_capture(captured));
}

TEST_F(SynchronizeCode, AScopeOfACompletionEndsAlthoughAHostFunctionEndedItsStream) {
  std::optional<Stream> stream{std::in_place};
  end_beside_a_completion(stream, [&](auto wait) {
    const SynchronizeAtExit waiting{*stream};
    wait();
  });
}

TEST_F(SynchronizeCode, AScopeRefusesAStreamForWhichItCannotWait) {
  Stream stream;
  EXPECT_EQ(
      code_of([&] { return capture(stream, [&] { const SynchronizeAtExit waiting{stream}; }); }),
      errc::capture);
  const StreamRef ended = Stream{};
  EXPECT_EQ(code_of([&] { drop(SynchronizeAtExit{ended}); }), errc::invalid_handle);
}

TEST_F(SynchronizeCode, IsRefusedInAHostFunction) {
  Stream stream, other;
  std::error_code of_stream, of_event, of_device;
  const Event event{other};
  stream.launch_host_func([&, other = StreamRef{other}] {
    other.synchronize(of_stream);
    event.synchronize(of_event);
    Device{0}.synchronize(of_device);
  });
  stream.synchronize();
  EXPECT_EQ(of_stream, errc::not_permitted);
  EXPECT_EQ(of_event, errc::not_permitted);
  EXPECT_EQ(of_device, errc::not_permitted);
}

TEST_F(SynchronizeCode, LeavesTheExceptionOfAHostFunctionToBeThrown) {
  Stream stream;
  stream.launch_host_func([] { throw std::runtime_error{"the function's own"}; });
  std::error_code code;
  repeat(2, [&] {
    code.clear();
    stream.synchronize(code);
    EXPECT_EQ(code, errc::function_failed);
  });
  EXPECT_THROW(stream.synchronize(), std::runtime_error);
  stream.synchronize(code);
  EXPECT_EQ(code, nothing_thrown);
}

TEST_F(SynchronizeCode, SetsTheCodeOfAnErrorOfEarlierWork) {
  Stream stream;
  stream.launch_host_func([&] { stream.synchronize(); });
  std::error_code code;
  stream.synchronize(code);
  EXPECT_EQ(code, errc::not_permitted);
  EXPECT_EQ(stream.future().outcome().code(), code);
  EXPECT_EQ(code_of([&] { stream.synchronize(); }), code);
}

}  // namespace conformance::synchronize_code_cases
