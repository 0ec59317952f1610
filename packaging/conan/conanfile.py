# SPDX-License-Identifier: Apache-2.0
"""A recipe for Conan 2, for the sources that it is in: conan create packaging/conan -o '&:backend=host'"""
import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.files import copy, load, rmdir
from conan.tools.layout import basic_layout
from conan.tools.meson import Meson, MesonToolchain

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir)


class Runnel(ConanFile):
    name = "runnel"
    license = "Apache-2.0"
    description = "Asynchronous streams, copies, events and graphs for C++20, with one interface on CUDA, HIP and hosts"
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"backend": ["host", "cuda", "hip"], "shared": [True, False]}
    default_options = {"backend": "host", "shared": True}

    def set_version(self):
        self.version = re.search(r"version: '([^']+)'", load(self, os.path.join(ROOT, "meson.build"))).group(1)

    def export_sources(self):
        for name in ("meson.build", "meson_options.txt", "LICENSE"):
            copy(self, name, ROOT, self.export_sources_folder)
        for folder in ("backends", "include", "interop", "packaging", "src"):
            copy(self, f"{folder}/*", ROOT, self.export_sources_folder)

    def validate(self):
        check_min_cppstd(self, 20)

    def layout(self):
        basic_layout(self)

    def generate(self):
        toolchain = MesonToolchain(self)
        toolchain.project_options["gpu_backend"] = str(self.options.backend)
        for part in ("tools", "tests", "examples", "benchmarks", "kokkos", "stdexec", "mpi", "ccl"):
            toolchain.project_options[part] = "disabled"
        toolchain.generate()

    def build(self):
        meson = Meson(self)
        meson.configure()
        meson.build()

    def package(self):
        Meson(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        # Conan writes its own.
        rmdir(self, os.path.join(self.package_folder, "lib", "cmake"))
        rmdir(self, os.path.join(self.package_folder, "lib", "pkgconfig"))

    def package_info(self):
        backend = str(self.options.backend)
        self.cpp_info.libs = [f"runnel-{backend}"]
        self.cpp_info.includedirs = [f"include/runnel-{backend}"]
        self.cpp_info.system_libs = ["pthread"]
        self.cpp_info.set_property("pkg_config_name", f"runnel-{backend}")
        if not self.options.shared and backend != "host":
            self.cpp_info.system_libs.append({"cuda": "cudart", "hip": "amdhip64"}[backend])
