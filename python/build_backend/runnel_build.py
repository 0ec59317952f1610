# SPDX-License-Identifier: Apache-2.0
"""meson-python, told what depends on the interpreter, and asked for the headers of the backends that RUNNEL_BACKENDS names."""
import os
import sys
import sysconfig

import mesonpy
from mesonpy import build_editable as _build_editable, build_wheel as _build_wheel

# A toolkit of the machine needs no wheels. These are for a wheel with every backend: RUNNEL_BACKENDS=host,cuda12,cuda13.
HEADERS = {
    "cuda12": ["nvidia-cuda-runtime-cu12"],
    "cuda13": ["nvidia-cuda-runtime>=13", "nvidia-cuda-crt>=13", "nvidia-cuda-cccl>=13"],
}


def _settings(config_settings):
    settings = dict(config_settings or {})
    if sys.version_info < (3, 12) or sysconfig.get_config_var("Py_GIL_DISABLED"):
        # Python 3.11's stable interface lacks what fast calls need, and free-threaded builds have none: a wheel for this version only.
        arguments = settings.get("setup-args", [])
        arguments = [arguments] if isinstance(arguments, str) else list(arguments)
        settings["setup-args"] = arguments + ["-Dpython.allow_limited_api=false"]
    return settings


def _headers():
    wanted = os.environ.get("RUNNEL_BACKENDS", "").replace(",", " ").split()
    return [wheel for backend in wanted for wheel in HEADERS.get(backend, [])]


def get_requires_for_build_wheel(config_settings=None):
    return mesonpy.get_requires_for_build_wheel(_settings(config_settings)) + _headers()


def get_requires_for_build_editable(config_settings=None):
    return mesonpy.get_requires_for_build_editable(_settings(config_settings)) + _headers()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return _build_wheel(wheel_directory, _settings(config_settings), metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _build_editable(wheel_directory, _settings(config_settings), metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    sys.exit("runnel-streams is built from a checkout of runnel, whose C++ sources lie beside this folder: "
             "write `pip install ./python` or `python -m build --wheel python`")
