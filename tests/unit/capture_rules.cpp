// SPDX-License-Identifier: Apache-2.0
// What each operation does while streams are being captured.
#include "device/capture_rules.hpp"

#include <gtest/gtest.h>

#include <cctype>
#include <cstddef>
#include <string>

namespace {
using namespace runnel::detail;
using enum CaptureCase;
using enum InACapture;

TEST(CaptureRules, EachCaseHasItsPlaceInTheTable) {
  for (std::size_t i = 0; i < capture_cases; ++i)
    EXPECT_EQ(static_cast<std::size_t>(capture_rules[i].what), i);
}

TEST(CaptureRules, WhatAGraphCanRepeatBecomesANode) {
  for (const CaptureCase each : {launch_graph, record_event, wait_for_event, launch_host_function,
                                 keep_object, allocate_memory, free_memory})
    EXPECT_EQ(capture_rule(each).happens, node) << static_cast<int>(each);
}

TEST(CaptureRules, WhatNeedsResultsOrWouldBreakTheCaptureIsRefused) {
  for (const CaptureCase each : {query_stream, wait_for_stream, read_element, submit_completion,
                                 use_value, prefetch, begin_capture, launch_unordered_graph,
                                 ask_captured_event, default_stream_work, wait_for_device, overlap})
    EXPECT_EQ(capture_rule(each).happens, refused) << static_cast<int>(each);
}

TEST(CaptureRules, TheLibrarysOwnCallsRunBeside) {
  EXPECT_EQ(capture_rule(internal_call).happens, runs_beside);
}

TEST(CaptureRules, OnlyARefusalHasAReason) {
  for (const CaptureRule& rule : capture_rules) {
    const std::string reason = rule.reason;
    EXPECT_EQ(reason.empty(), rule.happens != refused) << static_cast<int>(rule.what);
    if (reason.empty()) continue;
    EXPECT_TRUE(std::islower(static_cast<unsigned char>(reason[0])) && reason.back() != '.')
        << reason;
  }
}

TEST(CaptureRules, TheCasesAboveAreAll) {
  constexpr std::size_t nodes = 7, refusals = 12, beside = 1;
  EXPECT_EQ(capture_cases, nodes + refusals + beside);
}

}  // namespace
