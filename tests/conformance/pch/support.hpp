// SPDX-License-Identifier: Apache-2.0
/// What every file of this suite includes, compiled once.
#include "../support.hpp"
