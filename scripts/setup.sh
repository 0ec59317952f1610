# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts: finds what is missing on a Debian machine, installs it, and sets up a build folder.

say() { printf '\n== %s\n' "$*"; }

# need PACKAGE COMMAND...: the package is missing if the command fails. Asks for what is used, not for who installed it.
missing=()
need() {
  local package=$1
  shift
  "$@" >/dev/null 2>&1 || missing+=("$package")
}
has_library() { pkg-config --exists "$1"; }

# What the library and the command are built with.
need_command_tools() {
  need g++ command -v g++
  need meson command -v meson
  need ninja-build command -v ninja
  need pkg-config command -v pkg-config
  need python3 command -v python3
  need binutils command -v nm
  need libcli11-dev has_library CLI11
  need nlohmann-json3-dev has_library nlohmann_json
}

# And the tests and the benchmarks.
need_build_tools() {
  need_command_tools
  need libgtest-dev has_library gtest_main
  need libbenchmark-dev has_library benchmark
}

# The version of clang-format that formats the sources, from PyPI: Debian's is older. In build-format, an environment of its own.
need_clang_format() {
  local version
  version=$(python3 tests/analysis/lint/format.py --version)
  build-format/bin/clang-format --version 2>/dev/null | grep -q "version $version" && return
  need python3-venv python3 -c 'import ensurepip'
  install_missing
  python3 -m venv build-format
  build-format/bin/pip install --quiet "clang-format==$version"
}

# Installs what is missing, or says what to ask for and stops.
install_missing() {
  [ ${#missing[@]} -gt 0 ] || return 0
  local as_root=()
  if ! command -v apt-get >/dev/null; then
    echo "This machine has no apt-get. Please install what Debian calls: ${missing[*]}" >&2
    exit 1
  elif [ "$(id -u)" -ne 0 ]; then
    # A password can be asked for only where somebody sits.
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; }; }; then
      as_root=(sudo)
    else
      echo "These packages are missing, and only root may install them. Please ask for: apt-get install ${missing[*]}" >&2
      exit 1
    fi
  fi
  say "Installing ${missing[*]}"
  local quietly=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
  "${as_root[@]}" "${quietly[@]}" update
  "${as_root[@]}" "${quietly[@]}" install --yes --no-install-recommends "${missing[@]}" >/dev/null
  missing=()
  hash -r
}

# at_least WANTED FOUND: whether one version is no older than the other.
at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

# set_up_build FOLDER OPTIONS...: makes the folder, or gives one that is there these options.
set_up_build() {
  local folder=$1 wanted=1.0.1 found
  shift
  found=$(meson --version)
  if ! at_least "$wanted" "$found"; then
    echo "Meson $found is too old, runnel needs $wanted: python3 -m venv build-meson && build-meson/bin/pip install meson, and put build-meson/bin first in PATH" >&2
    exit 1
  fi
  if [ -f "$folder/build.ninja" ]; then
    [ $# -eq 0 ] || meson configure "$folder" "$@"
  else
    meson setup "$folder" "$@"
  fi
}
