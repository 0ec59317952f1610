# SPDX-License-Identifier: Apache-2.0
# Sourced by parts.sh: the vendors' versions that the machine itself does not have.

version_options=(-Dbuildtype=debugoptimized -Dwerror=true -Dtools=disabled -Dexamples=disabled -Dbenchmarks=disabled)
# Of the suite's orders of execution two; standin_long has all of them.
version_tests=(imports 'conformance, scheduler eager, devices 2' 'conformance, scheduler lazy')

# expect_no_device CONFORMANCE REPORT: beneath it is the vendor's own runtime, and no device. Every case is then a skip that says so, but
# for those of the suite NoDevice, which pass.
expect_no_device() {
  RUNNEL_EXIT_CASES=${1%conformance}exit_cases "$1" --gtest_output="json:$2" >"$2.txt" 2>&1 || { tail -n 40 "$2.txt"; return 1; }
  python3 - "$2" <<'PYTHON'
import json, re, sys
cases = [case for suite in json.load(open(sys.argv[1]))['testsuites'] for case in suite['testsuite']]
skipped = [case for case in cases if case['result'] == 'SKIPPED']
ran = [case['name'] for case in cases if case not in skipped and case['classname'] != 'NoDevice']
reasons = re.findall(r': Skipped\n(\S.*)', open(sys.argv[1] + '.txt').read())
print(f'{len(cases)} cases, {len(cases) - len(skipped)} passed, {len(skipped)} skipped')
for reason in sorted(set(reasons)):
    print(f'  {reasons.count(reason)} skipped: {reason}')
sys.exit(f'{len(reasons)} skips said why; ran without a device: {ran}' if ran or len(reasons) != len(skipped) or len(skipped) == len(cases) else 0)
PYTHON
}

# unpack_wheel FOLDER PACKAGE OPTIONS...: as pip downloads it with these options, but not installed.
unpack_wheel() {
  mkdir -p "$1/wheels"
  python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$1/wheels" "${@:3}" "$2"
  local wheel
  for wheel in "$1"/wheels/*.whl; do
    python3 -m zipfile -e "$wheel" "$1"
    rm "$wheel"
  done
}

# CUDA 12 at its floor and at its newest, beside the toolkit 13 of the other parts; each build is given that CUDA and no other.
part_cuda_12() {
  need_build_tools
  need python3-pip python3 -m pip --version
  install_missing
  local version at
  for version in 12.0 12.9; do
    at=$PWD/build-ci/cuda-$version
    rm -rf "$at"
    unpack_wheel "$at" "nvidia-cuda-runtime-cu12==$version.*"
    # From 12.1 to 12.8 the runtime's headers include nv/target, which comes with another wheel.
    local toolkit=$at/nvidia/cuda_runtime
    if grep -rq '<nv/target>' "$toolkit/include" && [ ! -e "$toolkit/include/nv/target" ]; then
      unpack_wheel "$at" "nvidia-cuda-cccl-cu12==$version.*"
      cp -r "$at/nvidia/cuda_cccl/include/." "$toolkit/include"
    fi
    env -u CUDA_HOME -u CUDA_ROOT -u LD_LIBRARY_PATH CUDA_PATH="$toolkit" CXX=g++ \
      meson setup "$at/build" -Dgpu_backend=cuda "${version_options[@]}"
    ninja -C "$at/build"
    # Seen as the program sees it.
    env -u LD_LIBRARY_PATH ldd "$at/build/tests/conformance/conformance" | grep -F "$toolkit/lib/libcudart.so.12"
    LD_LIBRARY_PATH='' expect_no_device "$at/build/tests/conformance/conformance" "$at/no-device.json"
    meson test -C "$at/build" --no-rebuild --print-errorlogs "${version_tests[@]}"
  done
}

# debian_mirror: where this machine's own apt gets Debian from.
debian_mirror() {
  local codename
  codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
  apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(LABEL)' 'Created-By: Packages' |
    awk -v codename="$codename" '$2 == codename && $3 == "Debian" { print $1; exit }'
}

# suite_root SUITE PACKAGE...: a root directory of that Debian suite with these packages, made if it is not there; sets root.
suite_root() {
  local suite=$1
  shift
  root=$PWD/build-ci/roots/$suite
  [ "$(id -u)" -eq 0 ] || { echo 'only root may make a root directory of another Debian suite'; return 77; }
  if [ ! -e "$root.made" ]; then
    need debootstrap command -v debootstrap
    install_missing
    apt-get -qq update
    local mirror script=/usr/share/debootstrap/scripts/$suite
    mirror=$(debian_mirror)
    [ -n "$mirror" ] || { echo 'the configuration of apt names no mirror of Debian'; return 77; }
    [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid  # this debootstrap is older than the suite
    rm -rf "$root"
    mkdir -p "$root"
    # debootstrap does not read apt's configuration.
    local proxy=
    eval "$(apt-config shell proxy Acquire::http::Proxy)"
    http_proxy=${proxy:-${http_proxy:-}} debootstrap --variant=minbase "$suite" "$root" "$mirror" "$script" >"$root.txt" 2>&1 ||
      { tail -n 40 "$root.txt"; return 1; }
    # A mirror may be a picture of some day before; what is not in a suite may be in the one that it is made from.
    cat >"$root/etc/apt/apt.conf.d/90runnel" <<APT
Acquire::Check-Valid-Until "false";
Acquire::http::Proxy "$proxy";
APT::Install-Recommends "false";
Dpkg::Use-Pty "0";
APT
    echo "deb $mirror $suite main" >"$root/etc/apt/sources.list"
    touch "$root.made"
  fi
  in_root env DEBIAN_FRONTEND=noninteractive sh -c 'apt-get -qq update && apt-get -qq install --yes "$@" >/dev/null' sh "$@"
}

# in_root COMMAND...: in $root, with an environment of its own.
in_root() {
  unshare --mount sh -c 'mount -t proc proc "$0/proc"; exec chroot "$0" "$@"' "$root" \
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 CXX=g++ "$@"
}

# copy_into_root: the tree, as /runnel in $root.
copy_into_root() {
  mkdir -p "$root/runnel"
  tar --exclude='./build*' --exclude=./.git -c . | tar -x -C "$root/runnel"
}

# Communicators over MPICH, which cannot stand beside Open MPI in one system.
part_mpich() {
  suite_root trixie g++ meson ninja-build pkg-config python3 libgtest-dev libmpich-dev mpich
  copy_into_root
  in_root bash -eu -c '
    cd /runnel
    rm -rf build
    meson setup build -Dgpu_backend=host -Dmpi=enabled $1
    ninja -C build tests/conformance/comm/comm_tests
    ldd build/tests/conformance/comm/comm_tests | grep -F libmpich.so
    for processes in 1 2 4; do
      timeout 600 mpirun -n $processes build/tests/conformance/comm/comm_tests --gtest_brief=1
    done' \
    ci "${version_options[*]}"
}

# HIP newer than this Debian's, with the compilers and Mesons of their suites: 5 of trixie, with RCCL, 6 of sid, 7 of what sid is made from.
part_hip_versions() {
  local tools=(g++ meson ninja-build pkg-config python3 libgtest-dev)
  suite_root trixie "${tools[@]}" libamdhip64-dev librccl-dev
  hip_in_root 5 'communicators over rccl, 1 processes, eager' 'communicators over rccl, 2 processes, random' \
    'communicators over rccl, processes'
  suite_root sid "${tools[@]}" libamdhip64-dev
  hip_in_root 6
  awk '{ $3 = "experimental"; print; exit }' "$root/etc/apt/sources.list" >"$root/etc/apt/sources.list.d/experimental.list"
  suite_root sid --target-release experimental libamdhip64-dev
  hip_in_root 7
  rm -rf "$root" "$root.made"  # other parts want sid as it is
}

# hip_in_root MAJOR TEST...: there, with AMD's real library and without a device; then the suite, and these tests, on the stand-in made from
# that version's header.
hip_in_root() {
  copy_into_root
  declare -f expect_no_device >"$root/runnel/functions.sh"
  in_root bash -eu -c '
    cd /runnel
    . ./functions.sh
    rm -rf build
    grep -E "define HIP_VERSION_(MAJOR|MINOR|PATCH)" /usr/include/hip/hip_version.h
    grep -Eq "define HIP_VERSION_MAJOR $1\$" /usr/include/hip/hip_version.h
    meson setup build -Dgpu_backend=hip $2
    ninja -C build
    ldd build/tests/conformance/conformance | grep -F libamdhip64.so
    expect_no_device build/tests/conformance/conformance build/no-device.json
    shift 2
    meson test -C build --no-rebuild --print-errorlogs "$@"' \
    ci "$1" "${version_options[*]}" "${version_tests[@]}" "${@:2}"
}
