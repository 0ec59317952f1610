#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if a library imports a symbol of the vendor's runtime that the stand-in does not define.

usage: check_imports.py nm library stand-in prefix"""
import subprocess
import sys

from version_script import imports


def main():
    nm, library, standin, prefix = sys.argv[1:]
    listing = subprocess.run([nm, "-D", "--defined-only", standin], check=True, capture_output=True, text=True).stdout
    rows = {line.split()[-1].partition("@")[0] for line in listing.splitlines()}
    wanted = sorted({name for name, _ in imports(nm, library, prefix)})
    missing = [name for name in wanted if name not in rows]
    print(f"{len(wanted) - len(missing)} of {len(wanted)} imported symbols are defined in the stand-in")
    for name in missing:
        print(f"missing: {name}")
    sys.exit(1 if missing or not wanted else 0)


if __name__ == "__main__":
    main()
