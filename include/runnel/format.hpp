// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_streams
/// `std::format("{}", stream)` for streams, events, devices and priorities, if the standard library
/// has `std::format`. `to_string` and `<<` work everywhere.
#pragma once

#include <runnel/event.hpp>

#include <version>

#ifdef __cpp_lib_format
#include <format>

template <class Char>
struct std::formatter<runnel::Device, Char> : std::formatter<std::string, Char> {
  auto format(runnel::Device device, auto& context) const {
    return std::formatter<std::string, Char>::format(to_string(device), context);
  }
};
template <class Char>
struct std::formatter<runnel::Priority, Char> : std::formatter<int, Char> {
  auto format(runnel::Priority priority, auto& context) const {
    return std::formatter<int, Char>::format(priority.value, context);
  }
};
template <class Char>
struct std::formatter<runnel::StreamRef, Char> : std::formatter<std::string, Char> {
  auto format(runnel::StreamRef stream, auto& context) const {
    return std::formatter<std::string, Char>::format(to_string(stream), context);
  }
};
template <class Char>
struct std::formatter<runnel::Stream, Char> : std::formatter<runnel::StreamRef, Char> {};
template <class Event, class Char>
  requires std::is_base_of_v<runnel::detail::EventBase, Event>
struct std::formatter<Event, Char> : std::formatter<std::string, Char> {
  auto format(const Event& event, auto& context) const {
    return std::formatter<std::string, Char>::format(to_string(event), context);
  }
};
#endif
