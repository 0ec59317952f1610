#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the include directory of the NCCL in the folder NCCL_PATH and its shared library, a line each, or nothing."""
import glob
import os

root = os.environ.get("NCCL_PATH", "")
libraries = sorted(glob.glob(os.path.join(root, "lib", "libnccl.so*")), key=len)
if root and libraries and os.path.exists(os.path.join(root, "include", "nccl.h")):
    print(os.path.join(root, "include"))
    print(libraries[0])
