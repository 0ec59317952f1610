# SPDX-License-Identifier: Apache-2.0
# The parts of CI, each a function part_NAME that is run by `bash -eu` in the repository's root; one that cannot do its work ends with
# 77, which counts as failed. To add a part, write the function and put its name into the list, in the order in which they should run.
parts=(
  scripts_test
  gcc_werror
  clang_werror
  asan_ubsan
  tsan
  tsan_standin
  lint
  header_alone
  format
  consumers
  cuda_no_driver
  cuda_standin
  hip_standin
  sweep
  cuda_12
  hip_versions
  newer_suite
  kokkos
)
# Not in the list, for their time: .ci/run release newcomer

. scripts/setup.sh
. .ci/versions.sh
. .ci/newcomer.sh

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
  # Whose completions are tested.
  need fish command -v fish
  need zsh command -v zsh
  install_missing
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

# Kernels that spread addresses widely are more than this sanitizer of g++ 12 and clang 14 can map.
under_tsan() {
  setarch "$(uname -m)" -R true 2>/dev/null && under=(setarch "$(uname -m)" -R)
  export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:allocator_may_return_null=1
}

part_tsan() {
  under_tsan
  CXX=g++ build_and_test tsan --suite conformance --suite tool -t 10 -- \
    -Db_sanitize=thread -Dbuildtype=debugoptimized -Dbenchmarks=disabled -Dexamples=disabled
}

# What only a device's backend runs: staging, its workers and rings, copies by the calling thread, device memory. The stand-in is watched, too.
part_tsan_standin() {
  find_cuda
  under_tsan
  build_gpu cuda_tsan -t 10 'conformance, scheduler random, seed 1' 'staging, 2 channel(s) of 1024' -- \
    -Dgpu_backend=cuda -Db_sanitize=thread -Dbuildtype=debugoptimized -Dtools=disabled
}

# In the build of scripts_test. Here nothing that a rule needs may be missing, so a rule that skips is a rule that did not run.
part_lint() {
  need clang-format-14 command -v clang-format-14
  need doxygen command -v doxygen
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

# find_cuda: a CUDA runtime of the machine, or the newest one's wheel, unpacked; sets CUDA_PATH.
find_cuda() {
  need_build_tools
  install_missing
  local found
  found=$(python3 backends/cuda/find_cudart.py | head -n 1)
  if [ -n "$found" ]; then
    export CUDA_PATH=${found%/include}
    return
  fi
  need python3-pip python3 -m pip --version
  install_missing
  local at=$PWD/build-ci/cuda-wheel
  if [ ! -d "$at/nvidia" ]; then
    unpack_wheel "$at" nvidia-cuda-runtime
    # The headers of CUDA 13 are in wheels of their own.
    unpack_wheel "$at" nvidia-cuda-crt
    unpack_wheel "$at" nvidia-cuda-cccl
  fi
  CUDA_PATH=$(dirname "$(dirname "$(find "$at" -name cuda_runtime_api.h | head -n 1)")")
  export CUDA_PATH
}

need_hip() {
  need_build_tools
  need libamdhip64-dev test -e /usr/include/hip/hip_version.h
  install_missing
}

# build_gpu FOLDER TEST-ARGUMENTS -- SETUP-OPTIONS: like build_and_test, for a vendor's backend. That nothing ran is a failure.
build_gpu() {
  local folder=build-ci/$1
  shift
  local tests=()
  while [ "$1" != -- ]; do
    tests+=("$1")
    shift
  done
  shift
  [ -f "$folder/build.ninja" ] || CXX=g++ meson setup "$folder" -Dwerror=true -Dexamples=disabled -Dbenchmarks=disabled "$@"
  ninja -C "$folder"
  [ ${#tests[@]} -eq 0 ] && return
  "${under[@]}" meson test -C "$folder" --no-rebuild --print-errorlogs "${tests[@]}" | tee "$folder/tests.txt"
  [ "${PIPESTATUS[0]}" -eq 0 ] || return 1
  grep -Eq '^Ok: +[1-9]' "$folder/tests.txt" || return 77
}

# says_why_none RUNNEL: `runnel info` works, and says in one line why there is no device.
says_why_none() { "$1" info | grep 'none: '; }

# Other people's builds, of a library that was optimised at link time; scripts_test has them of one as it is.
part_consumers() {
  need cmake command -v cmake
  need make command -v make
  need_clang
  CXX=g++ build_and_test consumers --suite consumers --suite examples -- -Ddefault_library=static -Db_lto=true -Dbuildtype=release \
    -Dbenchmarks=disabled
}

# All of a release but the tag: the tarball, built, tested, used and installed without git.
part_release() {
  need cmake command -v cmake
  need make command -v make
  need_clang
  CXX=g++ scripts/release --rehearse
}

# The real runtime, warnings as errors, no device.
part_cuda_no_driver() {
  find_cuda
  build_gpu cuda -- -Dgpu_backend=cuda -Dtools=enabled
  expect_no_device "$PWD/build-ci/cuda/tests/conformance/conformance" "$PWD/build-ci/cuda/no-device.json"
  says_why_none build-ci/cuda/tools/runnel
  # A driver of CUDA 11, as far as the runtime asks it.
  mkdir -p build-ci/old-driver
  printf 'extern "C" int cuInit(unsigned) { return 0; }\nextern "C" int cuDriverGetVersion(int* version) { return *version = 11040, 0; }\n' |
    g++ -x c++ -shared -fPIC -o build-ci/old-driver/libcuda.so.1 -
  LD_LIBRARY_PATH=$PWD/build-ci/old-driver expect_no_device "$PWD/build-ci/cuda/tests/conformance/conformance" "$PWD/build-ci/cuda/old-driver.json" |
    grep 'install a newer driver'
}

# Each order of execution, one and two devices, with and without what devices may lack.
part_cuda_standin() {
  find_cuda
  build_gpu cuda --suite standin -- -Dgpu_backend=cuda -Dtools=enabled
}

part_hip_standin() {
  need_hip
  build_gpu hip --suite standin -- -Dgpu_backend=hip -Dtools=enabled
  expect_no_device "$PWD/build-ci/hip/tests/conformance/conformance" "$PWD/build-ci/hip/no-device.json"
  says_why_none build-ci/hip/tools/runnel
}

# A sample of the fault sweep: each call of each scenario at least once, for both vendors.
part_sweep() {
  find_cuda
  build_gpu cuda -- -Dgpu_backend=cuda -Dtools=enabled
  need_hip
  build_gpu hip -- -Dgpu_backend=hip -Dtools=enabled
  local standins
  standins=(build-ci/cuda/tests/standin/libcudart.so.*[0-9])
  python3 tests/sweep/sweep.py --scenarios build-ci/cuda/tests/sweep/sweep_scenarios --standin "${standins[0]}" --bounded 100
  python3 tests/sweep/sweep.py --scenarios build-ci/cuda/tests/sweep/sweep_scenarios --standin "${standins[0]}" --bounded 40 --scheduler lazy --seed 2
  standins=(build-ci/hip/tests/standin/libamdhip64.so.*[0-9])
  python3 tests/sweep/sweep.py --scenarios build-ci/hip/tests/sweep/sweep_scenarios --standin "${standins[0]}" --bounded 100
}

# The interop on a real Kokkos: the newest suite's, 5 with OpenMP; and one built with Serial, OpenMP and Threads where KOKKOS_SOURCE names
# a folder with the source. None at all is a failure, except that the registry did not answer.
part_kokkos() {
  local tested=0
  if [ -n "${KOKKOS_SOURCE:-}" ]; then
    need_build_tools
    need cmake command -v cmake
    install_missing
    kokkos_from_source OPENMP
    kokkos_from_source THREADS
    tested=1
  fi
  if suite_root sid g++ meson ninja-build pkg-config python3 libgtest-dev libkokkos-dev; then
    copy_into_root
    in_root bash -eu -c '
      cd /runnel
      rm -rf build
      meson setup build -Dgpu_backend=host -Dkokkos=enabled -Dwerror=true -Dtools=disabled -Dbenchmarks=disabled
      ninja -C build kokkos_tests examples/has_device examples/example_kokkos_heat
      meson test -C build --no-rebuild --print-errorlogs --suite kokkos
      meson test -C build --no-rebuild --print-errorlogs "example kokkos_heat"'
    tested=1
  elif ! answers "$(debian_mirror)"; then
    echo 'the registry of packages does not answer: no Kokkos of a newer suite was tested'
    [ $tested -eq 1 ] || echo 'Kokkos was NOT tested'
    tested=1
  fi
  [ $tested -eq 1 ]
}

# answers URL: somebody is there.
answers() { [ -n "$1" ] && python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=30)' "$1"; }

# kokkos_from_source SPACE: builds and installs Kokkos with Serial and this space, and tests on it.
kokkos_from_source() {
  local at=$PWD/build-ci/kokkos-$1
  cmake -G Ninja -S "$KOKKOS_SOURCE" -B "$at/kokkos" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$at/prefix" \
    -DCMAKE_CXX_STANDARD=20 -DKokkos_ENABLE_SERIAL=ON "-DKokkos_ENABLE_$1=ON"
  ninja -C "$at/kokkos" install
  CXX=g++ build_and_test "kokkos-$1/runnel" --suite kokkos -- -Dkokkos=enabled "-Dcmake_prefix_path=$at/prefix" -Dwerror=true \
    -Dtools=disabled -Dbenchmarks=disabled
}
