#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the include directory of a CUDA runtime and its shared library, a line each, or nothing."""
import glob
import os

for root in (os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
    if not root or not os.path.exists(os.path.join(root, "include", "cuda_runtime_api.h")):
        continue
    for lib in ("lib64", "lib", "targets/x86_64-linux/lib"):
        libraries = sorted(glob.glob(os.path.join(root, lib, "libcudart.so*")), key=len)
        if libraries:
            print(os.path.join(root, "include"))
            print(libraries[0])
            raise SystemExit
