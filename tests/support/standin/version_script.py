#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the linker's version script of a stand-in. Every symbol that a library imports from the vendor's runtime gets the version that
the library asks for, so that the unchanged library can load the stand-in.

usage: version_script.py nm library prefix default-node output"""
import collections
import subprocess
import sys


def imports(nm, library, prefix):
    listing = subprocess.run([nm, "-D", "-u", library], check=True, capture_output=True, text=True).stdout
    for line in listing.splitlines():
        name, _, version = line.split()[-1].partition("@")
        if name.startswith(prefix) and name[len(prefix):][:1].isupper():
            yield name, version.lstrip("@")


def main():
    nm, library, prefix, default, output = sys.argv[1:]
    nodes = collections.defaultdict(set)
    nodes[default].update({prefix + "[A-Z]*", "standin_*"})
    for name, version in imports(nm, library, prefix):
        nodes[version or default].add(name)
    with open(output, "w", encoding="utf-8") as script:
        for i, (node, names) in enumerate(sorted(nodes.items(), key=lambda item: item[0] != default)):
            hidden = " local: *;" if i == 0 else ""
            script.write(f"{node} {{ global: {' '.join(name + ';' for name in sorted(names))}{hidden} }};\n")


if __name__ == "__main__":
    main()
