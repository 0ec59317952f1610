# SPDX-License-Identifier: Apache-2.0
"""The programs in examples/ run to their end, on every backend."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import LIMIT

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("program", EXAMPLES, ids=lambda path: path.stem)
def test_example(program: Path) -> None:
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout and not done.stderr


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 6
