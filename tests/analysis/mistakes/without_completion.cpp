// SPDX-License-Identifier: Apache-2.0
// A program that uses what needs <runnel/completion.hpp> and does not include it. mistakes.py
// compiles this file, as mistakes.cpp.
#include <runnel/event.hpp>
#include <runnel/stream.hpp>

using namespace runnel;

[[maybe_unused]] static void completion(const Stream& stream, StreamRef view, const Event& event,
                                        const TimedEvent& timed) {
  stream.on_complete([](const auto&) {});  // error: include <runnel/completion.hpp>
  view.on_complete([](const auto&) {});    // error: include <runnel/completion.hpp>
  event.on_complete([](const auto&) {});   // error: include <runnel/completion.hpp>
  timed.on_complete([] {});                // error: include <runnel/completion.hpp>
  static_cast<void>(stream.future());      // error: include <runnel/completion.hpp>
  static_cast<void>(view.future());        // error: include <runnel/completion.hpp>
}
