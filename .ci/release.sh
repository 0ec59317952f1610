# SPDX-License-Identifier: Apache-2.0
# Sourced by parts.sh: parts of the release run that need no other system than this one.

# All of a release but the tag: the tarball, built, tested, used and installed without git.
part_tarball() {
  need_consumers
  CXX=g++ scripts/release --rehearse
}

# g++'s ASan and UBSan with the usual optimisation.
part_gcc_sanitizers() {
  need_build_tools
  install_missing
  CXX=g++ configure gcc_sanitizers -Dgpu_backend=host -Db_sanitize=address,undefined -Dbenchmarks=disabled
  ninja -C build-ci/gcc_sanitizers
  ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
    run_tests build-ci/gcc_sanitizers --no-suite lint -t 10
}

# clang's program at its own speed.
part_clang_plain() {
  need_build_tools
  need_clang
  CXX=clang++ configure clang_plain -Dgpu_backend=host -Dwerror=true
  ninja -C build-ci/clang_plain
  run_tests build-ci/clang_plain --suite conformance --suite tool --suite examples
}

# With the usual optimisation, and the command, too.
part_tsan_long() {
  need_build_tools
  install_missing
  under_tsan
  CXX=g++ configure tsan_long -Dgpu_backend=host -Db_sanitize=thread -Dexamples=disabled -Dbenchmarks=disabled
  ninja -C build-ci/tsan_long
  run_tests build-ci/tsan_long --suite conformance --suite tool -t 10
}

# Each order of execution, one and two devices, with and without what devices may lack.
part_standin_long() {
  build_cuda
  run_tests build-ci/cuda --suite standin
  build_hip
  run_tests build-ci/hip --suite standin
}

# A larger sample of the fault sweep. `meson compile sweep-all` is all of it.
part_sweep_long() {
  build_cuda
  sweep cuda --bounded 240
  sweep cuda --bounded 120 --scheduler lazy --seed 2
  build_hip
  sweep hip --bounded 240
}

# The host backend, optimised as usual, for what is run often.
build_host_long() {
  need_build_tools
  install_missing
  CXX=g++ configure host_long -Dgpu_backend=host -Dexamples=disabled -Dbenchmarks=disabled
  ninja -C build-ci/host_long
}

# Each allocation and each thread start fails, in each scenario.
part_running_out() {
  build_host_long
  exhaustion host_long
  build_cuda
  exhaustion cuda
  exhaustion cuda --scheduler lazy --seed 2
  build_hip
  exhaustion hip
}

# 1,000 exits and 1,000 forks on each backend; load of full size on the host backend, samples on the stand-ins.
part_exits_and_load() {
  build_host_long
  tests/exits/exits.py build-ci/host_long/tests/exits/exits
  local load=build-ci/host_long/tests/load/load_test vendor
  "$load" enqueue
  "$load" streams
  "$load" soak
  for vendor in cuda hip; do
    "build_$vendor"
    export LD_LIBRARY_PATH=$PWD/build-ci/$vendor/tests/standin RUNNEL_STANDIN=1
    tests/exits/exits.py "build-ci/$vendor/tests/exits/exits"
    for scheduler in eager lazy random; do
      STANDIN_SCHEDULER=$scheduler "build-ci/$vendor/tests/load/load_test" soak --seconds 20
    done
    unset LD_LIBRARY_PATH RUNNEL_STANDIN
  done
}

# The suite again and again beside busy processes, in another order each time.
part_repeat() {
  build_host_long
  RUNNEL_EXIT_CASES=$PWD/build-ci/host_long/tests/conformance/exit_cases \
    tests/repeat/repeat.py build-ci/host_long/tests/conformance/conformance --times "${REPETITIONS:-20}"
}

# libFuzzer on what comes from outside, 60 s each.
part_fuzz() {
  need_build_tools
  need_clang
  need libclang-rt-14-dev test -f "$(clang++ -print-file-name="libclang_rt.fuzzer-$(uname -m).a")"
  install_missing
  CXX=clang++ configure fuzz -Dgpu_backend=host -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=1 -Ddebug=false \
    -Dexamples=disabled -Dbenchmarks=disabled
  ninja -C build-ci/fuzz fuzz-all
}

# Other people's builds of a library that was optimised at link time.
part_consumers_lto() {
  need_build_tools
  need_consumers
  CXX=g++ configure consumers_lto -Dgpu_backend=host -Ddefault_library=static -Db_lto=true -Dbuildtype=release -Dbenchmarks=disabled
  ninja -C build-ci/consumers_lto
  run_tests build-ci/consumers_lto --suite consumers --suite examples
}
