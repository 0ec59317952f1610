# SPDX-License-Identifier: Apache-2.0
# The parts of CI, each a function part_NAME that is run by `bash -eu` in the repository's root; one that cannot do its work ends with
# 77, which counts as failed. To add a part, write the function and put its name into the list, in the order in which they should run.
parts=(
  scripts_test
  gcc_werror
  clang_werror
  asan_ubsan
  tsan
  lint
  header_alone
  format
  cuda_12
  hip_versions
)

. scripts/setup.sh
. .ci/versions.sh

# build_and_test FOLDER TEST-ARGUMENTS -- SETUP-OPTIONS: on the host backend, which every machine has.
build_and_test() {
  local folder=build-ci/$1
  shift
  local tests=()
  while [ "$1" != -- ]; do
    tests+=("$1")
    shift
  done
  shift
  # From nothing, so that no option of an earlier run stays.
  rm -rf "$folder"
  meson setup "$folder" -Dgpu_backend=host "$@"
  ninja -C "$folder"
  "${under[@]}" meson test -C "$folder" --no-rebuild --print-errorlogs "${tests[@]}"
}
under=()

need_clang() {
  need clang command -v clang++
  install_missing
}

part_scripts_test() { ./scripts/test; }

part_gcc_werror() {
  CXX=g++ build_and_test gcc_werror --suite conformance --suite tool --suite examples -- -Dwerror=true -Dbuildtype=release
}

part_clang_werror() {
  need_clang
  CXX=clang++ build_and_test clang_werror --suite conformance --suite tool --suite examples -- -Dwerror=true
}

# A test may take ten times as long as without instruments.
part_asan_ubsan() {
  # Some cases ask for more memory than there is.
  ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 CXX=g++ build_and_test asan_ubsan --no-suite lint -t 10 -- \
    -Db_sanitize=address,undefined -Dbuildtype=debugoptimized -Dbenchmarks=disabled
}

part_tsan() {
  # Kernels that spread addresses widely are more than this sanitizer of g++ 12 and clang 14 can map.
  setarch "$(uname -m)" -R true 2>/dev/null && under=(setarch "$(uname -m)" -R)
  TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:allocator_may_return_null=1 CXX=g++ build_and_test tsan --suite conformance --suite tool -t 10 -- \
    -Db_sanitize=thread -Dbuildtype=debugoptimized -Dbenchmarks=disabled -Dexamples=disabled
}

# In the build of scripts_test. Here nothing that a rule needs may be missing, so a rule that skips is a rule that did not run.
part_lint() {
  need clang-format-14 command -v clang-format-14
  install_missing
  ninja -C build
  meson test -C build --no-rebuild --print-errorlogs --suite lint | tee build/lint.txt
  [ "${PIPESTATUS[0]}" -eq 0 ] || return 1
  ! grep -E '^ *[0-9]+/[0-9]+ .* SKIP' build/lint.txt || return 77
}

# The lint rule uses g++; this is the other compiler.
part_header_alone() {
  need_clang
  python3 tests/lint/header_alone.py build/include -- g++
  python3 tests/lint/header_alone.py build/include -- clang++
}

part_format() {
  need clang-format-14 command -v clang-format-14
  install_missing
  python3 tests/lint/format.py
}
