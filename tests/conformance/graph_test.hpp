// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support.hpp"

namespace conformance {

/// Two streams, and graphs that are captured on the first one.
class GraphTest : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (IsSkipped()) return;
    stream.emplace();
    side.emplace();
  }
  void TearDown() override {
    side.reset();
    stream.reset();
    Conformance::TearDown();
  }
  template <class Work>
  Graph graph_of(Work&& work) const {
    return capture(*stream, std::forward<Work>(work));
  }
  /// A graph of one host function.
  template <class F>
  Graph graph_calling(F function) const {
    return graph_of([&] { stream->launch_host_func(std::move(function)); });
  }
  void run(const Graph& graph) const {
    graph.launch(*stream);
    stream->synchronize();
  }

  std::optional<Stream> stream, side;
};

}  // namespace conformance
