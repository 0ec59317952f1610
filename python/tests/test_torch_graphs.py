# SPDX-License-Identifier: Apache-2.0
"""Every operation within torch.cuda.graph: captured, and right when it is replayed; or refused, with torch's capture intact. Needs a GPU."""
from __future__ import annotations

import json

import pytest

import runnel
from conftest import check_python

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(runnel.backend == "host" or not torch.cuda.is_available(), reason="torch.cuda.graph needs a GPU that torch sees")

PROGRAM = """
    import gc, json, numpy as np, torch, runnel
    mode = {mode!r}
    n = 1 << 20
    x = torch.zeros(n, device="cuda")
    own, other = runnel.Stream(), runnel.Stream()
    block = runnel.empty(4 * n, own)
    pinned, pageable, small = runnel.pinned_empty(n, "float32"), np.ones(n, np.float32), np.full(16, 5, np.float32)
    pinned_out, pageable_out = runnel.pinned_empty(n, "float32"), np.zeros(n, np.float32)
    to, source = np.zeros(n, np.float32), np.full(n, 7, np.float32)
    pinned[:], pinned_out[:] = 2, 0
    event, seen = runnel.Event(), []
    for s in (own, other): s.synchronize()

    def fork(s):
        other.wait_stream(s); runnel.copy(x, pinned, other); s.wait_stream(other)
    def events(s):
        s.record_event(event); other.wait_event(event); s.wait_event(other.record_event())
    def lists(s):
        half = n // 2
        runnel.copy_many([(x[:half], pinned[:half]), (x[half:], pinned[half:])], s)
    def device_memory(s):
        made = runnel.empty((n,), "float32", s); runnel.copy(made, pinned, s); runnel.copy(x, made, s)

    is_x = lambda value: lambda: (x == value).all().item()
    yes = lambda: True
    # name: (what, whether it is right after a replay, whether it may be refused)
    OPERATIONS = dict(
        wrap=(lambda s: None, yes, False),
        look=(lambda s: (repr(s), s.id, s.device, s.handle, s == own, hash(s)), yes, False),
        priority=(lambda s: s.priority, yes, True),
        pinned_up=(lambda s: runnel.copy(x, pinned, s), is_x(2), False),
        pinned_down=(lambda s: runnel.copy(pinned_out, x, s), lambda: (pinned_out == 0).all(), False),
        current=(lambda s: runnel.copy(x, pinned), is_x(2), False),
        on_device=(lambda s: runnel.copy(x, torch.zeros_like(x), s), is_x(0), False),
        rows=(lambda s: runnel.copy(x[: n // 2].view(-1, 64)[:, :32], pinned[: n // 2].reshape(-1, 64)[:, :32], s), lambda: (x[:32] == 2).all().item(), False),
        lists=(lists, is_x(2), False),
        fill=(lambda s: runnel.fill(x, 0, s), is_x(0), False),
        pageable_up=(lambda s: runnel.copy(x, pageable, s), is_x(1), True),
        pageable_down=(lambda s: runnel.copy(pageable_out, x, s), lambda: (pageable_out == 0).all(), True),
        pageable_small=(lambda s: runnel.copy(x[:16], small, s), lambda: (x[:16] == 5).all().item(), True),
        host_to_host=(lambda s: runnel.copy(to, source, s), lambda: (to == 7).all(), True),
        fill_host=(lambda s: runnel.fill(to, 0, s), lambda: (to == 0).all(), True),
        host_function=(lambda s: s.launch_host_func(seen.append, 1), lambda: bool(seen), True),
        fork=(fork, is_x(2), False),
        events=(events, yes, False),
        device_memory=(device_memory, is_x(2), True),
        to_device=(lambda s: runnel.to_device(pinned, like=torch, stream=s), yes, True),
        to_host=(lambda s: runnel.to_host(x, stream=s, pinned=True), yes, True),
        handle=(lambda s: runnel.copy(x, pinned, s).done(), is_x(2), True),
        block_pageable=(lambda s: runnel.copy(x, pageable, s, pageable="block"), is_x(1), True),
        query=(lambda s: s.query(), yes, True),
        on_done=(lambda s: s.on_done(print), yes, True),
        timed=(lambda s: s.record_event(runnel.Event(timing=True)), yes, True),
        overlap=(lambda s: runnel.overlap(pageable, pageable_out, lambda c, a, b: runnel.copy(b, a, c.stream)), yes, True),
        pinned_memory=(lambda s: runnel.pinned_empty(n), yes, True),
    )
    told = {{}}
    for name, (what, is_right, may_refuse) in OPERATIONS.items():
        x.fill_(-1); torch.cuda.synchronize()
        graph, error = torch.cuda.CUDAGraph(), ""
        try:
            with torch.cuda.graph(graph, capture_error_mode=mode):
                torch.ones(4, device="cuda").add_(1)
                try:
                    what(runnel.Stream.wrap(torch.cuda.current_stream()))
                except Exception as raised:
                    error = f"{{type(raised).__name__}}: {{raised}}"
                torch.ones(4, device="cuda").add_(1)
        except Exception as broken:
            told[name] = f"broke the capture: {{broken}} (after {{error}})"[:300]
            continue
        if error and not may_refuse: told[name] = "refused: " + error[:300]
        if name == "fill": x.fill_(-1)
        if name in ("on_device", "pinned_down", "pageable_down"): x.fill_(0)
        for _ in range(2): graph.replay()
        torch.cuda.synchronize()
        if not error and not is_right(): told[name] = "is not right after a replay"
        del graph; gc.collect()
    for s in (own, other): s.synchronize()
    print(json.dumps(told))
"""


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_every_operation_within_a_graph_of_torch(mode: str) -> None:
    out = check_python(PROGRAM.format(mode=mode))
    assert json.loads(out.strip().split("\n")[-1]) == {}
