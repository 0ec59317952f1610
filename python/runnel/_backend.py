# SPDX-License-Identifier: Apache-2.0
"""Which backend this process uses, and where its runtime is."""
from __future__ import annotations

import ctypes
import glob
import importlib
import importlib.util
import os
import re
import sys
from types import ModuleType

_NAMES = ("cuda13", "cuda12", "hip", "host")
_WHEELS = {"cuda13": "pip install 'runnel-streams[cuda13]'", "cuda12": "pip install 'runnel-streams[cuda12]'"}

#: Why backends that are in this package were not used: a line each.
reasons: list[str] = []


def _built() -> list[str]:
    return [name for name in _NAMES if importlib.util.find_spec(f"runnel._{name}") is not None]


def _wanted_by_frameworks() -> list[str]:
    """The runtime of torch or CuPy, if one of them is loaded: a process should have one."""
    torch = sys.modules.get("torch")
    version = getattr(torch, "version", None)
    if getattr(version, "hip", None):
        return ["hip"]
    if cuda := getattr(version, "cuda", None):
        return [f"cuda{cuda.split('.')[0]}"]
    runtime = getattr(getattr(getattr(sys.modules.get("cupy"), "cuda", None), "runtime", None), "runtimeGetVersion", None)
    return [f"cuda{runtime() // 1000}"] if runtime is not None else []


def _places(library: str) -> list[str]:
    """Where a runtime may be that the loader does not find by itself: in PyPI's wheels, and in the toolkits' own folders."""
    found: list[str] = []
    for site in sys.path:
        for part in ("cu13", "cuda_runtime", "cu12"):
            found += glob.glob(os.path.join(site, "nvidia", part, "lib", library))
    return found + glob.glob(os.path.join("/usr/local", "cuda*", "lib64", library)) + glob.glob("/opt/rocm*/lib/" + library)


def _load_runtime(name: str, library: str) -> None:
    """Loads the runtime, so that the module finds it by its name."""
    for place in _places(library):
        try:
            ctypes.CDLL(place)
            return
        except OSError:
            continue
    if name != "hip" and importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.pathfinder"):
        importlib.import_module("cuda.pathfinder").load_nvidia_dynamic_lib("cudart")
        return
    advice = f": {_WHEELS[name]} brings it" if name in _WHEELS else ": it comes with ROCm"
    raise ImportError(f"{library} was not found{advice}")


def _load(name: str) -> ModuleType:
    """The module of a backend. The process's own runtime is taken if it has one, else what the loader finds, else a wheel's."""
    try:
        return importlib.import_module(f"runnel._{name}")
    except ImportError as error:
        missing = re.match(r"(lib\w+\.so\.\d+): cannot open", str(error))
        if missing is None:
            raise
        library = missing[1]
    _load_runtime(name, library)
    return importlib.import_module(f"runnel._{name}")


def reason(module: ModuleType) -> str:
    """Why it has no device, for a reader of Python."""
    text: str = module.why_no_device()
    return text.replace("build runnel with -Dgpu_backend=host", "set RUNNEL_BACKEND=host")


def _asked_for() -> ModuleType | None:
    name = os.environ.get("RUNNEL_BACKEND", "")
    built = _built()
    if name == "cuda":
        name = next((each for each in built if each.startswith("cuda")), name)
    if not name:
        return None
    if name not in built:
        raise ImportError(f"RUNNEL_BACKEND={name}, but this runnel was built with {', '.join(built)}")
    return _load(name)


def choose() -> ModuleType:
    """The module of the backend: the one that RUNNEL_BACKEND names; else that of torch or CuPy if they are loaded; else the first with a
    device; else the host's."""
    if asked := _asked_for():
        return asked
    built = _built()
    preferred = [name for name in _wanted_by_frameworks() if name in built]
    for name in preferred + [name for name in built if name not in preferred and name != "host"]:
        try:
            module = _load(name)
            if module.device_count() > 0:
                return module
            reasons.append(f"{name}: {reason(module)}")
        except Exception as error:  # a runtime that is there and broken must not keep the host backend from working
            reasons.append(f"{name}: {error}")
    return _load("host")
