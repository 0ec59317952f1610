// SPDX-License-Identifier: Apache-2.0
#include "complaint.hpp"

#include "failure.hpp"

#include <runnel/error.hpp>

#include <algorithm>
#include <cstdio>
#include <new>

namespace tool {

namespace {

std::string as_one_line(std::string message) {
  // Messages of the library begin with its name.
  if (message.starts_with("runnel: ")) message.erase(0, 8);
  while (!message.empty() && message.back() == '\n') message.pop_back();
  std::ranges::replace(message, '\n', ' ');
  return printable(message);
}

}  // namespace

Complaint complaint_of(const std::exception_ptr& thrown) try {
  std::rethrow_exception(thrown);
} catch (const std::bad_alloc& error) {
  const auto* ours = dynamic_cast<const runnel::Error*>(&error);
  return {as_one_line(ours ? ours->what() : "out of memory")
              .append("; choose a smaller --chunk or --in-flight"),
          failed_status};
} catch (const Misuse& error) {
  return {as_one_line(error.what()), misused_status};
} catch (const std::exception& error) {
  return {as_one_line(error.what()), failed_status};
}

int print(const Complaint& complaint) {
  std::fprintf(stderr, "runnel: %s\n", complaint.message.c_str());
  return complaint.status;
}

}  // namespace tool
