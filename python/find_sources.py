# SPDX-License-Identifier: Apache-2.0
"""What the C++ library's own build files say, for this build.

    find_sources.py version              the version
    find_sources.py sources              the library's sources that are the same for all backends, one a line
    find_sources.py sources BACKEND      those of host, cuda or hip
    find_sources.py observers            the names that observers.cpp.in wants, one a line
    find_sources.py toolkits             a line for each toolkit that is here: its name, the include folder and the library
"""
import glob
import os
import re
import subprocess
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))


def text(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def version():
    return re.search(r"version: '([^']+)'", text("meson.build")).group(1)


def quoted(source, folder):
    return [os.path.join(ROOT, folder, name) for name in re.findall(r"'([\w/]+\.cpp)'", source)]


def observers():
    return re.findall(r"'(\w+)'", re.search(r"^observers = \[(.*?)\]", text("src", "observe", "meson.build"), re.DOTALL | re.MULTILINE).group(1))


def observe_sources():
    """Without the list of observers, which is made from observers.cpp.in."""
    others = re.search(r"observe_sources = files\((.*?)\)", text("src", "observe", "meson.build"), re.DOTALL).group(1)
    return quoted(others, "src/observe") + [os.path.join(ROOT, "src/observe", name + ".cpp") for name in observers()]


def common_sources():
    library = re.search(r"runnel_lib = library\(.*?files\((.*?)\)", text("src", "meson.build"), re.DOTALL).group(1)
    return quoted(library, "src") + observe_sources()


def sources(backend):
    folder = "host" if backend == "host" else "cuda_hip"
    own = re.search(r"backend_sources = files\((.*?)\)", text("backends", folder, "meson.build"), re.DOTALL).group(1)
    return quoted(own, "backends/" + folder) + ([os.path.join(ROOT, "backends/host/engine.cpp")] if backend == "host" else [])


def cuda_version(include):
    try:
        with open(os.path.join(include, "cuda_runtime_api.h"), encoding="utf-8", errors="replace") as header:
            return int(re.search(r"#define\s+CUDART_VERSION\s+(\d+)", header.read()).group(1)) // 1000
    except (OSError, AttributeError):
        return 0


def cuda_folders():
    """Include and library folders: of the toolkit that was asked for, of the machine's, of the wheels in this interpreter's path."""
    for toolkit in [os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), "/usr/local/cuda", *sorted(glob.glob("/usr/local/cuda-*"))]:
        if toolkit:
            yield os.path.join(toolkit, "include"), [os.path.join(toolkit, "lib64"), os.path.join(toolkit, "lib")]
    for site in sys.path:
        for part in ("cuda_runtime", "cu13", "cu12"):
            at = os.path.join(site, "nvidia", part)
            yield os.path.join(at, "include"), [os.path.join(at, "lib")]


def toolkits():
    found = {}
    for include, folders in cuda_folders():
        major = cuda_version(include)
        for folder in folders:
            library = os.path.join(folder, f"libcudart.so.{major}")
            if major >= 12 and os.path.exists(library):
                found.setdefault(f"cuda{major}", (include, library))
    rocm = os.environ.get("ROCM_PATH", "/opt/rocm")
    for include in ("/usr/include", os.path.join(rocm, "include")):
        libraries = glob.glob(os.path.join(rocm, "lib/libamdhip64.so")) + glob.glob("/usr/lib/*/libamdhip64.so")
        if os.path.exists(os.path.join(include, "hip/hip_version.h")) and libraries:
            found.setdefault("hip", (include, libraries[0]))
    return found


if __name__ == "__main__":
    if sys.argv[1] == "version":
        print(version())
    elif sys.argv[1] == "sources":
        print("\n".join(sources(sys.argv[2]) if len(sys.argv) > 2 else common_sources()))
    elif sys.argv[1] == "observers":
        print("\n".join(observers()))
    else:
        wanted = os.environ.get("RUNNEL_BACKENDS", "").replace(",", " ").split()
        here = toolkits()
        missing = [name for name in wanted if name not in here and name != "host"]
        if missing:
            sys.exit(f"RUNNEL_BACKENDS names {', '.join(missing)}, of which no headers were found")
        for name, (include, library) in here.items():
            if not wanted or name in wanted:
                print(name, include, library)
