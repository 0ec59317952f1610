#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when the two vendors' tables do not give the same names in the same order, or when the shared text has an #if; prints how much
of each backend is shared.

usage: check_tables.py backends-directory"""
import pathlib
import re
import sys

DEFINITION = re.compile(
    r"^using (\w+) ="  # a type
    r"|^inline constexpr error \(\*(\w+)\)"  # a pointer to an overloaded function
    r"|^inline (?:constexpr )?[\w:<>*& ]*?[ *&](\w+)(?:\(| =)")


def names(table):
    found = []
    for line in table.read_text(encoding="utf-8").splitlines():
        match = DEFINITION.match(line)
        if match:
            name = next(group for group in match.groups() if group)
            if name not in found:
                found.append(name)
    return found


def code_lines(path):
    return sum(1 for line in path.read_text(encoding="utf-8").splitlines() if line.strip() and not line.strip().startswith("//"))


def main():
    root = pathlib.Path(sys.argv[1])
    cuda, hip = names(root / "cuda/runtime.hpp"), names(root / "hip/runtime.hpp")
    failed = cuda != hip or len(cuda) < 40
    if cuda != hip:
        print("only in cuda:", [n for n in cuda if n not in hip], "only in hip:", [n for n in hip if n not in cuda])
        print("first difference:", next(((a, b) for a, b in zip(cuda, hip) if a != b), None))
    else:
        print(f"both tables give {len(cuda)} names in the same order")
    shared = 0
    for path in sorted((root / "cuda_hip").glob("*.cpp")):
        shared += code_lines(path)
        if re.search(r"^\s*#\s*(if|elif|ifdef|ifndef)", path.read_text(encoding="utf-8"), re.MULTILINE):
            print(f"{path.name} has an #if")
            failed = True
    tables = {v: sum(code_lines(p) for p in (root / v).glob("*.hpp")) for v in ("cuda", "hip")}
    for vendor, lines in tables.items():
        print(f"{vendor}: {shared} shared lines, {lines} in its table")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
