// SPDX-License-Identifier: Apache-2.0
// The order between streams, events and the host.
#include "cases.hpp"

#include <memory>
#include <optional>
#include <thread>

namespace races {
namespace {

using namespace runnel;

// `down` must wait for `up`, which brings the values.
void missing_wait_stream() {  // race
  const Values values;
  Values back(count);
  const Stream up, down;
  DeviceBuffer<int> x{count, up};
  copy(up, x, values);  // one
  copy(down, back, x);  // other
  wait_for_device();
}

void wait_stream() {  // no race
  const Values values;
  Values back(count);
  const Stream up, down;
  DeviceBuffer<int> x{count, up};
  copy(up, x, values);
  down.wait_stream(up);
  copy(down, back, x);
  up.wait_stream(down);
  up.synchronize();
  ++back[0];
}

// `down` waits, but for a stream that has nothing to do with it.
void waits_for_the_wrong_stream() {  // race
  Values values(count, 1), others(count, 1);
  const Stream up, another, down;
  increment(up, values);  // one
  increment(another, others);
  down.wait_stream(another);
  increment(down, values);  // other
  wait_for_device();
}

// A wait covers only what was submitted before it.
void waits_too_early() {  // race
  Values values;
  const Stream first, second;
  second.wait_stream(first);
  increment(first, values);   // one
  increment(second, values);  // other
  wait_for_device();
}

// The event marks what came before the record, not the kernel behind it.
void recorded_too_early() {  // race
  Values values;
  const Stream first, second;
  const Event done = first.record_event();
  increment(first, values);  // one
  second.wait_event(done);
  increment(second, values);  // other
  wait_for_device();
}

// The second record replaces the first one.
void recorded_again_elsewhere() {  // race
  Values values;
  const Stream first, another, last;
  Event done;
  increment(first, values);  // one
  first.record_event(done);
  another.record_event(done);
  last.wait_event(done);
  increment(last, values);  // other
  wait_for_device();
}

// A wait binds to the record that is current at the call.
void recorded_again_later() {  // no race
  Values values;
  const Stream first, another, last;
  Event done;
  increment(first, values);
  first.record_event(done);
  last.wait_event(done);
  another.record_event(done);
  increment(last, values);
  last.synchronize();
  ++values[0];
}

// An event that is not recorded yet holds nothing up.
void waits_before_the_record() {  // race
  Values values;
  const Stream first, second;
  Event done;
  second.wait_event(done);
  increment(first, values);  // one
  first.record_event(done);
  increment(second, values);  // other
  wait_for_device();
}

// What the second stream read, the first one must not overwrite before.
void missing_wait_back() {  // race
  const Values values;
  Values back(count);
  const Stream up, down;
  DeviceBuffer<int> x{count, up};
  copy(up, x, values);
  down.wait_stream(up);
  copy(down, back, x);  // one
  fill(up, x, 0);       // other
  wait_for_device();
}

void through_a_third_stream() {  // no race
  Values values;
  const Stream first, between, last;
  increment(first, values);
  between.wait_event(first.record_event());
  last.wait_event(between.record_event());
  increment(last, values);
  last.synchronize();
  ++values[0];
}

void with_a_timed_event() {  // no race
  Values values;
  const Stream first, last;
  increment(first, values);
  const TimedEvent done{first};
  last.wait_event(done);
  increment(last, values);
  const TimedEvent end{last};
  end.synchronize();
  ++values[0];
}

void host_reads_before_synchronize() {  // race
  Values back(count);
  const Stream stream;
  DeviceBuffer<int> x{count, stream};
  fill(stream, x, 7);
  copy(stream, back, x);  // one
  back[0] = back[1];      // other
  stream.synchronize();
}

void host_reads_after_synchronize() {  // no race
  Values back(count);
  const Stream stream;
  DeviceBuffer<int> x{count, stream};
  fill(stream, x, 7);
  copy(stream, back, x);
  stream.synchronize();
  back[0] = back[1];
}

// The source of a copy belongs to the stream until the copy has passed.
void host_overwrites_the_source() {  // race
  Values values;
  const Stream stream;
  DeviceBuffer<int> x{count, stream};
  copy(stream, x, values);  // one
  values[3] = 2;            // other
  stream.synchronize();
}

// The host waits for an event that lies before the work.
void host_waits_for_an_early_event() {  // race
  Values values;
  const Stream stream;
  const Event early = stream.record_event();
  increment(stream, values);  // one
  early.synchronize();
  ++values[0];  // other
  stream.synchronize();
}

void host_waits_for_another_stream() {  // race
  Values values;
  const Stream first, second;
  increment(first, values);  // one
  second.synchronize();
  ++values[0];  // other
  first.synchronize();
}

void polls_a_stream() {  // no race
  Values values;
  const Stream stream;
  increment(stream, values);
  while (!stream.query()) std::this_thread::yield();
  ++values[0];
}

void polls_an_event() {  // no race
  Values values;
  const Stream stream;
  increment(stream, values);
  const Event done = stream.record_event();
  while (!done.query()) std::this_thread::yield();
  ++values[0];
}

void waits_with_a_limit() {  // no race
  Values values;
  const Stream stream;
  increment(stream, values);
  if (stream.synchronize_for(std::chrono::minutes{1})) ++values[0];
}

void default_and_blocking() {  // no race
  Values values;
  const Stream blocking{StreamOptions{.blocking = true}}, another{StreamOptions{.blocking = true}};
  const StreamRef null = Device::current().default_stream();
  increment(blocking, values);
  increment(null, values);
  increment(another, values);
  increment(null, values);
  null.synchronize();
  ++values[0];
}

// The default stream also comes after the work of blocking streams that were destroyed.
void default_and_destroyed() {  // no race
  Values values;
  const StreamRef null = Device::current().default_stream();
  increment(null, values);
  {
    const Stream blocking{StreamOptions{.blocking = true}};
    increment(blocking, values);
  }
  increment(null, values);
  null.synchronize();
  ++values[0];
}

// A stream is independent of the default stream unless it is made blocking.
void default_and_not_blocking() {  // race
  Values values;
  const Stream stream;
  increment(stream, values);                              // one
  increment(Device::current().default_stream(), values);  // other
  wait_for_device();
}

// Two blocking streams have no order between them.
void blocking_and_blocking() {  // race
  Values values;
  const Stream first{StreamOptions{.blocking = true}}, second{StreamOptions{.blocking = true}};
  increment(first, values);   // one
  increment(second, values);  // other
  wait_for_device();
}

// The function still uses what its reference referred to.
void captured_reference_dies() {  // race
  const Stream stream;
  auto value = std::make_unique<int>(1);
  stream.launch_host_func([&number = *value] { ++number; });  // one
  value.reset();                                              // other
  stream.synchronize();
}

void captured_by_value() {  // no race
  const Stream stream;
  auto value = std::make_shared<int>(1);
  stream.launch_host_func([value] { ++*value; });
  stream.synchronize();
  ++*value;
}

// A stream's end does not wait for its work.
void host_reads_after_the_end_of_a_stream() {  // race
  Values values;
  std::optional<Stream> stream{std::in_place};
  increment(*stream, values);  // one
  stream.reset();
  ++values[0];  // other
  wait_for_device();
}

void device_synchronize_after_the_end() {  // no race
  Values values;
  std::optional<Stream> stream{std::in_place};
  increment(*stream, values);
  stream.reset();
  wait_for_device();
  ++values[0];
}

void event_outlives_its_stream() {  // no race
  Values values;
  std::optional<Stream> first{std::in_place};
  const Stream second;
  increment(*first, values);
  const Event done = first->record_event();
  first.reset();
  second.wait_event(done);
  increment(second, values);
  second.synchronize();
  ++values[0];
}

// Each thread has its stream. The threads are joined, but the streams have no order.
void two_threads() {  // race
  Values values;
  const Stream first, second;
  std::thread{[&] { increment(first, values); }}.join();   // one
  std::thread{[&] { increment(second, values); }}.join();  // other
  wait_for_device();
}

void two_threads_with_an_event() {  // no race
  Values values;
  const Stream first, second;
  Event done;
  std::thread{[&] {
    increment(first, values);
    done.record(first);
  }}.join();
  std::thread{[&] {
    second.wait_event(done);
    increment(second, values);
    second.synchronize();
  }}.join();
  ++values[0];
}

// Tasks that two threads give to one stream have the stream's order.
void two_threads_one_stream() {  // no race
  Values values;
  const Stream stream;
  const auto work = [&] {
    for (int i = 0; i < 20; ++i) increment(stream, values);
  };
  std::thread first{work}, second{work};
  first.join();
  second.join();
  stream.synchronize();
  ++values[0];
}

void thread_default_stream() {  // no race
  Values values;
  std::thread{[&] { increment(StreamRef::per_thread_default(Device::current()), values); }}.join();
  wait_for_device();
  ++values[0];
}

// Where the library's own lock is taken by both, that makes no order: the host touches the first
// stream again after its kernel ran.
void touches_the_stream_again() {  // race
  Values values(count, 1), others(count, 1);
  const Stream first, second;
  increment(first, values);  // one
  for (int i = 0; i < 20; ++i) increment(first, others);
  increment(second, values);  // other
  wait_for_device();
}

}  // namespace

std::span<const Case> order_cases() {
  static constexpr Case cases[] = {
      CASE(missing_wait_stream),
      CASE(wait_stream),
      CASE(waits_for_the_wrong_stream),
      CASE(waits_too_early),
      CASE(recorded_too_early),
      CASE(recorded_again_elsewhere),
      CASE(recorded_again_later),
      CASE(waits_before_the_record),
      CASE(missing_wait_back),
      CASE(through_a_third_stream),
      CASE(with_a_timed_event),
      CASE(host_reads_before_synchronize),
      CASE(host_reads_after_synchronize),
      CASE(host_overwrites_the_source),
      CASE(host_waits_for_an_early_event),
      CASE(host_waits_for_another_stream),
      CASE(polls_a_stream),
      CASE(polls_an_event),
      CASE(waits_with_a_limit),
      CASE(default_and_blocking),
      CASE(default_and_destroyed),
      CASE(default_and_not_blocking),
      CASE(blocking_and_blocking),
      CASE(captured_reference_dies),
      CASE(captured_by_value),
      CASE(host_reads_after_the_end_of_a_stream),
      CASE(device_synchronize_after_the_end),
      CASE(event_outlives_its_stream),
      CASE(two_threads),
      CASE(two_threads_with_an_event),
      CASE(two_threads_one_stream),
      CASE(thread_default_stream),
      CASE(touches_the_stream_again),
  };
  return cases;
}

}  // namespace races
