# SPDX-License-Identifier: Apache-2.0
# Sourced by parts.sh: what somebody meets who has nothing yet.

# part_newcomer: the README's commands on a bare root of Debian 12 and of the suite after it, timed: no compiler, no Meson, no library is
# there. From nothing to the demo's result may take five minutes. NEWCOMER_COMMANDS=demo leaves the tests out.
part_newcomer() {
  local suite command seconds user system times=() late=()
  for suite in ${NEWCOMER_SUITES:-bookworm trixie}; do
    rm -rf "build-ci/roots/$suite" "build-ci/roots/$suite.made"
    suite_root "$suite"
    copy_into_root
    ! in_root sh -c 'command -v g++ || command -v clang++ || command -v meson || command -v python3' ||
      { echo "the root of $suite is not bare"; return 1; }
    for command in ${NEWCOMER_COMMANDS:-demo test}; do
      # Seconds on the clock, and of processors: a busy machine is told by the difference.
      TIMEFORMAT='%0R %0U %0S'
      read -r seconds user system < <({ time in_root env -u CXX sh -c 'cd /runnel && exec "./scripts/$0"' "$command" >"$root.$command.txt" 2>&1; } 2>&1)
      grep -q "$(if [ "$command" = demo ]; then echo '^equal, byte for byte'; else echo '^Fail: *0'; fi)" "$root.$command.txt" ||
        { tail -n 60 "$root.$command.txt"; return 1; }
      times+=("$suite: scripts/$command took $seconds s, $((user + system)) s of processors")
      printf '%s\n' "${times[-1]}"
      [ "$command" != test ] || grep -E '^(Ok|Fail|Skipped|Timeout): ' "$root.test.txt"
      [ "$command" != demo ] || [ "$seconds" -le 300 ] || late+=("$suite")
    done
    in_root sh -c 'g++ --version | head -n 1; echo "Meson $(meson --version)"'
    rm -rf "$root" "$root.made"
  done
  printf '%s\n' "${times[@]}"
  [ ${#late[@]} -eq 0 ] || { echo "more than five minutes to the demo's result on: ${late[*]}"; return 1; }
}

# part_newer_suite: clang, Meson and GoogleTest of the suite after Debian 12, warnings as errors. Newer versions of g++ are in hip_versions.
part_newer_suite() {
  suite_root trixie clang libstdc++-14-dev meson ninja-build pkg-config python3 libgtest-dev
  copy_into_root
  in_root env CXX=clang++ bash -eu -c '
    cd /runnel
    clang++ --version | head -n 1
    meson setup build-clang++ -Dgpu_backend=host $0
    ninja -C build-clang++
    meson test -C build-clang++ --no-rebuild --print-errorlogs --suite conformance' "${version_options[*]}"
  rm -rf "$root" "$root.made"
}
