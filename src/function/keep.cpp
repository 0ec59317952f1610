// SPDX-License-Identifier: Apache-2.0
#include <runnel/keep.hpp>

#include "function/graph_functions.hpp"
#include "slot/capture.hpp"
#include "slot/reclaimer.hpp"
#include "slot/stream_call.hpp"

#include <runnel/completion.hpp>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

constexpr const char* keeping = "keep an object for a stream";

}  // namespace

void prepare_to_keep(StreamRef stream) {
  const StreamCall call{stream, keeping};
  if (!is_capturing(call.slot(), keeping)) [[likely]]
    reclaimer().start(keeping);
}

void keep_object(StreamRef stream, Kept* object) {
  {
    const StreamCall call{stream, keeping};
    if (is_capturing(call.slot(), keeping)) [[unlikely]]
      return add_to_capture(call, object);
  }
  submit_completion(
      stream, make_completion([object](const Outcome&) noexcept { object->destroy(object); }));
}

}  // namespace runnel::inline RUNNEL_ABI::detail
