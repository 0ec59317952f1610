// SPDX-License-Identifier: Apache-2.0
#include <runnel/overlap_bytes.hpp>

#include "base/check.hpp"
#include "overlap/plan.hpp"

#include <cstddef>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

/// The inputs, the output and the function of one run. Checks at run time what overlap() checks at
/// compile time.
struct ErasedEnds {
  ErasedEnds(std::span<const AnyOverlapEnd> from, const AnyOverlapEnd& to,
             OverlapBytesFunction called)
      : output{to.end_}, function{called}, in(from.size()) {
    if (from.empty()) throw_invalid_argument(overlap_operation, "there is no input");
    for (const AnyOverlapEnd& each : from) inputs.push_back(checked_input(each.end_));
    if (to.end_.is_read_only) throw_invalid_argument(overlap_operation, "the output is read-only");
  }
  [[nodiscard]] static const OverlapEnd& checked_input(const ErasedEnd& end) {
    const bool is_sink = end.kind == OverlapEnd::Kind::function && end.read == nullptr;
    if (end.kind == OverlapEnd::Kind::none || is_sink || end.per_chunk != 0 || end.filtered)
      throw_invalid_argument(overlap_operation,
                             "an input is of a form that only an output can have");
    return end;
  }
  static void run(void* ends, StreamRef stream, const OverlapArguments& arguments,
                  const OverlapChunk& chunk) {
    auto& [inputs, output, function, in] = *static_cast<ErasedEnds*>(ends);
    for (size_t i = 0; i < in.size(); ++i)
      in[i] = {static_cast<const std::byte*>(arguments.in[i]),
               arguments.in_elements[i] * inputs[i].element_bytes};
    const bool has_output = output.kind != OverlapEnd::Kind::none;
    function.run(function.function, stream,
                 {.in = in,
                  .out = {static_cast<std::byte*>(arguments.out),
                          has_output ? arguments.out_elements * output.element_bytes : 0},
                  .count = {arguments.count, output.filtered ? size_t{1} : 0}},
                 chunk);
  }

  std::vector<OverlapEnd> inputs{};
  OverlapEnd output;
  OverlapBytesFunction function;
  // The inputs of the current chunk; chunks are processed one after the other.
  std::vector<DeviceSpan<const std::byte>> in;
};

OverlapResult run_overlap_bytes(std::span<const AnyOverlapEnd> inputs, const AnyOverlapEnd& output,
                                const OverlapOptions& options, OverlapBytesFunction function) {
  ErasedEnds ends{inputs, output, function};
  return run_overlap(ends.inputs.data(), ends.inputs.size(), ends.output, options,
                     {&ends, &ErasedEnds::run});
}

}  // namespace runnel::inline RUNNEL_ABI::detail
