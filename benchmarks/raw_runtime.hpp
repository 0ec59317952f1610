// SPDX-License-Identifier: Apache-2.0
/// The runtime's calls as a program would make them: what the library's own are compared with. For
/// some of them the library takes the driver's form, which is quicker.
#pragma once

#include "runtime.hpp"

namespace bench::raw {

template <class Function>
[[nodiscard]] auto of_runtime(Function& function) {
  if constexpr (requires { function.of_runtime; })
    return function.of_runtime;
  else
    return &function;
}

namespace rt = runnel::rt;
inline const auto stream_query = of_runtime(rt::stream_query);
inline const auto stream_synchronize = of_runtime(rt::stream_synchronize);
inline const auto stream_wait_event = of_runtime(rt::stream_wait_event);
inline const auto launch_host_func = of_runtime(rt::launch_host_func);
inline const auto event_record = of_runtime(rt::event_record);
/// From the default pool, as most programs allocate.
inline rt::error malloc_async(void** memory, std::size_t bytes, runnel::native::stream stream) {
  rt::memory_pool pool{};
  const rt::error e = rt::device_get_default_memory_pool(&pool, 0);
  return e != rt::error{} ? e : of_runtime(rt::malloc_from_pool)(memory, bytes, pool, stream);
}
inline const auto free_async = of_runtime(rt::free_async);
inline const auto copy_async = of_runtime(rt::copy_async);
inline const auto fill_async = of_runtime(rt::fill_async);

}  // namespace bench::raw
