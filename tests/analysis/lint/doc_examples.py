# SPDX-License-Identifier: Apache-2.0
"""Every block of C++ in the documentation compiles.

usage: doc_examples.py INCLUDE-FOLDER -- COMPILER...
       doc_examples.py --needing LIBRARY FILE

A block with an #include or a main() is a file of its own. Other blocks of a page compile in place of the line "// a block of this page" in
a program near the page's beginning, so that readers who paste them there have all that they need.
A block that needs another library says so in a comment before it, which readers do not see: <!-- needs: kokkos; given: int n = 1; -->. It is
the body of a function with `using namespace runnel` and the declarations that are given. The first form leaves such blocks out. The
second form writes only them into a file, for a build that has the library; one of them with an #include is what the file begins with."""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

import repository

BLOCK = re.compile(r"^(?:<!-- (?:needs: (\w+)(?:; )?)?(?:given: (.*?))? ?-->\n)?```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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
    # The declarations that docs/kokkos.md states for all its blocks. The functors are not local types, because nvcc does not launch those.
    "kokkos": """#include <runnel/kokkos.hpp>
#include <runnel/mdspan.hpp>
#include <runnel/runnel.hpp>
#include <Kokkos_Random.hpp>
#include <iostream>
#include <stdexcept>
using Space = RUNNEL_TEST_SPACE;
using View = Kokkos::View<double*, Space>;
struct Scale {
  KOKKOS_FUNCTION void operator()(std::size_t i) const { y(i) = 2 * x(i); }
  View x, y;
};
struct ScaleChunk {
  KOKKOS_FUNCTION void operator()(std::size_t i) const { y(i) = 2 * x(i); }
  Kokkos::View<const double*, Space::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>> x;
  Kokkos::View<double*, Space::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>> y;
};
struct Checked {
  KOKKOS_FUNCTION void operator()(std::size_t i) const {
    KOKKOS_IF_ON_HOST((if (x(i) < 0) throw std::domain_error("a negative number");))
    x(i) = Kokkos::sqrt(x(i));
  }
  View x;
};
struct Noise {
  KOKKOS_FUNCTION void operator()(std::size_t i) const {
    auto generator = pool.get_state();
    x(i) = generator.drand();
    pool.free_state(generator);
  }
  View x;
  Kokkos::Random_XorShift64_Pool<Space> pool;
};
struct Boundary {
  KOKKOS_FUNCTION void operator()(std::size_t i) const { x(i) = 0; }
  View x;
};
""",
    "torch": "#include <ATen/ATen.h>\n#include <c10/cuda/CUDAStream.h>\n" + PRELUDE,
    "mpi": PRELUDE.replace("#include <runnel/runnel.hpp>", "#include <runnel/mpi.hpp>\n#include <runnel/runnel.hpp>"),
    "stdexec": PRELUDE.replace("#include <runnel/runnel.hpp>", "#include <runnel/execution.hpp>\n#include <runnel/runnel.hpp>"),
}


def frame_of(text):
    """The program in which the blocks of a page stand: what is before its main(), the parameters, the body up to a block, and the rest."""
    found = re.search(r"^```cpp\n((?:(?!^```).)*)^int main(\([^)]*\)) (\{(?:(?!^```).)*)^ *// a block of this page\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return found and found.groups()


def sources(page, wanted=None):
    """Returns the files to compile for a page: its whole programs, and one file with all its snippets, each in a function of its own."""
    text = page.read_text()
    frame = frame_of(text) if wanted is None else None
    snippets, programs = [PRELUDES[wanted] if wanted else frame[0] if frame else ""], []
    for number, block in enumerate(BLOCK.finditer(text)):
        needs, words, code = block.groups()
        if needs != wanted:
            continue
        place = f'#line {text[:block.start(3)].count(chr(10)) + 1} "{page.relative_to(repository.ROOT)}"\n'
        if wanted and "#include" in code:
            snippets[0] = place + code  # what such a page begins with
        elif "#include" in code or "int main(" in code:
            programs.append(place + code)
        elif not wanted:
            assert frame, f"{page.name}: {code}: readers cannot compile this; write a program with '// a block of this page' at the beginning"
            assert not words, f"{page.name}: {words}: readers do not see this; write it into the program at the page's beginning, or into the block"
            snippets.append(f"[[maybe_unused]] static int block_{number}{frame[1]} {frame[2]}\n{place}{code}{frame[3]}")  # int, as main()
        else:
            snippets.append(f"[[maybe_unused]] static void block_{number}() {{\n{words or ''}\n{{\n{place}{code}}}\n}}\n")
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
