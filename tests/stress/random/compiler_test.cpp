// SPDX-License-Identifier: Apache-2.0
/// Units of the compiler of random programs: what lower() adds to a list of operations, what
/// interpret() notices, what to_text() writes, and what shrink() leaves. The programs here are
/// written by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "child.hpp"
#include "interpret.hpp"
#include "lower.hpp"
#include "shrink.hpp"
#include "text.hpp"

namespace {
using namespace random_programs;

constexpr size_t size = 1000;
constexpr int first_pinned = 0, second_pinned = 1, on_device = 2;

/// A program of two streams, two pinned buffers and one of device memory, which are there after its
/// first three operations.
class Writer {
 public:
  Writer() {
    program_.streams = {{}, {}};
    program_.buffers = {{pinned, 0, size}, {pinned, 0, size}, {BufferKind::device, 0, size}};
    for (const int buffer : {first_pinned, second_pinned, on_device})
      add(Verb::renew_buffer, 0).buffer = buffer;
  }
  Operation& add(Verb verb, int stream) {
    Operation operation;
    operation.verb = verb;
    operation.id = static_cast<int>(program_.operations.size());
    operation.stream = stream;
    operation.value = static_cast<unsigned>(7 + operation.id);
    return program_.operations.emplace_back(operation);
  }
  Operation& add_copy(int stream, int buffer, int source) {
    Operation& copy = add(Verb::copy, stream);
    copy.buffer = buffer;
    copy.source = source;
    copy.bytes = size;
    return copy;
  }
  const Program& program() const { return program_; }
  Calls calls() const { return lower(program_, {}); }

 private:
  Program program_;
};

/// The calls of the operation with this number, and of nothing else.
std::vector<Step> steps_of(const Calls& calls, size_t place) {
  return calls.operations.at(place).steps;
}

size_t count(const std::vector<Step>& steps, const std::set<Call>& wanted) {
  return static_cast<size_t>(
      std::ranges::count_if(steps, [&](const Step& step) { return wanted.contains(step.call); }));
}

/// Every means by which lower() can order one stream's work after another's.
const std::set<Call> waits{
    Call::wait_stream,       Call::wait_value,       Call::wait_recorded,
    Call::wait_event,        Call::wait_mark,        Call::synchronize,
    Call::synchronize_event, Call::synchronize_mark, Call::synchronize_device};

TEST(Lower, WorkOfOneStreamNeedsNoWait) {
  Writer writer;
  writer.add_copy(0, on_device, first_pinned);
  writer.add_copy(0, second_pinned, on_device);
  const Calls calls = writer.calls();
  EXPECT_EQ(count(steps_of(calls, 4), waits), 0U);
  EXPECT_EQ(count(steps_of(calls, 4), {Call::copy}), 1U);
}

TEST(Lower, AReadOnAnotherStreamWaitsByOneOfSeveralMeans) {
  std::set<Call> means;
  for (unsigned choice = 0; choice < 200; ++choice) {
    Writer writer;
    writer.add_copy(0, on_device, first_pinned);
    writer.add_copy(1, second_pinned, on_device).choice = choice;
    const std::vector<Step> steps = steps_of(writer.calls(), 4);
    ASSERT_GE(count(steps, waits), 1U) << "choice " << choice;
    for (const Step& step : steps)
      if (waits.contains(step.call)) means.insert(step.call);
    const auto is_wait = [](const Step& step) { return waits.contains(step.call); };
    EXPECT_LT(std::ranges::find_if(steps, is_wait),
              std::ranges::find(steps, Call::copy, &Step::call));
  }
  EXPECT_GE(means.size(), 4U);
}

TEST(Lower, ReadsOfTheSameBytesNeedNoWaitForEachOther) {
  Writer writer;
  writer.add_copy(0, on_device, first_pinned);
  writer.add(Verb::synchronize, 0);
  writer.add(Verb::read_function, 0).bytes = size;
  writer.add(Verb::read_function, 1).bytes = size;
  EXPECT_EQ(count(steps_of(writer.calls(), 6), waits), 0U);
}

TEST(Lower, DisjointPartsNeedNoWaitForEachOther) {
  Writer writer;
  writer.add(Verb::synchronize, 0);
  for (const int stream : {0, 1}) {
    Operation& fill = writer.add(Verb::write_function, stream);
    fill.buffer = first_pinned;
    fill.at = stream == 0 ? 0 : size / 2;
    fill.bytes = size / 2;
  }
  EXPECT_EQ(count(steps_of(writer.calls(), 5), waits), 0U);
}

TEST(Lower, AGateIsOpenBeforeTheThreadWaitsForItsStream) {
  Writer writer;
  writer.add(Verb::gate, 0).bytes = 100;  // would open long after the program's end
  writer.add(Verb::synchronize, 0);
  const std::vector<Step> steps = steps_of(writer.calls(), 4);
  const auto opened = std::ranges::find(steps, Call::open_gate, &Step::call);
  const auto waited = std::ranges::find(steps, Call::synchronize, &Step::call);
  ASSERT_NE(opened, steps.end());
  ASSERT_NE(waited, steps.end());
  EXPECT_LT(opened, waited);
}

TEST(Lower, AGateStaysClosedWhileTheThreadWaitsForAnotherStream) {
  Writer writer;
  writer.add(Verb::synchronize, 0);
  writer.add(Verb::gate, 0).bytes = 100;
  writer.add(Verb::synchronize, 1);
  EXPECT_EQ(count(steps_of(writer.calls(), 5), {Call::open_gate}), 0U);
}

TEST(Lower, OperationsOnBuffersThatAreNotThereAreLeftOut) {
  Writer writer;
  writer.add(Verb::drop_buffer, 0).buffer = on_device;
  writer.add_copy(0, on_device, first_pinned);
  EXPECT_EQ(count(steps_of(writer.calls(), 4), {Call::copy}), 0U);
}

TEST(Lower, TheSameProgramGivesTheSameCalls) {
  const Program program = generate(17, {});
  EXPECT_EQ(to_text(program, lower(program, {})), to_text(program, lower(program, {})));
}

/// A program whose last call compares what two copies on two streams have left.
Writer there_and_back() {
  Writer writer;
  writer.add_copy(0, on_device, first_pinned);
  writer.add_copy(1, second_pinned, on_device);
  Operation& check = writer.add(Verb::check, 1);
  check.buffer = second_pinned;
  check.bytes = size;
  return writer;
}

/// What interpret() says of these calls, or "" if it finds nothing wrong. In a child process, as
/// failures end the process.
std::string complaint(const Program& program, const Calls& calls) {
  const Ended ended =
      run_in_child(0, 1, std::chrono::seconds{30}, [&](uint64_t) { interpret(program, calls); });
  return ended.well ? "" : ended.why;
}

TEST(Interpret, RunsAProgramThatIsRight) {
  const Writer writer = there_and_back();
  EXPECT_EQ(complaint(writer.program(), writer.calls()), "");
}

TEST(Interpret, NoticesAWrongByte) {
  const Writer writer = there_and_back();
  Calls calls = writer.calls();
  for (Lowered& operation : calls.operations)
    for (Step& step : operation.steps)
      if (step.call == Call::compare || step.call == Call::compare_copied) step.digest += 1;
  EXPECT_NE(complaint(writer.program(), calls).find("wrong bytes"), std::string::npos)
      << complaint(writer.program(), calls);
}

TEST(Interpret, NoticesAnExceptionThatDoesNotArrive) {
  Writer writer;
  writer.add(Verb::synchronize, 0);
  Calls calls = writer.calls();
  for (Step& step : calls.operations.at(3).steps) step.exception = 2;
  EXPECT_NE(complaint(writer.program(), calls), "");
}

TEST(ToText, NamesEachCallWithItsNumbers) {
  const Writer writer = there_and_back();
  const std::string text = to_text(writer.program(), writer.calls());
  for (const char* const expected :
       {"stream 1: own, device 0\n", "buffer 2: device, device 0, 1000 bytes\n",
        "  copy stream=0 buffer=2 source=0 mark=3 bytes=1000 value=10", "operation 5, thread 0\n",
        "  compare stream=1 buffer=1 mark=5 bytes=1000"})
    EXPECT_NE(text.find(expected), std::string::npos) << expected << " is missing in\n" << text;
  EXPECT_EQ(text.find("stream 2"), std::string::npos) << "a stream that the program does not have";
}

TEST(Shrink, LeavesOnlyWhatIsNeededToFail) {
  const Program program = generate(5, {});
  const int needed = program.operations.at(program.operations.size() / 2).id;
  const auto has_it = [needed](const Program& candidate) {
    return std::ranges::any_of(candidate.operations, [needed](const Operation& operation) {
      return operation.id == needed;
    });
  };
  const Program left = shrink(program, has_it);
  ASSERT_EQ(left.operations.size(), 1U);
  EXPECT_EQ(left.operations[0].id, needed);
  EXPECT_EQ(left.threads, 1);
}

TEST(Generate, TheSameSeedGivesTheSameProgram) {
  EXPECT_EQ(to_text(generate(3, {}), lower(generate(3, {}), {})),
            to_text(generate(3, {}), lower(generate(3, {}), {})));
  EXPECT_NE(to_text(generate(3, {}), lower(generate(3, {}), {})),
            to_text(generate(4, {}), lower(generate(4, {}), {})));
}

}  // namespace
