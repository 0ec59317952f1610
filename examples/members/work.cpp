// SPDX-License-Identifier: Apache-2.0
// What a program can ask of work, and say about it: copies, graphs, completions, chunks, observers.
#include <runnel/coroutine.hpp>
#include <runnel/hooks.hpp>
#include <runnel/runnel.hpp>
#include <runnel/trace.hpp>

#include <atomic>
#include <chrono>
#include <coroutine>
#include <iostream>
#include <numeric>
#include <string_view>
#include <vector>

using namespace std::chrono_literals;

/// A copy says what became of it. Pageable memory can be refused for a while.
static void copies(runnel::StreamRef stream) {
  std::vector<int> numbers(1 << 20, 7);
  runnel::DeviceBuffer<int> there(numbers.size(), stream);
  try {
    const runnel::PageableGuard refusing{runnel::Pageable::refuse};
    runnel::copy(stream, there, numbers);
  } catch (const runnel::Error& error) {
    std::cout << error.operation() << " failed, runtime's number " << error.native_code() << " \""
              << error.native_name() << "\": " << error.code().message() << '\n';
  }
  const runnel::CopyResult result = runnel::copy(stream, there, numbers);
  std::cout << "the copy was " << (result == runnel::CopyResult::staged ? "staged" : "enqueued")
            << "; " << runnel::Staging::options().workers << " threads stage\n";

  // A box of 4 x 3 x 2 bytes out of slices of 16 rows of 64 bytes.
  const runnel::Pitches pitches{.row = 64, .slice = 1024};
  runnel::copy_3d(stream, numbers.data(), pitches, there.data(), pitches,
                  runnel::Extent{.width = 4, .height = 3, .depth = 2});
  const runnel::CopyBatchResult batch =
      runnel::copy_batch(stream, std::vector{runnel::copy_operation(numbers, there)});
  stream.synchronize();
  std::cout << batch.direct + batch.staged + batch.inlined + batch.blocked + batch.nothing
            << " copy in the batch\n";
  runnel::Staging::trim();  // gives back the pinned memory that staged copies used
}

/// A graph by a begin and an end, and with other work in place of the old one.
static void graphs(runnel::StreamRef stream) {
  runnel::DeviceBuffer<int> numbers(1000, stream);
  stream.synchronize();
  runnel::begin_capture(stream);
  runnel::fill(stream, numbers, 1);
  runnel::Graph graph = runnel::end_capture(stream);
  graph.launch(stream);
  const bool kept = graph.update(stream, [&] { runnel::fill(stream, numbers, 2); });
  graph.launch(stream);
  std::vector<int> result(1000);
  runnel::copy(stream, result, numbers);
  stream.synchronize();
  std::cout << "a graph of " << graph.device() << ", valid: " << graph.is_valid() << ", "
            << graph.native() << " and " << graph.native_executable()
            << ", got new arguments: " << kept << ", wrote " << result[999] << '\n';
}

/// A coroutine that the host does not wait for.
struct Task {
  struct promise_type {
    Task get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { std::terminate(); }
  };
};
static Task count_when_done(runnel::StreamRef stream, const runnel::Event& event,
                            std::atomic<int>& done) {
  co_await stream;
  ++done;
  co_await event;
  ++done;
  done.notify_all();
}

/// The outcome of work, without an exception.
static void completions(runnel::StreamRef stream) {
  stream.launch_host_func([] { throw std::runtime_error{"no luck"}; });
  const runnel::Future future = stream.future();
  if (!future.wait_until(std::chrono::steady_clock::now() + 10s))
    throw std::logic_error{"it takes too long"};
  future.wait();
  const runnel::Outcome& outcome = future.outcome();
  std::cout << "ok: " << outcome.is_ok() << ", code " << outcome.code()
            << ", has an exception: " << (outcome.error() != nullptr) << '\n';
  try {
    outcome.throw_if_failed();
  } catch (const std::exception& error) {
    std::cout << "it threw \"" << error.what() << "\"\n";
  }
  std::error_code code;
  stream.synchronize(code);
  if (code != runnel::make_error_code(runnel::errc::function_failed) ||
      code.category() != runnel::error_category())
    throw std::logic_error{"the code is another"};
  try {
    stream.synchronize();  // the exception goes to whoever waits
  } catch (const std::runtime_error&) {
  }

  std::atomic<int> done{0};
  const runnel::Event event{stream};
  count_when_done(stream, event, done);
  for (int seen = 0; seen < 2; seen = done.load()) done.wait(seen == 0 ? 0 : 1);
  std::cout << done.load() << " steps of the coroutine\n";
}

static const char* words(runnel::OverlapStrategy strategy) {
  return strategy == runnel::OverlapStrategy::copy_compute_copy ? "a stream for each step"
                                                                : "a stream for each chunk";
}

/// Chunks: rows from a function and from a range in step, a filter, progress, times, and the chunk
/// that failed.
static void chunks(runnel::StreamRef stream) {
  constexpr std::size_t rows = 1000, width = 4;
  std::vector<float> table(rows * width, 1.0F), kept(rows * width);
  std::size_t next = 0;
  const auto read = [&next](std::span<int> numbers) {
    const std::size_t count = std::min(numbers.size(), rows - next);
    std::iota(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(count),
              static_cast<int>(next));
    next += count;
    return count;
  };
  runnel::OverlapOptions options{.chunk = 100, .record_times = true};
  options.progress = [](const runnel::OverlapProgress& progress) {
    if (progress.chunks % 5 == 0)
      std::cout << progress.items << " of " << progress.total.value_or(0) << " rows\n";
  };
  // Here every row is let through: a kernel of yours would choose, and write the number of elements
  // that it kept.
  const auto keep = [](runnel::StreamRef on, runnel::DeviceSpan<const float> in,
                       runnel::DeviceSpan<const int>, runnel::DeviceSpan<float> out,
                       runnel::DeviceSpan<std::size_t> count) {
    runnel::copy(on, out, in);
    runnel::fill(on, count, in.size());
  };
  const runnel::OverlapResult result =
      runnel::overlap(runnel::zipped(runnel::by_rows(table, width), runnel::from_source<int>(read)),
                      runnel::filtered(kept, width), options, keep);
  const runnel::OverlapMeasure measure = runnel::measure_overlap(result.times);
  std::cout << result.written << " elements by " << words(result.strategy)
            << ", the first copy took " << result.times.front().copy_in.length().count() << " ns, "
            << 100 * measure.hidden_share() << " % was hidden\n"
            << "for 64 MiB in 4 chunks of pinned memory: "
            << words(runnel::choose_overlap_strategy(stream.device(), 64 << 20, 4, false)) << '\n';
  const auto fail = [](runnel::StreamRef, runnel::DeviceSpan<const float>,
                       const runnel::OverlapChunk& chunk) {
    if (chunk.first > 0) throw std::runtime_error{"no luck"};
  };
  try {
    runnel::overlap(table, runnel::no_output, runnel::OverlapOptions{.chunk = 1000}, fail);
  } catch (const runnel::OverlapError& error) {
    std::cout << "chunk " << error.chunk() << ": " << error.what() << '\n';
  }
}

static std::atomic<int> copies_seen{0};

/// Observers: a hook, the race checker, the trace.
static void observers(runnel::StreamRef stream) {
  const runnel::Hook before = runnel::set_hook([](const runnel::HookEvent& event) noexcept {
    if (event.phase == runnel::HookPhase::after &&
        std::string_view{to_string(event.kind)} == "copy" && event.where.line > 0)
      ++copies_seen;
  });
  {
    const runnel::HookLocation here;  // what this thread does in the scope is told with this line
    const runnel::PinnedBuffer<int> from(100);
    runnel::DeviceBuffer<int> to(100, stream);
    runnel::copy(stream, to, from);
    stream.synchronize();
  }
  runnel::set_hook(before);
  std::cout << copies_seen << " copy was seen, the trace is on: " << runnel::Trace::is_on() << '\n';

  // by the environment: the mistake below would end up in its report
  if (runnel::RaceChecker::is_on()) return;
  runnel::RaceChecker::set_handler([](const char* report, void*) {
    std::cout << std::string_view{report}.substr(0, 60) << "...\n";
  });
  runnel::RaceChecker::start();
  {
    const runnel::Stream other;
    runnel::PinnedBuffer<int> numbers(100);
    runnel::RaceChecker::host_writes(numbers);
    std::iota(numbers.begin(), numbers.end(), 0);
    runnel::DeviceBuffer<int> to(100, stream);
    runnel::copy(stream, to, numbers);
    stream.declare_reads(to);    // as a kernel of yours does
    runnel::fill(other, to, 0);  // a mistake: the other stream does not wait
    runnel::RaceChecker::assume_complete(stream);
    runnel::RaceChecker::host_reads(numbers);
    stream.synchronize();
    other.synchronize();
  }
  std::cout << "races reported: " << runnel::RaceChecker::reports() << '\n';
  runnel::RaceChecker::stop();
  runnel::RaceChecker::set_handler(nullptr);
}

int main() {
  const runnel::Stream stream{{.name = "work"}};
  copies(stream);
  graphs(stream);
  completions(stream);
  chunks(stream);
  observers(stream);
  return 0;
}
