// SPDX-License-Identifier: Apache-2.0
// The host backend knows its streams: a handle that is none of them is refused. A vendor's runtime
// may end the process for such a handle, so this is no test for every backend.
#include <runnel/error.hpp>
#include <runnel/foreign_stream.hpp>
#include <runnel/stream.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

using std::uintptr_t;

namespace {
using namespace runnel;

template <class F>
std::optional<errc> code_of(F&& call) {
  try {
    call();
    return std::nullopt;
  } catch (const Error& error) {
    return static_cast<errc>(error.code().value());
  }
}

native::stream number(uintptr_t value) { return reinterpret_cast<native::stream>(value); }

void expect_refused(native::stream handle) {
  const Device device{0};
  EXPECT_EQ(code_of([&] { static_cast<void>(StreamRef::from_native(handle, device)); }),
            errc::invalid_handle);
  EXPECT_EQ(code_of([&] { static_cast<void>(StreamRef::from_native(handle)); }),
            errc::invalid_handle);
  for (const Ownership ownership : {Ownership::borrow, Ownership::take})
    EXPECT_EQ(code_of([&] { static_cast<void>(Stream::from_native(handle, device, ownership)); }),
              errc::invalid_handle);
  EXPECT_EQ(code_of([&] { static_cast<void>(ForeignStream{handle, device, nullptr}); }),
            errc::invalid_handle);
}

TEST(HostHandles, AnyOtherNumberIsRefused) {
  const Stream stream;
  const auto known = reinterpret_cast<uintptr_t>(stream.native());
  int local = 0;
  for (const uintptr_t value : {uintptr_t{3}, uintptr_t{12345}, known + 1, known - 8,
                                reinterpret_cast<uintptr_t>(&local), UINTPTR_MAX})
    expect_refused(number(value));
}

TEST(HostHandles, ADestroyedStreamIsRefused) {
  std::optional stream{Stream{}};
  const native::stream handle = stream->native();
  stream->synchronize();
  stream.reset();
  expect_refused(handle);
}

TEST(HostHandles, AHandleThatWasReleasedIsTaken) {
  const native::stream handle = Stream{}.release();
  EXPECT_TRUE(StreamRef::from_native(handle).query());
  Stream{Stream::from_native(handle, Device{0}, Ownership::take)}.synchronize();
  expect_refused(handle);
}
}  // namespace
