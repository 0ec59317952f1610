# SPDX-License-Identifier: Apache-2.0
"""A recipe for Spack. A repository of recipes names `url` and the sum of the release's tarball; here is what does not depend on them."""
from spack.package import *


class Runnel(MesonPackage):
    """Asynchronous streams, copies, events and graphs for C++20, with one interface on CUDA, HIP and hosts."""

    license("Apache-2.0")

    # version("0.1.0", sha256="...")  when there is a tarball; scripts/release prints its sum
    variant("backend", default="host", values=("host", "cuda", "hip"), multi=False, description="What streams run on")
    variant("mpi", default=False, description="Communicators over MPI: the library runnel-comm")
    variant("tools", default=True, description="The command runnel")

    depends_on("cxx", type="build")
    depends_on("meson@1.0.1:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3.9:", type="build")
    depends_on("cuda@12:", when="backend=cuda")
    depends_on("hip@5.2:", when="backend=hip")
    depends_on("mpi", when="+mpi")
    depends_on("cli11@2.3:", type="build", when="+tools")
    depends_on("nlohmann-json@3.11:", type="build", when="+tools")
    depends_on("googletest", type="test")

    conflicts("%gcc@:11", msg="runnel needs g++ 12 or newer")
    conflicts("%clang@:13", msg="runnel needs clang 14 or newer")

    def meson_args(self):
        def feature(name, is_on):
            return f"-D{name}={'enabled' if is_on else 'disabled'}"

        return [
            f"-Dgpu_backend={self.spec.variants['backend'].value}",
            feature("mpi", self.spec.satisfies("+mpi")),
            feature("tools", self.spec.satisfies("+tools")),
            feature("tests", self.run_tests),
            *(feature(name, False) for name in ("ccl", "kokkos", "stdexec")),
        ]

    def check(self):
        with working_dir(self.build_directory):
            meson("test", "--suite", "conformance")
