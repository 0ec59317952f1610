# SPDX-License-Identifier: Apache-2.0
# Sourced by parts.sh: parts of the release run that need no other system than this one.

# All of a release but the tag: the tarball, built, tested, used and installed without git.
part_tarball() {
  need_consumers
  CXX=g++ scripts/release --rehearse
}

# Optimised as a release is, with both kinds of library: the suite, the examples, and other people's builds with either kind.
part_release_build() {
  need_build_tools
  need_consumers
  need_mpi
  CXX=g++ configure release_build -Dgpu_backend=host -Dwerror=true -Dbuildtype=release -Dtests=enabled -Dexamples=enabled -Ddefault_library=both -Dmpi=enabled
  ninja -C build-ci/release_build
  run_tests build-ci/release_build --suite conformance --suite tool --suite examples --suite consumers --suite comm
}

# make_tarball FOLDER: the release's tarball of this commit, with its tests, in that folder; sets tarball.
make_tarball() {
  need_build_tools
  need xz-utils command -v xz
  install_missing
  rm -rf "$1"
  meson setup "$1/build" -Dgpu_backend=host >/dev/null
  meson dist -C "$1/build" --no-tests --formats xztar --allow-dirty >/dev/null
  tarball=$(echo "$1"/build/meson-dist/*.tar.xz)
}

# Debian packages of the tarball, built with the suite and seen by lintian in a bare root; a consumer builds against them when they are installed.
part_debian() {
  make_tarball "$PWD/build-ci/debian"
  suite_root bookworm dpkg-dev debhelper chrpath g++ libcli11-dev libgtest-dev meson nlohmann-json3-dev pkgconf python3 lintian cmake make
  rm -rf "$root/debian"
  mkdir -p "$root/debian"
  cp "$tarball" scripts/debian packaging/debian/tests/consumer "$root/debian/"
  in_root bash -eu -c '
    cd /debian
    ./debian runnel-*.tar.xz packages
    dpkg -i packages/librunnel-host*_*.deb packages/librunnel-dev_*.deb packages/runnel_*.deb packages/runnel-doc_*.deb
    ./consumer'
}

# library_of COMMIT FOLDER: builds that commit's library with debug information, without tests.
library_of() {
  rm -rf "$2"
  mkdir -p "$2/source"
  git archive "$1" | tar -x -C "$2/source"
  CXX=g++ meson setup "$2/build" "$2/source" -Dgpu_backend=host -Dmpi=disabled -Dtools=disabled -Ddebug=true >/dev/null
  ninja -C "$2/build" >/dev/null
}

# The binary interface is that of the newest tag with this SONAME. While there is none, the commit is compared with itself.
part_abi() {
  need_build_tools
  need abigail-tools command -v abidiff
  install_missing
  local at=$PWD/build-ci/abi version tag
  version=$(sed -n "s/^  version: '\(.*\)',$/\1/p" meson.build)
  tag=$(git tag --list "v${version%.*}.*" --sort=-version:refname | head -n 1)
  # A change that breaks programs is seen.
  mkdir -p "$at"
  echo 'int value(int x) { return x; }' | g++ -g -shared -fPIC -x c++ -o "$at/libbefore.so" -
  echo 'long value(long x) { return x; }' | g++ -g -shared -fPIC -x c++ -o "$at/libafter.so" -
  ! abidiff "$at/libbefore.so" "$at/libafter.so" >/dev/null
  library_of "${tag:-HEAD}" "$at/before"
  library_of HEAD "$at/after"
  echo "compared with ${tag:-the same commit, as no tag has this SONAME}"
  abidiff --headers-dir1 "$at/before/source/include" --headers-dir2 "$at/after/source/include" \
    "$at"/before/build/src/librunnel-host.so "$at"/after/build/src/librunnel-host.so
}

# Two builds of the tarball, in folders of different names and depth, install the same files byte for byte.
part_reproducible() {
  make_tarball "$PWD/build-ci/reproducible"
  local at=$PWD/build-ci/reproducible folder
  for folder in one two/deeper; do
    mkdir -p "$at/$folder"
    tar -xf "$tarball" -C "$at/$folder" --strip-components 1
    CXX=g++ meson setup "$at/$folder/build" "$at/$folder" -Dgpu_backend=host -Dmpi=disabled -Ddefault_library=both -Dtools=enabled >/dev/null
    CCACHE_DISABLE=1 ninja -C "$at/$folder/build" >/dev/null
    DESTDIR=$at/installed-${folder%%/*} meson install -C "$at/$folder/build" --no-rebuild >/dev/null
  done
  find "$at/installed-one" -type f | wc -l
  diff -r --no-dereference "$at/installed-one" "$at/installed-two"
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

# What a compiler does not say, and the rules of names and of the length of functions: .clang-tidy. Any complaint is a failure.
part_tidy() {
  build_host_long
  need clang-tidy-14 command -v clang-tidy-14
  install_missing
  python3 - build-ci/host_long <<'PYTHON' | xargs -P "$(nproc)" -n 4 clang-tidy-14 -p build-ci/host_long --quiet --warnings-as-errors='*'
import json, pathlib, sys
build, root = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path.cwd()
for file in sorted({(build / each['file']).resolve() for each in json.loads((build / 'compile_commands.json').read_text())}):
    if file.is_relative_to(root) and file.relative_to(root).parts[0] in ('src', 'backends', 'tools'):
        print(file)
PYTHON
}

# clang's program at its own speed. Without precompiled headers, so that each source includes what it uses.
part_clang_plain() {
  need_build_tools
  need_clang
  install_missing
  CXX=clang++ configure clang_plain -Dgpu_backend=host -Dwerror=true -Db_pch=false
  python3 tests/analysis/lint/header_alone.py build-ci/clang_plain/include -- clang++  # the rule of the lints uses g++
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

# Each race 100 times, by both compilers; the whole suite, by both compilers, with one and two devices.
part_races_long() {
  build_races
  for compiler in g++ clang++; do
    "${under[@]}" python3 tests/analysis/races/run.py "build-ci/races/tests/analysis/races/races-$compiler" 100
  done
  CXX=g++ configure tsan -Dgpu_backend=host "${tsan_options[@]}"
  # clang puts its own operator new into the program, beside the suite's.
  CXX=clang++ configure clang_tsan -Dgpu_backend=host "${tsan_options[@]}" -Db_lundef=false -Dcpp_link_args=-Wl,--allow-multiple-definition
  for build in tsan clang_tsan; do
    for devices in 1 2; do suite_shows_no_race "$build" "$devices" "-$not_with_races"; done
  done
}

# Each order of execution, one and two devices, with and without what devices may lack.
part_standin_long() {
  build_cuda
  run_tests build-ci/cuda --suite standin
  build_hip
  run_tests build-ci/hip --suite standin
  says_why_none build-ci/hip/tools/runnel
}

# A larger sample of the fault sweep. `meson compile sweep-all` is all of it.
part_sweep_long() {
  build_cuda
  sweep cuda --bounded 240
  sweep cuda --bounded 120 --scheduler lazy --seed 2
  sweep cuda --bounded 240 --collectives
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
  tests/stress/exits/exits.py build-ci/host_long/tests/stress/exits/exits
  local load=build-ci/host_long/tests/stress/load/load_test vendor
  "$load" enqueue
  "$load" streams
  "$load" soak
  for vendor in cuda hip; do
    "build_$vendor"
    export LD_LIBRARY_PATH=$PWD/build-ci/$vendor/tests/support/standin RUNNEL_STANDIN=1
    tests/stress/exits/exits.py "build-ci/$vendor/tests/stress/exits/exits"
    for scheduler in eager lazy random; do
      STANDIN_SCHEDULER=$scheduler "build-ci/$vendor/tests/stress/load/load_test" soak --seconds 20
    done
    unset LD_LIBRARY_PATH RUNNEL_STANDIN
  done
}

# The suite again and again beside busy processes, in another order each time.
part_repeat() {
  build_host_long
  RUNNEL_EXIT_CASES=$PWD/build-ci/host_long/tests/conformance/exit_cases \
    scripts/repeat.py build-ci/host_long/tests/conformance/conformance --times "${REPETITIONS:-20}"
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
  CXX=g++ configure consumers_lto -Dgpu_backend=host -Ddefault_library=static -Db_lto=true -Dbuildtype=release -Dtests=enabled -Dexamples=enabled
  ninja -C build-ci/consumers_lto
  run_tests build-ci/consumers_lto --suite consumers --suite examples
}

# Each model check with 100,000 schedules; then a fault at a time in a copy of the sources, which a check must find.
part_models_long() {
  need_build_tools
  install_missing
  CXX=g++ configure models_long -Dgpu_backend=host -Dtools=disabled -Dexamples=disabled -Dbenchmarks=disabled
  ninja -C build-ci/models_long models-all
  CXX=g++ python3 scripts/faults/faults.py models --work build-ci/models_mutated
}

# The Python wheels, by the interpreters that are there.
part_python_wheels() {
  need python3-venv python3 -c 'import ensurepip'
  need python3-dev test -f "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h"
  install_missing
  rm -rf build-ci/python-wheels
  scripts/python-wheels build-ci/python-wheels
}

cross=aarch64-linux-gnu
# Debug information is of no use here, and doubles the time.
cross_options=(--cross-file .ci/aarch64.ini -Dwerror=true -Doptimization=1 -Ddebug=false -Dtools=disabled -Dexamples=disabled
  -Dbenchmarks=disabled -Dkokkos=disabled)

# cross_gtest: GoogleTest for 64-bit ARM from Debian's sources; sets gtest_at.
cross_gtest() {
  gtest_at=$PWD/build-ci/aarch64-gtest
  mkdir -p "$gtest_at"
  local source=/usr/src/googletest/googletest name
  for name in gtest-all gtest_main; do
    "$cross-g++" -std=c++17 -O1 -I"$source/include" -I"$source" -c "$source/src/$name.cc" -o "$gtest_at/$name.o"
  done
  rm -f "$gtest_at/libgtest_main.a"
  "$cross-ar" rcs "$gtest_at/libgtest_main.a" "$gtest_at/gtest-all.o" "$gtest_at/gtest_main.o"
  printf '%s\n' 'Name: gtest_main' 'Description: GoogleTest with its main function' 'Version: 1.12' "Libs: -L$gtest_at -lgtest_main" \
    "Cflags: -isystem $source/include" >"$gtest_at/gtest_main.pc"
}

# one_processor: the first of those that this process may use.
one_processor() { python3 -c 'import os; print(min(os.sched_getaffinity(0)))'; }

# emulated PROGRAM TESTS: of the suite, on an emulated processor. Without tests that start other programs, which would not be emulated; without
# one whose time the emulator does not keep; and without those of memory that cannot be touched, since it ignores how the library asks for that.
# On one processor: on several, qemu 7.2 lets a sequentially consistent load overtake an earlier such store, which the architecture forbids.
# (Two threads that each store and then read the other's variable both read the old value in 1,265 of 200,000 tries.) Streams wait for ever then.
emulated() {
  local left_out='*DeathTest*:Staging.ATruncated*:Staging.PagesWithout*:BlockedFunctions.ShortFunctionsOfAnotherStreamAreNotHeldUp'
  timeout 1200 taskset -c "$(one_processor)" qemu-aarch64 -L "/usr/$cross" "$1" --gtest_brief=1 --gtest_filter="$2-$left_out"
}

# 64-bit ARM, as the processor beside a Grace Hopper GPU: the host backend and the CUDA backend on its stand-in run under qemu; the CUDA
# backend is linked with the runtime of that processor.
part_aarch64() {
  need_build_tools
  need "g++-$cross" command -v "$cross-g++"
  need qemu-user command -v qemu-aarch64
  need googletest test -d /usr/src/googletest
  need python3-pip python3 -m pip --version
  install_missing
  unset CXX  # the cross file names the compiler
  cross_gtest
  configure aarch64 -Dgpu_backend=host "-Dpkg_config_path=$gtest_at" "${cross_options[@]}"
  ninja -C build-ci/aarch64
  emulated build-ci/aarch64/tests/conformance/conformance '*'
  qemu-aarch64 -L "/usr/$cross" build-ci/aarch64/tests/unit/unit
  local at=$PWD/build-ci/aarch64-cuda-wheel package
  if [ ! -d "$at/nvidia" ]; then
    for package in nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl; do
      unpack_wheel "$at" "$package" --platform manylinux2014_aarch64 --platform manylinux_2_27_aarch64
    done
  fi
  CUDA_PATH=$(dirname "$(dirname "$(find "$at" -name cuda_runtime_api.h | head -n 1)")")
  export CUDA_PATH
  configure aarch64_cuda -Dgpu_backend=cuda "-Dpkg_config_path=$gtest_at" "${cross_options[@]}"
  ninja -C build-ci/aarch64_cuda
  local standin=build-ci/aarch64_cuda/tests/support/standin scheduler
  for scheduler in eager random; do
    RUNNEL_STANDIN=1 STANDIN_SCHEDULER=$scheduler STANDIN_SEED=1 QEMU_SET_ENV="LD_LIBRARY_PATH=$standin" \
      emulated build-ci/aarch64_cuda/tests/conformance/conformance 'Batch*:Copies*:Current*:Short*:Staging*'
  done
}
