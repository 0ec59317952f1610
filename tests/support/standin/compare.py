#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the outcome of each conformance test on a real device and on a stand-in runtime. Every difference must have a reason in
differences.txt beside this file, and every reason there must still be needed.

usage: compare.py REAL.json STANDIN.json      (both from --gtest_output=json:FILE, with the same number of devices)"""
import json
import pathlib
import sys


def outcomes(report):
    found = {}
    for suite in json.loads(pathlib.Path(report).read_text())["testsuites"]:
        for case in suite["testsuite"]:
            passed = "failed" if case.get("failures") else "passed"
            found[f"{suite['name']}.{case['name']}"] = "skipped" if case["result"] == "SKIPPED" else passed
    return found


def known_differences():
    """Returns the reasons by test, outcome on the real device, and outcome on the stand-in."""
    known = {}
    for line in (pathlib.Path(__file__).parent / "differences.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            case, real, standin, reason = line.split(maxsplit=3)
            known[case, real, standin] = reason
    return known


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    real, standin = map(outcomes, sys.argv[1:])
    known = known_differences()
    differing = {(case, real.get(case, "missing"), standin.get(case, "missing")) for case in real.keys() | standin.keys()}
    differing = {row for row in differing if row[1] != row[2]}
    for row in sorted(differing):
        print("{:60s} real {:8s} stand-in {:8s} {}".format(*row, known.get(row, "NOT EXPLAINED")))
    for row in sorted(known.keys() - differing):
        print("{:60s} real {:8s} stand-in {:8s} no longer differs: remove it from differences.txt".format(*row))
    print(f"{len(real)} cases on the real device, {len(standin)} on the stand-in, {len(differing)} differ, "
          f"{len(differing - known.keys())} of them unexplained")
    sys.exit(differing != known.keys())


if __name__ == "__main__":
    main()
