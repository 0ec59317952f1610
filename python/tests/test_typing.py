# SPDX-License-Identifier: Apache-2.0
"""Types and documentation."""
from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import runnel

PROGRAM = """
import asyncio
import runnel

stream: runnel.Stream = runnel.Stream(0, priority=-1, name="x")
with stream as s:
    done: bool = s.query()
how = runnel.copy(bytearray(3), b"abc", stream)
if how.kind == "direct":
    pass
event: runnel.Event = stream.record_event()
time: float = runnel.Event(timing=True).elapsed_time(runnel.Event(True))
async def copies() -> None:
    await how
    await runnel.copy_many([(bytearray(3), b"abc")])

ready: bool = how.done() and how.source_done()
how.wait(timeout=1.5)
counts: dict[str, int] = runnel.copy_many([(bytearray(3), b"abc")], any_time=True).counts
batch_of: dict[str, bytes] = runnel.to_device({"x": b"abc"}, stream=stream)
list_of: list[bytes] = runnel.to_host([b"abc"])
result: runnel.OverlapResult = runnel.overlap(b"abc", None, lambda chunk, x: None)
block: runnel.Block = runnel.empty(10)
shape: tuple[int, ...] = block.shape
part: runnel.Block = runnel.empty((3, 4), "float32", stream)[1:2].reshape(4)
moved: runnel.Block = runnel.to_device(b"abc", stream=stream)
target = bytearray(3)
same: bytearray = runnel.to_host(moved, target)
for batch in runnel.prefetch([b"abc"], "cuda:0"):
    pass
view: memoryview = runnel.map_file("/etc/hostname")

async def main() -> None:
    await stream
    await event

null: runnel.Stream = runnel.Stream.null
stream.launch_host_func(print, 1, 2)
stream.launch_host_func(print, 1, writes_host_memory=False)
stream.on_done(lambda error: print(error))
"""
WRONG = """
import runnel
runnel.copy(bytearray(3), b"abc", 5)
runnel.Stream(priority="high")
how: int = runnel.copy(bytearray(3), b"abc")
runnel.Stream().synchronise()
runnel.copy(1, 2)
runnel.copy(bytearray(3), b"abc", pageable="other")
"""


CHECKERS = {"mypy": ["--strict", "--no-incremental", "-p", "right", "-p", "wrong", "-p", "runnel"], "basedpyright": ["--pythonpath", sys.executable, "."]}


@pytest.mark.parametrize("checker", CHECKERS)
def test_programs_are_checked(checker: str, tmp_path: Path) -> None:
    """And the package itself, by mypy: one run, because each reads all the stubs anew."""
    pytest.importorskip(checker)
    (tmp_path / "right.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')  # pyright's own
    command = [sys.executable, "-m", checker, *CHECKERS[checker]]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "MYPYPATH": "."})
    places = re.findall(r"(\S+):(\d+):.* error\b", done.stdout)
    assert {(Path(file).name, int(line)) for file, line in places} == {("wrong.py", line) for line in range(3, 9)}, done.stdout + done.stderr


@pytest.mark.parametrize("name", [name for name in runnel.__all__ if name != "backend"])
def test_everything_has_documentation(name: str) -> None:
    thing = getattr(runnel, name)
    assert inspect.getdoc(thing), name
    lines = str(inspect.getdoc(thing)).split("\n")
    assert max(map(len, [line for line in lines if not line.startswith(name + "(")])) <= 130
    if inspect.isclass(thing) and not issubclass(thing, BaseException):
        for member in vars(thing):
            if not member.startswith("_"):
                assert inspect.getdoc(getattr(thing, member)), f"{name}.{member}"
        assert thing.__module__ == "runnel"
