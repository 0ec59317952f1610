// SPDX-License-Identifier: Apache-2.0
/// The whole command in this process: its arguments are the input's first line, its file the rest.
/// It ends with status 0, 1 or 2. With 0 the result is right; else no file is made. Names of files
/// have no '/', so that nothing outside the fuzzer's folder is touched.
#include "byte_map.hpp"

#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

int runnel_main(int argc, char** argv);  // tools/main.cpp, which the build renames

namespace {

namespace fs = std::filesystem;

void require(bool holds) {
  if (!holds) std::abort();
}

/// A folder of the fuzzer's own, which is the current one from then on. Nothing is printed after
/// that, but by the fuzzer.
const fs::path& folder() {
  static const fs::path path = [] {
    std::string name = (fs::temp_directory_path() / "runnel-fuzz-XXXXXX").string();
    require(mkdtemp(name.data()) != nullptr);
    fs::current_path(name);
    require(std::freopen("/dev/null", "w", stdout) != nullptr);
    std::atexit([] {
      std::error_code none;
      fs::remove_all(folder(), none);
    });
    return fs::path{name};
  }();
  return path;
}

/// The input's first line, cut at tabs. IN and OUT stand for the two files.
std::vector<std::string> arguments_of(std::string_view line) {
  std::vector<std::string> arguments{"runnel"};
  for (std::size_t begin = 0; begin <= line.size() && arguments.size() < 24;) {
    const std::size_t end = std::min(line.find('\t', begin), line.size());
    std::string argument{line.substr(begin, end - begin)};
    std::replace(argument.begin(), argument.end(), '/', '_');
    std::replace(argument.begin(), argument.end(), '\0', '_');
    arguments.push_back(argument);
    begin = end + 1;
  }
  return arguments;
}

std::string contents(const fs::path& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

/// After success, OUT is a map of the input.
void require_right(const std::string& in, const std::string& out) {
  const auto is_map = [&](std::string_view name) {
    const tool::ByteMap map = tool::byte_map(name);
    return in.size() == out.size() &&
           std::equal(in.begin(), in.end(), out.begin(), [&](char from, char to) {
             return map.to[static_cast<unsigned char>(from)] == static_cast<unsigned char>(to);
           });
  };
  require(std::any_of(tool::byte_map_names.begin(), tool::byte_map_names.end(), is_map));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const std::size_t line = std::min(text.find('\n'), text.size());
  if (text.substr(0, line).find("bench") != text.npos) return 0;  // takes seconds
  for (const fs::directory_entry& left : fs::directory_iterator{folder()}) fs::remove_all(left);

  const std::string in{text.substr(std::min(line + 1, text.size()))};
  std::ofstream{"IN", std::ios::binary} << in;
  std::vector<std::string> arguments = arguments_of(text.substr(0, line));
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  const int status = runnel_main(static_cast<int>(arguments.size()), pointers.data());

  require(0 <= status && status <= 2);
  require(contents("IN") == in);
  const auto made = std::distance(fs::directory_iterator{"."}, fs::directory_iterator{}) - 1;
  require(status == 0 ? made <= 3 : made == 0);
  if (status == 0 && fs::exists("OUT") && made == 1) require_right(in, contents("OUT"));
  return 0;
}
