// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checker.hpp"

namespace sweep {

/// @{ A communicator of one process: operations in several streams, a part, ends with an operation
/// under way, an abort.
void mpi_operations(Checker& c);
void ccl_operations(Checker& c);
///@}
/// Operations that a graph holds.
void ccl_captured(Checker& c);
/// Two devices, and operations that are enqueued together.
void ccl_devices(Checker& c);
/// The same with every verb.
void ccl_verbs(Checker& c);
/// Parts of the two devices' communicators, which end with an operation under way.
void ccl_parts(Checker& c);
/// One of two devices does not take part.
void ccl_timeout(Checker& c);
/// An operation meets an error, and waits until it is aborted. Requires: STANDIN_CCL_FAULT says so.
void ccl_error(Checker& c);

}  // namespace sweep
