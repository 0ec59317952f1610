// SPDX-License-Identifier: Apache-2.0
// Cases of two processes: each starts this program again, with the name of the other side and two
// pipes.
#include <fcntl.h>

#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "../support/process.hpp"
#include "process_cases.hpp"

namespace {
using namespace runnel;
using namespace process_cases;
using std::chrono_literals::operator""s;

constexpr EventOptions interprocess{.interprocess = true};

static_assert(std::is_trivially_copyable_v<IpcEventHandle> &&
              std::is_trivially_copyable_v<IpcMemoryHandle>);

/// The other process, at the other ends of two pipes.
class Peer {
 public:
  Peer(int in, int out) : in_{in}, out_{out} {}
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  /// Starts this program as `side`, with these variables set.
  explicit Peer(const char* side,
                const std::vector<std::pair<const char*, const char*>>& environment = {}) {
    int down[2], up[2];
    if (pipe(down) != 0 || pipe(up) != 0) std::abort();
    std::fflush(stdout);
    child_ = fork();
    if (child_ == 0) {
      close(down[1]);
      close(up[0]);
      for (const auto& [name, value] : environment) setenv(name, value, 1);
      execl("/proc/self/exe", "exit_cases", side, std::to_string(down[0]).c_str(),
            std::to_string(up[1]).c_str(), nullptr);
      _exit(99);
    }
    close(down[0]);
    close(up[1]);
    in_ = up[0];
    out_ = down[1];
  }
  ~Peer() {
    close(in_);
    close(out_);
  }
  template <class T>
  void send(const T& value) const {
    static_assert(std::is_trivially_copyable_v<T>);
    if (write(out_, &value, sizeof value) != static_cast<ssize_t>(sizeof value))
      expect(false, "the other process is gone");
  }
  /// Ends this process if the other one has ended.
  template <class T>
  T receive() const {
    T value{};
    if (read(in_, &value, sizeof value) != static_cast<ssize_t>(sizeof value)) {
      expect(false, "the other process has ended");
      std::exit(96);
    }
    return value;
  }
  Event receive_event() const { return Event::from_ipc_handle(receive<IpcEventHandle>()); }
  SharedBuffer<int> receive_memory() const {
    return SharedBuffer<int>::from_ipc_handle(receive<IpcMemoryHandle>());
  }
  /// Sends the handles of memory and events.
  template <class... Shared>
  void share(Shared&&... objects) const {
    (send(objects.ipc_handle()), ...);
  }
  void tell() const { send('x'); }
  void await() const { static_cast<void>(receive<char>()); }
  /// Expects the other process to end by itself.
  void expect_end() const {
    expect(test_support::wait_for_child(child_) == 0, "the other process failed");
  }

 private:
  pid_t child_ = -1;
  int in_ = -1;
  int out_ = -1;
};

bool are_all(const std::vector<int>& numbers, int value) {
  for (const int number : numbers)
    if (number != value) return false;
  return true;
}

constexpr std::size_t count = 100'000;
constexpr std::chrono::seconds patience{15};

// One process writes memory behind a gate, and the other's stream waits for that by an event. Then
// the other way round.

void memory_and_events() {
  Stream stream;
  SharedBuffer<int> memory{count};
  Event written{interprocess}, answered{interprocess};
  const Peer peer{"other_memory_and_events"};
  peer.share(memory, written, answered);
  expect(written.query(), "an event that was never recorded is complete");
  auto gate = std::make_shared<std::promise<void>>();
  stream.launch_host_func([gate] { gate->get_future().wait(); });
  fill(stream, memory, 5);
  written.record(stream);
  peer.tell();
  peer.await();
  expect(!written.query(), "the event is behind the gate");
  gate->set_value();
  peer.await();  // the other process has recorded `answered`
  std::vector<int> seen(count);
  stream.wait_event(answered);
  copy(stream, seen, memory);
  expect(stream.synchronize_for(patience), "the other process's record completes");
  expect(are_all(seen, 9), "the other process's numbers are here");
  expect(answered.query(), "the other process's record is complete");
  peer.expect_end();
}

void other_memory_and_events(const Peer& peer) {
  SharedBuffer<int> memory = peer.receive_memory();
  const Event written = peer.receive_event();
  Event answered = peer.receive_event();
  expect(memory.size() == count && memory.is_opened(), "the memory has its size");
  expect(pointer_info(memory.data()).kind == MemoryKind::device, "it is device memory");
  expect(answered.query(), "nothing was recorded yet");
  Stream stream;
  peer.await();
  std::vector<int> seen(count);
  stream.wait_event(written);
  copy(stream, seen, memory);
  expect(!written.query() && !stream.query(), "the stream waits for the other process");
  peer.tell();
  expect(written.synchronize_for(patience), "the record completes");
  expect(stream.synchronize_for(patience), "the stream goes on");
  expect(are_all(seen, 5), "the other process's numbers are here");
  fill(stream, memory, 9);
  answered.record(stream);
  peer.tell();
  stream.synchronize();
  begin_capture(stream);
  fill(stream, memory, 9);
  memory = {};  // to wait for the device would break the capture
  expect(end_capture(stream).node_count() == 1,
         "a buffer that ends in a capture leaves it as it is");
}

// Two processes take turns, by events alone.

constexpr int rounds = 12;

void take_turns() {
  Stream stream;
  SharedBuffer<int> memory{1};
  Event mine{interprocess}, yours{interprocess};
  fill(stream, memory, 0);
  mine.record(stream);
  const Peer peer{"other_take_turns"};
  peer.share(memory, mine, yours);
  for (int i = 0; i < rounds; ++i) {
    peer.tell();
    peer.await();
    stream.wait_event(yours);
    const int seen = get(stream, memory, 0);
    expect(seen == 2 * i + 1, "round " + std::to_string(i) + ": " + std::to_string(seen));
    set(stream, memory, 0, seen + 1);
    mine.record(stream);
  }
  peer.expect_end();
}

void other_take_turns(const Peer& peer) {
  auto memory = peer.receive_memory();
  const Event yours = peer.receive_event();
  Event mine = peer.receive_event();
  Stream stream;
  for (int i = 0; i < rounds; ++i) {
    peer.await();
    stream.wait_event(yours);
    const int seen = get(stream, memory, 0);
    expect(seen == 2 * i, "round " + std::to_string(i) + ": " + std::to_string(seen));
    set(stream, memory, 0, seen + 1);
    mine.record(stream);
    peer.tell();
  }
  stream.synchronize();
}

// A stream of another device than the event's waits for it.

void other_device() {
  if (Device::count() < 2) return;
  Stream stream;
  Event written{interprocess};
  const Peer peer{"other_other_device"};
  peer.share(written);
  auto gate = std::make_shared<std::promise<void>>();
  stream.launch_host_func([gate] { gate->get_future().wait(); });
  written.record(stream);
  peer.tell();
  peer.await();
  gate->set_value();
  peer.expect_end();
}

void other_other_device(const Peer& peer) {
  const Event written = peer.receive_event();
  Stream stream{Device{1}};
  peer.await();
  stream.wait_event(written);
  expect(!stream.query(), "the stream is behind the other process's gate");
  peer.tell();
  expect(stream.synchronize_for(patience), "the other process's record completes");
  expect(test_support::works(stream), "the stream goes on");
}

// Handles that cannot be opened.

template <class Handle>
Handle changed(Handle handle, std::size_t at) {
  handle.bytes[at] ^= std::byte{1};
  return handle;
}

void wrong_handles() {
  Stream stream;
  const SharedBuffer<char> memory{1001};
  Event event{interprocess};
  const IpcMemoryHandle memory_handle = memory.ipc_handle();
  const IpcEventHandle event_handle = event.ipc_handle();
  EXPECT_REFUSED(errc::invalid_argument, SharedBuffer<char>::from_ipc_handle(memory_handle));
  EXPECT_REFUSED(errc::invalid_argument, Event::from_ipc_handle(event_handle));
  const Peer peer{"other_wrong_handles"};
  peer.send(memory_handle);
  peer.send(event_handle);
  peer.expect_end();
  expect(test_support::works(stream), "this process goes on");
}

void other_wrong_handles(const Peer& peer) {
  const auto memory = peer.receive<IpcMemoryHandle>();
  const auto event = peer.receive<IpcEventHandle>();
  EXPECT_REFUSED(errc::invalid_argument, SharedBuffer<char>::from_ipc_handle({}));
  EXPECT_REFUSED(errc::invalid_argument, Event::from_ipc_handle({}));
  for (std::size_t i = 0; i < 112; ++i) {
    EXPECT_REFUSED(errc::invalid_argument, SharedBuffer<char>::from_ipc_handle(changed(memory, i)));
    EXPECT_REFUSED(errc::invalid_argument, Event::from_ipc_handle(changed(event, i)));
  }
  EXPECT_REFUSED(errc::invalid_argument, SharedBuffer<char>::from_ipc_handle({event.bytes}));
  EXPECT_REFUSED(errc::invalid_argument, Event::from_ipc_handle({memory.bytes}));
  EXPECT_REFUSED(errc::invalid_argument, SharedBuffer<int>::from_ipc_handle(memory));
  expect(live_objects() == LiveObjects{}, "nothing is left behind");
  const auto opened = SharedBuffer<char>::from_ipc_handle(memory);
  expect(opened.size() == 1001, "the right handle is still right");
  EXPECT_REFUSED(errc::invalid_argument, opened.ipc_handle());
  Event shared = Event::from_ipc_handle(event);
  EXPECT_REFUSED(errc::invalid_argument, shared.ipc_handle());
}

// The same handle twice; objects that are never destroyed; the memory of a handle that is gone.

void opened_twice() {
  SharedBuffer<int> memory{10};
  Event event{interprocess};
  const Peer peer{"other_opened_twice"};
  peer.share(memory, event);
  peer.expect_end();
  expect(event.query(), "the other process's record is complete");
  Stream stream;
  expect(get(stream, memory, 9) == 4, "the other process's number is here");
}

void other_opened_twice(const Peer& peer) {
  const auto memory = peer.receive<IpcMemoryHandle>();
  const auto handle = peer.receive<IpcEventHandle>();
  Stream stream;
  auto one = std::make_unique<SharedBuffer<int>>(SharedBuffer<int>::from_ipc_handle(memory));
  static auto two = SharedBuffer<int>::from_ipc_handle(memory);  // it exists until the process ends
  Event event = Event::from_ipc_handle(handle);
  static const Event same = Event::from_ipc_handle(handle);
  fill(stream, *one, 3);
  event.record(stream);
  expect(same.synchronize_for(patience), "the second event is the same");
  expect(get(stream, two, 9) == 3, "the second buffer is the same memory");
  one.reset();
  fill(stream, two, 4);
  event.record(stream);
  stream.synchronize();
}

/// CUDA may open an event that is gone. Then it has happened.
void expect_gone(const char* what, const IpcEventHandle& handle) {
  try {
    const Event opened = Event::from_ipc_handle(handle);
    expect(opened.query(), std::string{what} + " has not happened");
  } catch (const Error&) {  // its code may be the runtime's own
  }
}

void gone_before() {
  std::optional<SharedBuffer<int>> memory{10U};
  std::optional<Event> event{interprocess};
  const IpcMemoryHandle memory_handle = memory->ipc_handle();
  const IpcEventHandle event_handle = event->ipc_handle();
  memory.reset();
  event.reset();
  const Peer peer{"other_gone_before"};
  peer.send(memory_handle);
  peer.send(event_handle);
  // Handles of the other process, which has ended when they are opened.
  const auto its_memory = peer.receive<IpcMemoryHandle>();
  const auto its_event = peer.receive<IpcEventHandle>();
  peer.expect_end();
  std::optional<errc> code;
  if (Device::current().hardware_queues() == 0) code = errc::invalid_handle;  // streams are threads
  EXPECT_REFUSED(code, SharedBuffer<int>::from_ipc_handle(its_memory));
  expect_gone("an event of a process that has ended", its_event);
  expect(live_objects().device_blocks == 0 && live_objects().events == 0, "nothing is left behind");
}

void other_gone_before(const Peer& peer) {
  const auto memory = peer.receive<IpcMemoryHandle>();
  const auto event = peer.receive<IpcEventHandle>();
  EXPECT_REFUSED({}, SharedBuffer<int>::from_ipc_handle(memory));
  expect_gone("an event that was destroyed", event);
  const SharedBuffer<int> mine{10};
  Event recorded{interprocess};
  recorded.record(Device{0}.default_stream());
  peer.share(mine, recorded);
}

// The process that opens does not see the device.

void unseen_device() {
  if (Device::count() < 2) return;
  const SharedBuffer<int> memory{10, Device{1}};
  // A vendor's own runtime reads neither variable: there the other process sees all devices.
  const Peer peer{"other_unseen_device", {{"RUNNEL_HOST_DEVICES", "1"}, {"STANDIN_DEVICES", "1"}}};
  peer.share(memory);
  peer.expect_end();
}

void other_unseen_device(const Peer& peer) {
  const auto memory = peer.receive<IpcMemoryHandle>();
  if (Device::count() > 1) {
    expect(SharedBuffer<int>::from_ipc_handle(memory).device() == Device{1},
           "the memory is on its device");
    return;
  }
  EXPECT_REFUSED(errc::invalid_device, SharedBuffer<int>::from_ipc_handle(memory));
}

constexpr struct {
  const char* name;
  void (*run)();
  void (*run_other)(const Peer&);
} cases[] = {
    {"gone_before", gone_before, other_gone_before},
    {"memory_and_events", memory_and_events, other_memory_and_events},
    {"opened_twice", opened_twice, other_opened_twice},
    {"other_device", other_device, other_other_device},
    {"take_turns", take_turns, other_take_turns},
    {"unseen_device", unseen_device, other_unseen_device},
    {"wrong_handles", wrong_handles, other_wrong_handles},
};

}  // namespace

int process_cases::run_shared_case(int argc, char** argv) {
  for (const auto& [name, run, run_other] : cases) {
    if (argc == 2 && std::strcmp(argv[1], name) == 0) {
      run();
      return finish();
    }
    if (argc == 4 && argv[1] == "other_" + std::string{name}) {
      run_other(Peer{std::atoi(argv[2]), std::atoi(argv[3])});
      return failures;
    }
  }
  return -1;
}
