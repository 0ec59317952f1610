// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <runnel/runnel.hpp>

/// Enqueues x[i] *= factor for each element: a kernel (scale.cu), or a host function
/// (scale_host.cpp).
void scale(runnel::StreamRef stream, runnel::DeviceSpan<float> x, float factor);
