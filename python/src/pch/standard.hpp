// SPDX-License-Identifier: Apache-2.0
// The precompiled header of the binding. Each source still includes what it uses: builds with
// -Db_pch=false prove it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <runnel/completion.hpp>
#include <runnel/copy.hpp>
#include <runnel/error.hpp>
#include <runnel/event.hpp>
#include <runnel/stream.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>
