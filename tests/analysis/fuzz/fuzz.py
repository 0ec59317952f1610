#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs each fuzzer for a while, from its small corpus and from what it finds meanwhile. Exits 1 if one found an input that crashes; the input is
printed."""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fuzzers", nargs="+")
    parser.add_argument("--corpus", required=True, help="a folder with a folder for each fuzzer")
    parser.add_argument("--seconds", type=int, default=int(os.environ.get("FUZZ_SECONDS", "60")), help="time of each fuzzer")
    arguments = parser.parse_args()
    failed = []
    for fuzzer in arguments.fuzzers:
        name = pathlib.Path(fuzzer).name.removeprefix("fuzz_")
        with tempfile.TemporaryDirectory(prefix="runnel-fuzz-") as found:
            command = [os.path.abspath(fuzzer), found, os.path.abspath(pathlib.Path(arguments.corpus) / name),
                       f"-max_total_time={arguments.seconds}", "-max_len=4096", "-timeout=20", "-print_final_stats=1",
                       f"-artifact_prefix={found}/"]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=arguments.seconds + 300, check=False)
            runs = re.search(r"number_of_executed_units: *(\d+)", done.stderr)
            coverage = re.findall(r"cov: (\d+)", done.stderr)
            print(f"{name}: {runs[1] if runs else '?'} inputs in {arguments.seconds} s, {coverage[-1] if coverage else '?'} edges, "
                  f"{'nothing found' if done.returncode == 0 else 'FAILED'}", flush=True)
            if done.returncode == 0:
                continue
            failed.append(name)
            print(done.stderr[-4000:])
            for crash in pathlib.Path(found).glob("*-*"):
                print(f"{crash.name}: {crash.read_bytes()[:4096]!r}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
