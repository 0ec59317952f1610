// SPDX-License-Identifier: Apache-2.0
// The build includes the backend's own config.hpp before all else.
#pragma once
