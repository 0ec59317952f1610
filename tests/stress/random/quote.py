# SPDX-License-Identifier: Apache-2.0
"""Writes what follows `#pragma once` in a header as a string literal of C++."""
import pathlib
import sys

print('R"text(' + pathlib.Path(sys.argv[1]).read_text().split('#pragma once')[1] + ')text"')
