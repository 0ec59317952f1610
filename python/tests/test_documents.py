# SPDX-License-Identifier: Apache-2.0
"""The programs in the guide and in the README, as they stand there."""
from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import runnel
from conftest import LIMIT

ROOT = Path(__file__).parent.parent.parent
BLOCKS = [
    pytest.param(block, id=f"{path.name}-{number}")
    for path in (ROOT / "docs/python.md", ROOT / "docs/offload.md", ROOT / "python/README.md")
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_block_runs(block: str) -> None:
    if "import torch" in block or ", torch" in block:
        torch = pytest.importorskip("torch")
        if runnel.backend != "host" and not torch.cuda.is_available():
            pytest.skip("torch sees no device")
    if "like=np" in block and runnel.backend != "host":
        pytest.skip("NumPy computes on the host backend only")
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr or "progress=True" in block


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 7


def test_the_guide_lists_each_function_as_it_is() -> None:
    table = (ROOT / "docs/python.md").read_text(encoding="utf-8").partition("## All functions")[2]
    cells = "".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))
    listed = dict(re.findall(r"`(\w+)\((.*?)\)`", cells))
    there = {name: inspect.signature(getattr(runnel, name)) for name in runnel.__all__ if inspect.isfunction(getattr(runnel, name))}
    assert listed == {
        name: str(signature.replace(parameters=[p.replace(annotation=p.empty) for p in signature.parameters.values()], return_annotation=signature.empty))[1:-1]
        for name, signature in there.items()
    }
