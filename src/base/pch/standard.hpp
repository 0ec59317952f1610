// SPDX-License-Identifier: Apache-2.0
/// The precompiled header with the most common standard headers. Each source still includes what it
/// uses: builds with -Db_pch=false prove it.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>
