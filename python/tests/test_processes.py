# SPDX-License-Identifier: Apache-2.0
"""Ends of processes, Ctrl-C, fork, other interpreters, and what is imported: each in a process of its own."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

import runnel
from conftest import LIMIT, check_python, run_python

EXITS = {
    "with work in a stream": "runnel.copy(bytearray(10_000_000), bytes(10_000_000), s)",
    "with a host function that runs": "s.launch_host_func(time.sleep, 0.2); s.launch_host_func(print, 'ran')",
    "with a completion": "s.launch_host_func(time.sleep, 0.1); s.on_done(lambda error: print('ran'))",
    "in an exception": "s.launch_host_func(time.sleep, 0.1); s.launch_host_func(print, 'ran'); sys.excepthook = lambda *a: None; 1 / 0",
    "by sys.exit on a thread": "threading.Thread(target=lambda: (s.launch_host_func(print, 'ran'), sys.exit())).start()",
    "with a thread that goes on": "threading.Thread(target=lambda: [s.launch_host_func(int) for _ in iter(int, 1)], daemon=True).start()",
    "with an exception that nobody saw": "s.launch_host_func(lambda: 1 / 0); s.record_event().synchronize()",
    "with a pool and pinned memory": "p = runnel.StreamPool(size=2); l = p.acquire(); m = runnel.PinnedMemory(1000)",
    "with a block and its capsule": "b = runnel.empty(1000, s); c = b.__dlpack__(stream=None if runnel.backend == 'host' else -1)",
    "with a current stream": "s.use(); t = runnel.Stream().__enter__(); runnel.copy(bytearray(100_000), bytes(100_000))",
    "in a generator that is within a stream": "g = within(s); next(g)",
    "with overlap() on a thread": "threading.Thread(target=runnel.overlap, args=(bytes(1_000_000), None, slow), kwargs={'chunk': 100_000}, daemon=True).start(); time.sleep(0.05)",
    "with prefetch() that has begun": "p = iter(runnel.prefetch([bytes(1_000_000)] * 9)); next(p)",
    "with prefetch() on a thread": "threading.Thread(target=lambda: [b for b in runnel.prefetch(bytes(100_000) for _ in iter(int, 1))], daemon=True).start(); time.sleep(0.05)",
    "with a list of copies, behind a host function": "s.launch_host_func(time.sleep, 0.1); runnel.copy_many([(bytearray(70_000), bytes(70_000)) for _ in range(50)], s)",
    "while a loop waits": "l = asyncio.new_event_loop(); s.launch_host_func(time.sleep, 0.1); l.create_task(wait(s)).cancel(); l.run_until_complete(asyncio.sleep(0)); l.close()",
    "with a completion that registers itself again": "again = lambda error: s.on_done(again); again(None)",
    "in an earlier function of atexit that joins a thread": "worker.start(); ready.wait()",
    "with work of an earlier function of atexit": "later = lambda: s.launch_host_func(print, 'ran')",
    "in a loop of asyncio": "asyncio.new_event_loop().run_until_complete(wait(s))",
}
PROGRAM = """
    import asyncio, atexit, sys, threading, time
    later, stop, ready = int, threading.Event(), threading.Event()
    worker = threading.Thread(target=lambda: [(ready.set(), s.synchronize(), s.record_event()) for _ in iter(stop.is_set, True)], daemon=True)
    atexit.register(lambda: (stop.set(), worker.ident and worker.join(), later()))
    import runnel
    s = runnel.Stream()
    async def wait(stream):
        await stream
    def within(stream):
        with stream:
            yield
    def slow(chunk, x):
        time.sleep(0.01)
    {}
"""


@pytest.mark.parametrize("name", EXITS)
def test_exits_clean(name: str) -> None:
    done = run_python(PROGRAM.format(EXITS[name]))
    assert done.returncode == (1 if "1 / 0" in EXITS[name] and "excepthook" in EXITS[name] else 0), done.stderr
    assert ("ZeroDivisionError" in done.stderr) if "lambda: 1 / 0" in EXITS[name] else done.stderr == ""
    assert ("'ran'" not in EXITS[name]) or "ran" in done.stdout


@pytest.mark.parametrize("wait", ["s.synchronize()", "e.synchronize()", "runnel.Device(0).synchronize()", "pool.acquire(1000)",
                                  "runnel.copy(b, x, s, pageable='block')", "runnel.copy_many([(b, x)], s, pageable='block')"])
def test_ctrl_c_ends_a_wait(wait: str) -> None:
    program = f"""
import runnel, threading, sys
s = runnel.Stream(); gate = threading.Event(); s.launch_host_func(gate.wait); e = s.record_event()
pool = runnel.StreamPool(size=1, max=1); lease = pool.acquire(); x = bytes(1 << 20); b = runnel.empty(len(x), s)
try:
    print("waits", flush=True)
    {wait}
except KeyboardInterrupt:
    print("interrupted")
gate.set()
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "waits\n"
        time.sleep(0.05)  # into the wait; a signal before it is seen as well
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=LIMIT)[0] == "interrupted\n" and process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_twice_ends_a_process_whose_host_function_does_not_end() -> None:
    program = """
import runnel, signal, threading, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
s = runnel.Stream(); began = threading.Event()
s.launch_host_func(lambda: (began.set(), threading.Event().wait())); s.launch_host_func(print, "never")
began.wait(); print("ends", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ends\n"
        for _ in range(200):  # one may come before the wait, or while another is looked at
            process.send_signal(signal.SIGINT)
            try:
                process.wait(0.1)
                break
            except subprocess.TimeoutExpired:
                pass
        assert process.poll() == -signal.SIGINT and process.stdout.read() == ""
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_ends_an_overlap() -> None:
    check_python("""
        import os, signal, runnel
        def fn(chunk, x):
            if chunk.index == 3: os.kill(os.getpid(), signal.SIGINT)
        try:
            runnel.overlap(bytes(1000), None, fn, chunk=10)
        except KeyboardInterrupt:
            print("interrupted")
        else:
            raise SystemExit("went on")
    """)


def test_a_forked_child_is_refused_and_ends() -> None:
    out = check_python("""
        import os, runnel
        s = runnel.Stream(); runnel.copy(bytearray(100), bytes(100), s); s.synchronize()
        child = os.fork()
        if child == 0:
            try:
                s.launch_host_func(print)
            except runnel.Error as error:
                os.write(1, error.code.encode())
            raise SystemExit(0)
        assert os.waitpid(child, 0)[1] == 0
        s.launch_host_func(print, "parent")
        s.synchronize()
    """)
    assert "forked" in out and "parent" in out


def test_a_child_that_is_forked_while_host_functions_begin_and_end() -> None:
    check_python("""
        import os, threading, time, runnel
        stop = False
        def work():
            stream = runnel.Stream()
            while not stop:
                stream.launch_host_func(len, ()); stream.synchronize()
        threads = [threading.Thread(target=work) for _ in range(3)]
        [t.start() for t in threads]
        for _ in range(150):
            child = os.fork()
            if child == 0: os._exit(0)
            end = time.time() + 20
            while os.waitpid(child, os.WNOHANG)[0] == 0:
                if time.time() > end: os.kill(child, 9); stop = True; raise SystemExit("the child hangs")
                time.sleep(0.001)
        stop = True
    """)


def test_everything_is_printed_in_a_forked_child() -> None:
    check_python("""
        import os, runnel
        s = runnel.Stream(name="x"); e = s.record_event(); p = runnel.StreamPool(size=1); b = runnel.empty(8, s); m = runnel.pinned_empty(8)
        things = [s, e, p, p.acquire(), b, runnel.Device(0), runnel.PinnedMemory(8), runnel.register(bytearray(8)), runnel.Stream.null]
        child = os.fork()
        if child == 0:
            os._exit(0 if all(map(repr, things)) else 1)
        assert os.waitpid(child, 0)[1] == 0
    """)


def test_a_child_that_is_forked_before_the_first_use_works() -> None:
    check_python("""
        import os, sys, runnel
        child = os.fork()
        if child == 0:
            t = bytearray(3); s = runnel.Stream(); runnel.copy(t, b"abc", s); s.synchronize(); assert t == b"abc"
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """) if runnel.backend == "host" else None


def test_other_interpreters_are_refused() -> None:
    check_python("""
        import sys
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        import runnel
        stream = runnel.Stream()
        other = interpreters.create()
        program = "import runnel"
        if sys.version_info >= (3, 13):
            failed = interpreters.exec(other, program)
            assert failed is not None and "ImportError" in str(failed.type.__name__), failed
        else:
            try:
                interpreters.run_string(other, program)
            except Exception as error:
                assert "ImportError" in str(error) or "interpreter" in str(error), error
            else:
                raise SystemExit("it was not refused")
        assert "Stream" in repr(stream) and stream.query() and runnel.Stream().query()
    """)


def test_an_exception_that_nobody_collects_is_shown() -> None:
    done = run_python("""
        import gc, sys, time, runnel
        def mine(): raise KeyError("of mine")
        shown, show = [], sys.unraisablehook
        def count(about): shown.append(1); show(about)
        sys.unraisablehook = count
        for collect in (True, False):
            s = runnel.Stream()
            s.launch_host_func(mine)
            s.record_event().synchronize()
            if collect:
                try: s.synchronize()
                except KeyError: pass
            del s
            end = time.monotonic() + 60
            while not collect and not shown and time.monotonic() < end:
                runnel.Stream.null.synchronize(); gc.collect(); time.sleep(0.002)
        sys.unraisablehook = show
        s = runnel.Stream()
        s.launch_host_func(lambda: 1 / 0); s.launch_host_func(mine)
        try: s.synchronize()
        except ZeroDivisionError: pass
    """)
    assert done.returncode == 0
    # The second stream's, and the last one's second: the others were raised.
    assert done.stderr.count("KeyError: 'of mine'") == 2 and done.stderr.count("in mine") == 2 and "ZeroDivision" not in done.stderr
    assert "no synchronize() and no await" in done.stderr


def test_numpy_is_not_needed() -> None:
    check_python("""
        import sys
        sys.modules["numpy"] = None
        import runnel
        s = runnel.Stream(); t = bytearray(5)
        b = runnel.to_device(b"hello", stream=s); runnel.copy(t, b, s); s.synchronize()
        assert t == b"hello"
    """)


def test_the_backend_is_chosen_by_name() -> None:
    assert check_python("import runnel; print(runnel.backend, runnel.why_no_device())", RUNNEL_BACKEND="host").startswith("host ")
    done = run_python("import runnel", RUNNEL_BACKEND="vulkan")
    assert done.returncode != 0 and "RUNNEL_BACKEND=vulkan" in done.stderr and "built with" in done.stderr


def test_without_a_device_the_host_is_used() -> None:
    program = "import runnel; print(runnel.backend); print(runnel.why_no_device()); runnel.Stream()"
    done = run_python(program, RUNNEL_BACKEND="", STANDIN_DEVICES="0", LD_LIBRARY_PATH="", RUNNEL_TYPO="1")
    if done.stdout.startswith("host"):
        assert done.stdout.split("\n")[1] != ""
    assert done.stderr.count("RUNNEL_TYPO") == 1  # by one of the libraries that were loaded


def test_a_host_function_gets_the_lock_while_others_wait() -> None:
    check_python("""
        import runnel, threading
        streams = [runnel.Stream() for _ in range(4)]
        def work(s):
            for i in range(50):
                s.launch_host_func(sum, range(100)); s.synchronize()
        threads = [threading.Thread(target=work, args=(s,)) for s in streams]
        [t.start() for t in threads]; [t.join() for t in threads]
    """)


@pytest.mark.parametrize("dropped, drop", [
    ("runnel.PinnedMemory(64)", "del dropped"), ("runnel.empty(64, stream)", "del dropped"), ("runnel.Stream()", "del dropped"),
    ("runnel.Stream()", "cycle = [dropped]; cycle.append(cycle); del cycle, dropped; gc.collect()"),
])
def test_a_drop_while_a_stream_is_full(dropped: str, drop: str) -> None:
    check_python(f"""
        import faulthandler, gc, runnel, threading, time
        faulthandler.dump_traceback_later(60, exit=True)
        stream, other = runnel.Stream(), runnel.Stream()
        target = runnel.empty(64, stream)
        dropped = {dropped}
        is_stream = isinstance(dropped, runnel.Stream)
        if not is_stream:
            runnel.copy(target, dropped, stream)
        stream.synchronize()
        for each in (stream, other):
            each.launch_host_func(time.sleep, 0.5)  # wants the interpreter's lock when it has slept
        event = other.record_event()
        if is_stream:
            dropped.wait_event(event)
            target.record_stream(dropped)
        thread = threading.Thread(target=lambda: [stream.wait_event(event) for _ in range(2000)])
        thread.start()
        time.sleep(0.2)  # then no more calls fit into the stream
        {drop}
        thread.join()
        stream.synchronize()
    """, STANDIN_CHANNELS="1")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_multiprocessing_by_spawn_works() -> None:
    check_python("""
        import subprocess, sys
        subprocess.run([sys.executable, "-c", "import runnel; runnel.Stream().synchronize()"], check=True)
    """)
