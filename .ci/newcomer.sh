# SPDX-License-Identifier: Apache-2.0
# Sourced by parts.sh: what somebody meets who has nothing yet.

# part_newcomer: the README's two commands, in that order, on a bare root of Debian 12 and of the suite after it, timed. No compiler, no
# Meson, no library is there. From nothing to the demo's result may take five minutes.
part_newcomer() {
  local suite start seconds times=()
  for suite in ${NEWCOMER_SUITES:-bookworm trixie}; do
    rm -rf "build-ci/roots/$suite" "build-ci/roots/$suite.made"
    suite_root "$suite"
    copy_into_root
    ! in_root sh -c 'command -v g++ || command -v clang++ || command -v meson || command -v python3' ||
      { echo "the root of $suite is not bare"; return 1; }
    for command in ${NEWCOMER_COMMANDS:-demo test}; do
      start=$SECONDS
      in_root env -u CXX sh -c 'cd /runnel && exec "./scripts/$0"' "$command" >"$root.$command.txt" 2>&1 || { tail -n 60 "$root.$command.txt"; return 1; }
      seconds=$((SECONDS - start))
      times+=("$suite: scripts/$command took $seconds s")
      [ "$command" != demo ] || { tail -n 4 "$root.demo.txt"; [ "$seconds" -le 300 ] || { echo "the demo took $seconds s"; return 1; }; }
      [ "$command" != test ] || grep -E '^(Ok|Fail|Skipped|Timeout): ' "$root.test.txt"
    done
    in_root sh -c 'g++ --version | head -n 1; echo "Meson $(meson --version)"'
    rm -rf "$root" "$root.made"
  done
  printf '%s\n' "${times[@]}"
}
