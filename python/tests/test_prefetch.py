# SPDX-License-Identifier: Apache-2.0
"""prefetch(): batches that are on the device before they are wanted."""
from __future__ import annotations

import collections
import dataclasses
import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import runnel
from conftest import ON_HOST, check_python, eventually, on_host
from test_lifetimes import tracked

LIKE = "numpy" if ON_HOST else None


def values(batch: Any) -> Any:
    return np.asarray(batch) if ON_HOST else on_host(batch, runnel.current_stream())


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_batches_come_in_order(depth: int, count: int) -> None:
    made: list[int] = []

    def source() -> Iterator[Any]:
        for i in range(count):
            made.append(i)
            yield {"x": np.full((3, 4), i, np.float32), "i": i}

    seen = 0
    for batch in runnel.prefetch(source(), depth=depth, like=LIKE):
        assert batch["i"] == seen and (values(batch["x"]) == seen).all() and batch["x"].shape == (3, 4)
        assert made[-1] == min(seen + max(depth - 1, 0), count - 1)  # so many ahead while the loop works
        seen += 1
    assert seen == count


def test_a_source_may_use_its_memory_again() -> None:
    buffer = np.zeros(1 << 18, np.int32)

    def source() -> Iterator[Any]:
        for i in range(20):
            buffer[:] = i
            yield buffer

    kept = [values(batch).copy() for batch in runnel.prefetch(source(), depth=3, like=LIKE)]
    assert all((each == i).all() for i, each in enumerate(kept)) and len(kept) == 20


def test_each_loop_begins_anew_and_has_a_length() -> None:
    batches = runnel.prefetch([np.ones(3), np.ones(4)], "cuda:0", like=LIKE)
    assert len(batches) == 2 and "2 ahead" in repr(batches)
    assert [[values(x).size for x in batches] for _ in range(2)] == [[3, 4]] * 2


def test_exceptions_of_the_source_arrive() -> None:
    def source() -> Iterator[Any]:
        yield np.ones(3)
        raise KeyError("mine")

    batches = iter(runnel.prefetch(source(), depth=1, like=LIKE))
    assert values(next(batches)).size == 3
    with pytest.raises(KeyError, match="mine"):
        next(batches)
    with pytest.raises(StopIteration):
        next(batches)
    with pytest.raises(TypeError, match="no memory"):
        next(iter(runnel.prefetch([object()], like=LIKE)))
    for wrong, error in (({"depth": 0}, ValueError), ({"like": "pandas"}, TypeError), ({"batches": 3}, TypeError)):
        with pytest.raises(error):
            runnel.prefetch(**{"batches": [], **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("depth", [1, 2, 5, 100])
def test_the_batches_before_an_exception_come(depth: int) -> None:
    def source() -> Iterator[Any]:
        yield from (np.full(4, i) for i in range(5))
        raise KeyError("mine")

    for batches, error in ((source(), KeyError), ([*(np.full(4, i) for i in range(5)), object(), np.ones(4)], TypeError)):
        seen = []
        with pytest.raises(error):
            for batch in runnel.prefetch(batches, depth=depth, like=LIKE):
                seen.append(int(values(batch)[0]))
        assert seen == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("pinned", [False, True])
def test_the_host_does_not_wait_for_the_consumers_stream(pinned: bool, stream: runnel.Stream) -> None:
    gate, seen = threading.Event(), []
    source = runnel.pinned_empty(1 << 18) if pinned else np.empty(1 << 18, np.uint8)

    def batches() -> Iterator[Any]:
        for i in range(6):
            source[:] = i
            yield source

    with stream:
        stream.launch_host_func(gate.wait, writes_host_memory=False)
        for block in runnel.prefetch(batches(), depth=2):
            seen.append(runnel.to_host(block))
        gate.set()
        stream.synchronize()
    assert all((each == i).all() for i, each in enumerate(seen)) and len(seen) == 6


@dataclasses.dataclass
class Sample:
    x: Any

    def __post_init__(self) -> None:
        assert isinstance(self.x, np.ndarray)
        self.rows = len(self.x)


def test_batches_of_all_kinds() -> None:
    defaults: Any = collections.defaultdict(list, x=np.ones((2, 3)))
    for like in {None, LIKE}:
        got: list[Any] = list(runnel.prefetch([np.ones((0, 3)), {"x": np.ones(2), "none": np.ones((3, 0))}, Sample(np.ones(5)), defaults], like=like))
        assert got[0].shape == (0, 3) and got[1]["none"].shape == (3, 0) and got[2].rows == 5 and got[2].x.shape == (5,) and got[3]["new"] == []


def test_a_loop_that_ends_early_leaves_nothing() -> None:
    gone: list[Any] = []
    closed: list[bool] = []

    def source() -> Iterator[Any]:
        try:
            while True:
                array = tracked(100_000)
                gone.append(weakref.ref(array))
                yield array
        finally:
            closed.append(True)

    for _ in runnel.prefetch(source(), depth=3, like=LIKE):
        break
    gc.collect()
    assert eventually(lambda: closed == [True] and all(each() is None for each in gone))


def test_blocks_wait_in_the_current_stream() -> None:
    stream = runnel.Stream()
    with stream:
        for i, block in enumerate(runnel.prefetch([np.full(300_000, i) for i in range(5)], depth=2)):
            out = runnel.to_host(block)
            stream.synchronize()
            assert isinstance(block, runnel.Block) and (out == i).all()


@pytest.mark.skipif(not ON_HOST, reason="torch needs a GPU there")
@pytest.mark.parametrize("start, workers", [("fork", 2), ("spawn", 1)])
def test_a_loader_of_torch_with_workers(start: str, workers: int) -> None:
    pytest.importorskip("torch")
    check_python(f"""
        import runnel, torch
        from torch.utils.data import DataLoader, TensorDataset
        if __name__ == "__main__":
            runnel.Stream().synchronize()
            x = torch.arange(40.0).reshape(20, 2)
            loader = DataLoader(TensorDataset(x, torch.arange(20)), batch_size=6, num_workers={workers}, multiprocessing_context="{start}")
            for _ in range({workers}):
                got = [(a.clone(), b.clone()) for a, b in runnel.prefetch(loader, "cuda:0", like=torch)]
                assert torch.equal(torch.cat([a for a, _ in got]), x) and torch.cat([b for _, b in got]).tolist() == list(range(20)) and len(got) == 4
            for a, b in runnel.prefetch(loader, like=torch):
                break
    """)
