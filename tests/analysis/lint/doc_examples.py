# SPDX-License-Identifier: Apache-2.0
"""Every block of C++ in the documentation compiles.

usage: doc_examples.py INCLUDE-FOLDER -- COMPILER...
       doc_examples.py --needing LIBRARY FILE

A block with an #include or a main() is a file of its own. Other blocks of a page compile in place of the line "// a block of this page" in
a program near the page's beginning, so that readers who paste them there have all that they need.
A block that needs another library says so in a comment before it, which readers do not see: <!-- needs: kokkos -->. It compiles in the page's
program, too, or, if the page has none, in a function. The first form leaves such blocks out. The second form writes only them into a file,
for a build that has the library; one of them with an #include is what the file begins with."""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

import repository

BLOCK = re.compile(r"^(?:<!-- needs: (\w+) -->\n)?```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HERE = "// a block of this page"
# A block may declare what the program declares as well, and need not use all of it.
ALLOWED = '#pragma GCC diagnostic ignored "-Wshadow"\n#pragma GCC diagnostic ignored "-Wunused-parameter"\n#pragma GCC diagnostic ignored "-Wunused-variable"\n'
PRELUDE = """#include <runnel/communicator.hpp>
#include <runnel/foreign_stream.hpp>
#include <runnel/overlap_bytes.hpp>
#include <runnel/runnel.hpp>
#include <runnel/stoppable.hpp>
#include <array>
#include <atomic>
#include <chrono>
#include <iostream>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>
using namespace runnel;
using namespace std::chrono_literals;
"""
PRELUDES = {
    "kokkos": "",
    "torch": "#include <ATen/ATen.h>\n#include <c10/cuda/CUDAStream.h>\n" + PRELUDE,
    "mpi": PRELUDE.replace("#include <runnel/runnel.hpp>", "#include <runnel/mpi.hpp>\n#include <runnel/runnel.hpp>"),
    "stdexec": PRELUDE.replace("#include <runnel/runnel.hpp>", "#include <runnel/execution.hpp>\n#include <runnel/runnel.hpp>"),
}


def frame_of(text):
    """The program in which the blocks of a page stand: what is before its main(), the parameters, the body up to a block, and the rest."""
    found = re.search(rf"^```cpp\n((?:(?!^```).)*)^int main(\([^)]*\)) (\{{(?:(?!^```).)*)^ *{HERE}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return found and found.groups()


def sources(page, wanted=None):
    """Returns the files to compile for a page: its whole programs, and one file with all its snippets, each in a function of its own."""
    text = page.read_text()
    frame = frame_of(text) or (wanted and ("", "()", "{", "}\n"))
    if frame and wanted == "kokkos":  # the tests compile the blocks for each space
        frame = (frame[0].replace("Kokkos::DefaultExecutionSpace", "RUNNEL_TEST_SPACE"), *frame[1:])
    end = frame[3].removesuffix("}\n") + "return 0;\n}\n" if frame else ""
    snippets, programs = [(ALLOWED + PRELUDES[wanted] if wanted else "") + (frame[0] if frame else "")], []
    for number, block in enumerate(BLOCK.finditer(text)):
        needs, code = block.groups()
        if needs != wanted or HERE in code:
            continue
        place = f'#line {text[:block.start(2)].count(chr(10)) + 1} "{page.relative_to(repository.ROOT)}"\n'
        if wanted and "#include" in code:
            snippets[0] = ALLOWED + place + code  # what such a page begins with
        elif "#include" in code or "int main(" in code:
            programs.append(place + code)
        else:
            assert frame, f"{page.name}: {code}: readers cannot compile this; write a program with '{HERE}' at the end"
            snippets.append(f"[[maybe_unused]] static int block_{number}{frame[1]} {frame[2]}\n{place}{code}{end}")  # int, as main()
    return programs + (["".join(snippets)] if len(snippets) > 1 else [])


def pages():
    return [repository.ROOT / "README.md", *sorted((repository.ROOT / "docs").glob("*.md"))]


def main():
    if sys.argv[1] == "--needing":
        found = [text for page in pages() for text in sources(page, sys.argv[2])]
        assert len(found) == 1, f"{len(found)} pages have blocks that need {sys.argv[2]}"
        pathlib.Path(sys.argv[3]).write_text(found[0])
        return
    include, _, *compiler = sys.argv[1:]
    texts = [text for page in pages() for text in sources(page)]
    options = ["-std=c++20", "-fsyntax-only", f"-I{repository.ROOT / 'include'}", f"-I{include}", "-x", "c++", "-"]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as several:
        done = list(several.map(lambda text: subprocess.run([*compiler, *options], input=text, capture_output=True, text=True), texts))
    problems = [run.stderr.strip() or f"the compiler ended with {run.returncode} for:\n{text}" for run, text in zip(done, texts) if run.returncode != 0]
    print(f"{len(done)} files of blocks compiled")
    repository.finish(problems if done else ["no block of C++ was found"])


if __name__ == "__main__":
    main()
