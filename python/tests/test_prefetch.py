# SPDX-License-Identifier: Apache-2.0
"""prefetch(): batches that are on the device before they are wanted."""
from __future__ import annotations

import gc
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
