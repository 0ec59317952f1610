#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ends and forks processes beside busy threads, again and again, and counts how they ended. Exits 1 if one hung, crashed or failed."""
import argparse
import collections
import concurrent.futures
import os
import subprocess
import sys
import time

EXIT_STATUS = 3


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="the program `exits`")
    parser.add_argument("--exits", type=int, default=1000)
    parser.add_argument("--forks", type=int, default=1000)
    parser.add_argument("--limit", type=float, default=60, help="seconds for one process; more is a hang")
    arguments = parser.parse_args()

    environment = os.environ | {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
    listing = subprocess.run([arguments.program], check=True, capture_output=True, text=True, env=environment).stdout
    forks = {name: int(count) for name, count in (line.split() for line in listing.splitlines())}
    exiting = [name for name in forks if not name.startswith("fork_")]
    forking = [name for name in forks if name.startswith("fork_")]
    runs = [exiting[i % len(exiting)] for i in range(arguments.exits)]
    for i in range(sys.maxsize):
        if sum(forks[name] for name in runs if name.startswith("fork_")) >= arguments.forks:
            break
        runs.append(forking[i % len(forking)])

    def run(name):
        try:
            done = subprocess.run([arguments.program, name], capture_output=True, text=True, errors="replace", env=environment,
                                  timeout=arguments.limit)
            expected = 0 if name.startswith("fork_") else EXIT_STATUS
            kind = "right" if done.returncode == expected else "crashed" if done.returncode < 0 else "failed"
            return name, kind, f"status {done.returncode}: {(done.stdout + done.stderr).strip()[-600:]}"
        except subprocess.TimeoutExpired as expired:
            return name, "hung", (expired.stderr or b"").decode(errors="replace")[-600:]

    start = time.monotonic()
    ended = collections.defaultdict(collections.Counter)
    shown = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for name, kind, text in pool.map(run, runs):
            ended[name][kind] += 1
            if kind != "right" and (shown := shown + 1) <= 10:
                print(f"{name} {kind}: {text}", flush=True)
    kinds = ("right", "failed", "crashed", "hung")
    print(f"{'':28}" + "".join(f"{kind:>9}" for kind in kinds) + f"{'exits':>9}{'forks':>9}")
    for name, counts in ended.items():
        total = sum(counts.values())
        exits, forked = (0, total * forks[name]) if name.startswith("fork_") else (total, 0)
        print(f"{name:28}" + "".join(f"{counts[kind]:9d}" for kind in kinds) + f"{exits:9d}{forked:9d}")
    wrong = sum(count for counts in ended.values() for kind, count in counts.items() if kind != "right")
    print(f"{arguments.exits} exits and {sum(forks[name] for name in runs if name in forking)} forks in {time.monotonic() - start:.0f} s: "
          f"{wrong} processes did not end as they should")
    sys.exit(1 if wrong or not runs else 0)


if __name__ == "__main__":
    main()
