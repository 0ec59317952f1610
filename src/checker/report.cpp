// SPDX-License-Identifier: Apache-2.0
#include "checker/report.hpp"

#include <sstream>

namespace runnel::inline RUNNEL_ABI::checker {
namespace {

const char* title_of(Fault fault) noexcept {
  constexpr const char* titles[] = {
      "a missing wait: two streams use the same memory, and nothing orders the two operations",
      "a missing wait: the host uses memory before a stream is done with it",
      "a missing wait: memory is used by a stream that does not wait for its allocation",
      "memory that is freed too early: a stream may still be using it",
      "use of memory that was freed",
      ("two operations of a batch that use the same memory: operations of a batch have no order "
       "among each other"),
      "memory that is unpinned too early: a stream may still be using it"};
  return titles[static_cast<size_t>(fault)];
}

const char* verb_of(detail::MemoryAccess access) noexcept {
  return access == detail::MemoryAccess::write ? "writes" : "reads";
}

void add_place(std::ostringstream& text, StackId stack) {
  const std::string lines = checker::text_of(stack);
  text << (lines.empty() ? "      (no names: the program has no symbols)\n" : lines);
}

/// As in "copy a batch, operations[3],".
void add_name(std::ostringstream& text, const Finding& finding, size_t which) {
  text << "  " << which + 1 << ". " << (which == 0 ? finding.earlier : finding.later).operation;
  if (finding.in_batch) text << ", operations[" << (*finding.in_batch)[which] << "],";
}

/// Advice for the user, in terms of the two streams.
void add_advice(std::ostringstream& text, const Finding& finding, const Order& order) {
  if (finding.fault == Fault::used_after_free) {
    text << "  The memory must live until operation 2 is submitted.\n";
    return;
  }
  const uint32_t first = finding.earlier.epoch.stream;
  const std::string& earlier = order.text_of(first);
  const std::string later = finding.later_stream ? order.text_of(*finding.later_stream) : "";
  const bool waits_too_early =
      finding.later_stream && order.awaited_number(*finding.later_stream, first) > 0;
  switch (finding.fault) {
    case Fault::unordered:
    case Fault::allocated_later:
      if (waits_too_early)
        text << "  " << later << " waits for earlier work of " << earlier
             << " only: record the event, or call wait_stream(), behind operation 1.\n";
      else
        text << "  Missing, between the two: " << later << " has to wait for " << earlier
             << ", by wait_stream() or by an event.\n";
      break;
    case Fault::host_too_early:
      text << "  Missing, between the two: synchronize " << earlier
           << ", or an event that is recorded behind operation 1.\n";
      break;
    case Fault::freed_too_early:
      text << "  Missing, before the memory is freed: " << later << " has to wait for " << earlier
           << ", above all if any work uses its results.\n"
           << "  If none does, record_stream(" << earlier
           << ") on the buffer: that delays the free, and orders nothing else.\n"
           << "  The checker sees kernels and host functions only by declare_reads() and "
              "declare_writes().\n";
      break;
    case Fault::unpinned_in_flight:
      text << "  Missing, before the memory is unpinned: synchronize " << earlier << ".\n";
      break;
    case Fault::within_batch:
      text << "  Missing, between the two: an order. Give operation 2 to a call of its own, behind "
              "the batch.\n";
      break;
    case Fault::used_after_free:
      break;
  }
}

}  // namespace

std::string text_of(const Finding& finding, const Order& order) {
  std::ostringstream text;
  text << "runnel: the checker found " << title_of(finding.fault) << ".\n";
  add_name(text, finding, 0);
  if (finding.fault == Fault::used_after_free)
    text << ", called by\n";
  else
    text << " " << verb_of(finding.earlier_access) << " in "
         << order.text_of(finding.earlier.epoch.stream) << ", submitted by\n";
  add_place(text, finding.earlier.stack);
  add_name(text, finding, 1);
  if (finding.fault != Fault::freed_too_early && finding.fault != Fault::unpinned_in_flight)
    text << " " << verb_of(finding.later_access);
  if (finding.later_stream) text << " in " << order.text_of(*finding.later_stream);
  text << ", " << (finding.later_stream ? "submitted by\n" : "called by\n");
  add_place(text, finding.later.stack);
  text << "  Both use " << finding.end - finding.begin << " bytes at 0x" << std::hex
       << finding.begin << std::dec << ".\n";
  add_advice(text, finding, order);
  return text.str();
}

}  // namespace runnel::inline RUNNEL_ABI::checker
