# SPDX-License-Identifier: Apache-2.0
"""Installs a build, moves it to another folder, and builds and runs small projects that use it. They find it with pkg-config, Meson, CMake
and make, and use the compilers of this machine. Prints TAP.

usage: run.py meson source-root build-root [word in the names of the consumers to run]"""
import concurrent.futures
import ctypes.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import traceback

MESON, SOURCE, BUILD = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
WANTED = sys.argv[4] if len(sys.argv) > 4 else ''
HERE = pathlib.Path(__file__).resolve().parent
LIMIT_S = 600
STRICT = ['-Wall', '-Wextra', '-Wpedantic', '-Wconversion', '-Wshadow', '-Werror']


class Skip(Exception):
    """A consumer cannot run because something is missing; str() says what."""


class Refused(Exception):
    """A command failed; str() is its output."""


def run(*command, at=None, environment=None):
    done = subprocess.run([str(part) for part in command], cwd=at, capture_output=True, text=True, timeout=LIMIT_S,
                          env={**os.environ, **(environment or {})}, errors='replace')
    if done.returncode != 0:
        raise Refused(f'{" ".join(map(str, command))}\nreturned {done.returncode}\n{done.stdout}{done.stderr}')
    return done.stdout


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def need(*names):
    for name in names:
        if path := shutil.which(name):
            return path
    raise Skip(f'{" or ".join(names)} is not installed')


def options_of(build):
    listed = json.loads(run(MESON, 'introspect', '--buildoptions', build))
    return {option['name']: option['value'] for option in listed}


class Installed:
    """The build, installed with DESTDIR and moved."""

    def __init__(self, scratch):
        self.options = options_of(BUILD)
        staging = scratch / 'staging'
        run(MESON, 'install', '-C', BUILD, '--no-rebuild', environment={'DESTDIR': str(staging)})
        prefix = staging / self.options['prefix'].lstrip('/')
        self.outside = [path for path in staging.rglob('*') if not path.is_dir() and prefix not in path.parents]
        self.prefix = scratch / 'moved'
        prefix.rename(self.prefix)
        self.lib = self.prefix / self.options['libdir']
        self.include, = (self.prefix / self.options['includedir']).iterdir()
        self.backend = self.include.name.removeprefix('runnel-')
        self.kinds = {'both': ['shared', 'static']}.get(self.options['default_library'], [self.options['default_library']])
        self.environment = {
            'PKG_CONFIG_PATH': str(self.lib / 'pkgconfig'),
            'LD_LIBRARY_PATH': ':'.join(filter(None, [str(self.lib), os.environ.get('LD_LIBRARY_PATH')])),
            'CMAKE_PREFIX_PATH': ':'.join([str(self.prefix), *self.options['cmake_prefix_path']]),
        }
        # Uses the machine's own runtime, because a stand-in runs no kernels.
        self.on_the_machine = {'LD_LIBRARY_PATH': str(self.lib)}
        # The host backend and a stand-in always have a device. Only a real runtime may have none.
        self.has_device = self.backend == 'host' or str(BUILD / 'tests/support/standin') in os.environ.get('LD_LIBRARY_PATH', '')
        self.cxx = os.environ.get('CXX', 'c++').split()

    def run(self, *command, at=None):
        return run(*command, at=at, environment=self.environment)

    def flags(self, *what, static=False):
        # Names the static library by its file, because the linker prefers the shared library.
        text = self.run('pkg-config', *what, *(['--static'] if static else []), f'runnel-{self.backend}').split()
        if static and '--libs' in what:
            text = [str(self.lib / f'librunnel-{self.backend}.a') if flag == f'-lrunnel-{self.backend}' else flag for flag in text]
        return text

    def expect_result(self, program, said='the same values came back', environment=None):
        text = run(program, environment=environment or self.environment)
        or_none = '' if self.has_device and environment is None else r'|no device: \S.*'
        expect(re.fullmatch(f'{self.backend}: ({said}{or_none})\n', text.splitlines(keepends=True)[-1]), text)
        return text


def compile_program(installed, scratch, compiler, *flags, source=HERE / 'program.cpp', static=None):
    if static is None:
        static = installed.kinds == ['static']
    installed.run(*compiler, '-std=c++20', *flags, *installed.flags('--cflags'), source, '-o', scratch / 'program',
                  *installed.flags('--libs', static=static))
    return installed.expect_result(scratch / 'program')


# Checks of the installed files

def nothing_outside_the_prefix(installed, scratch):
    expect(not installed.outside, f'outside the prefix: {installed.outside}')


def no_build_path(installed, scratch):
    for path in installed.prefix.rglob('*'):
        if path.is_symlink():
            expect(path.exists(), f'{path} points to nothing, {os.readlink(path)}')
        elif path.is_file():
            content = path.read_bytes()
            if installed.options['b_lto'] and path.suffix == '.a':
                # g++ always writes its working directory into its intermediate code. Distributions remove that code.
                run(need('objcopy'), '--wildcard', '--remove-section=.gnu.lto_*', '--remove-section=.gnu.debuglto_*', path, scratch / path.name)
                content = (scratch / path.name).read_bytes()
            for root in (SOURCE, BUILD):
                # Match whole paths only, because include/runnel/copy.hpp also contains /runnel/.
                held = re.search(rb'(?:(?<![\w.-])|(?<=-[IL]))' + re.escape(os.fsencode(root)) + b'/', content)
                expect(held is None, f'{path} holds the path {root}')


def only_names_of_runnel(installed, scratch):
    if 'shared' not in installed.kinds:
        raise Skip('no shared library was built')
    if installed.options['b_sanitize'] != 'none':
        raise Skip('sanitizers show names of their own')
    libraries = sorted(installed.lib.glob(f'librunnel-{installed.backend}*.so'))
    shown = [line.split()[2] for library in libraries for line in run(need('nm'), '-D', '--defined-only', library).splitlines()]
    expect(len(shown) > 100, f'only {len(shown)} names')
    # Mangled: a name in runnel::, or a vtable, type information or a guard for one. Demangled templates would begin with their return type.
    ours = re.compile(r'_Z(T[A-Z]|GV)?Z*N[VKRO]*6runnel')
    expect(all(ours.match(name) for name in shown), [name for name in shown if not ours.match(name)])
    return f'{len(shown)} names'


def versions(installed, scratch):
    if 'shared' not in installed.kinds:
        raise Skip('no shared library was built')
    version = installed.run('pkg-config', '--modversion', f'runnel-{installed.backend}').strip()
    library = f'librunnel-{installed.backend}.so'
    expect((installed.lib / library).resolve().name == f'{library}.{version}', 'the link leads to the full version')
    said = run(need('readelf'), '-d', installed.lib / library)
    major, minor, _ = version.split('.')
    soname = f'{library}.{major}' if major != '0' else f'{library}.0.{minor}'
    expect(f'[{soname}]' in said and (installed.lib / soname).exists(), said)
    return soname


def default_names_the_backend(installed, scratch):
    if not installed.options['default_backend']:
        raise Skip('another backend is the default')
    expect(installed.run('pkg-config', '--variable=backend', 'runnel').strip() == installed.backend, 'runnel.pc')
    expect(installed.run('pkg-config', '--cflags', 'runnel').split() == installed.flags('--cflags'), 'runnel.pc leads to the backend')


def the_command(installed, scratch):
    path = installed.prefix / installed.options['bindir'] / f'runnel-{installed.backend}'
    if not path.exists():
        raise Skip('the command was not built')
    # Without LD_LIBRARY_PATH: the command must find its library wherever the prefix is.
    said = run(path, '--version', environment={'LD_LIBRARY_PATH': ''})
    expect(f'({installed.backend})' in said, said)


def beside_other_backends(installed, scratch):
    """Each file's path contains the backend's name, except files that are the same for all backends and files of the default backend."""
    same = {'runnel-config.cmake', 'runnel-config-version.cmake', 'runnel.1', 'completions/runnel', 'site-functions/_runnel',
            'vendor_completions.d/runnel.fish'}
    default = {'runnel.pc', 'runnel-default.cmake', 'bin/runnel'} if installed.options['default_backend'] else set()
    for path in installed.prefix.rglob('*'):
        inside = path.relative_to(installed.prefix)
        names = {inside.name, '/'.join(inside.parts[-2:])}
        expect(path.is_dir() or installed.backend in str(inside) or names & (same | default), f'{inside} would collide')


# Projects that use the library

def meson_dependency(installed, scratch):
    build = scratch / 'build'
    installed.run(MESON, 'setup', build, HERE / 'meson_dependency', f'-Drunnel_backend={installed.backend}')
    installed.run(MESON, 'compile', '-C', build)
    installed.expect_result(build / 'program')


def meson_subproject(installed, scratch):
    project = scratch / 'project'
    shutil.copytree(HERE / 'meson_subproject', project)
    shutil.copy(HERE / 'program.cpp', project)
    shutil.copytree(SOURCE, project / 'subprojects/runnel', ignore=shutil.ignore_patterns('build*', '.*', '__pycache__'))
    run(MESON, 'setup', project / 'build', project, f'-Drunnel_backend={installed.backend}', '--wrap-mode=forcefallback', '--prefix=/there',
        '--unity=subprojects')
    run(MESON, 'compile', '-C', project / 'build')
    run(MESON, 'install', '-C', project / 'build', environment={'DESTDIR': str(scratch / 'there')})
    files = [path.relative_to(scratch / 'there').as_posix() for path in (scratch / 'there').rglob('*') if path.is_file()]
    expect(files == ['there/bin/program'], f'installed: {files}')
    installed.expect_result(project / 'build/program')


def cmake(installed, scratch, *components, result=True, options=()):
    tool = need('cmake')
    build = scratch / 'build'
    installed.run(tool, '-S', HERE / 'cmake', '-B', build, f'-DCOMPONENTS={";".join(components)}', '-DCMAKE_BUILD_TYPE=Debug', *options)
    installed.run(tool, '--build', build)
    installed.expect_result(build / 'program')
    return run(need('readelf'), '-d', build / 'program')


def cmake_component(installed, scratch):
    cmake(installed, scratch, installed.backend)


def cmake_static(installed, scratch):
    if 'static' not in installed.kinds:
        raise Skip('no static library was built')
    said = cmake(installed, scratch, installed.backend, 'static')
    expect('librunnel' not in said, said)


def cmake_default(installed, scratch):
    if not installed.options['default_backend']:
        raise Skip('another backend is the default')
    cmake(installed, scratch)


def refused(words, call):
    try:
        call()
    except Refused as error:
        text = re.sub(r'\s+', ' ', str(error))
        for word in words:
            expect(word in text, f'no {word!r} in the refusal:\n{error}')
        return
    raise AssertionError('the command was not refused')


def cmake_backend_missing(installed, scratch):
    other = 'hip' if installed.backend != 'hip' else 'cuda'
    refused([f'the backend {other} is not installed here', f'-Dgpu_backend={other}'], lambda: cmake(installed, scratch, other))


def cmake_unknown_component(installed, scratch):
    refused(['there is no component opencl'], lambda: cmake(installed, scratch, 'opencl'))


def cmake_version_too_new(installed, scratch):
    project = scratch / 'project'
    project.mkdir()
    (project / 'CMakeLists.txt').write_text('cmake_minimum_required(VERSION 3.18)\nproject(consumer CXX)\nfind_package(runnel 0.99 CONFIG REQUIRED)\n')
    refused(['0.99'], lambda: installed.run(need('cmake'), '-S', project, '-B', scratch / 'build'))


def cmake_subdirectory(installed, scratch):
    refused(['runnel is built with Meson', 'find_package(runnel CONFIG REQUIRED'],
            lambda: run(need('cmake'), '-S', HERE / 'cmake_subdirectory', '-B', scratch / 'build', f'-DRUNNEL_TREE={SOURCE}'))


def configure_refused(installed, scratch):
    """A wrong path or option stops in one line, which says what to do."""
    for words, environment, options in (
            ('has no include/cuda_runtime_api.h: set it to the folder', {'CUDA_PATH': '/nowhere'}, []),
            ('has no include/hip: set it to the folder', {'ROCM_PATH': '/nowhere'}, ['-Dgpu_backend=hip']),
            ('hip_platform=nvidia is for HIP', {}, ['-Dgpu_backend=host', '-Dhip_platform=nvidia']),
            ('gpu_backend: what streams run on', {}, ['-Dgpu_backend=rocm'])):
        refused([words], lambda: run(MESON, 'setup', scratch / words[:20].replace('/', ' '), SOURCE, *options, environment=environment))


def makefile(installed, scratch):
    packages = [f'runnel-{installed.backend}'] + (['runnel'] if installed.options['default_backend'] else [])
    for package in packages:
        run(need('make'), '-B', '-f', HERE / 'makefile/Makefile', f'SOURCES={HERE}', f'PACKAGE={package}', 'CXX=' + ' '.join(installed.cxx),
            at=scratch, environment=installed.environment)
        installed.expect_result(scratch / 'program')


def strict_warnings(installed, scratch):
    compile_program(installed, scratch, installed.cxx, *STRICT)


def without_rtti(installed, scratch):
    compile_program(installed, scratch, installed.cxx, '-fno-rtti', *STRICT)


def hidden_symbols(installed, scratch):
    compile_program(installed, scratch, installed.cxx, '-fvisibility=hidden', '-fvisibility-inlines-hidden')


def link_time_optimisation(installed, scratch):
    compile_program(installed, scratch, installed.cxx, '-O2', '-flto')


def static_library(installed, scratch):
    if 'static' not in installed.kinds:
        raise Skip('no static library was built')
    compile_program(installed, scratch, installed.cxx, static=True)


def own_cpp_library(installed, scratch):
    """A program that shows nothing of its static C++ library, so that the shared library uses another one."""
    if 'shared' not in installed.kinds:
        raise Skip('no shared library was built')
    libstdcpp = pathlib.Path(run(*installed.cxx, '-print-file-name=libstdc++.a').strip())
    if not libstdcpp.is_absolute():
        raise Skip('there is no static C++ library')
    installed.run(*installed.cxx, '-std=c++20', *installed.flags('--cflags'), HERE / 'own_cpp_library/program.cpp', '-o', scratch / 'program',
                  '-static-libstdc++', '-Wl,--exclude-libs,ALL', *installed.flags('--libs'))
    said = installed.run(scratch / 'program')
    expect(said == f'{installed.backend}: two C++ libraries, equal conditions\n', said)


def with_clang(installed, scratch):
    compile_program(installed, scratch, [need('clang++')], *STRICT, '-Wsign-conversion')


def with_clang_without_rtti(installed, scratch):
    compile_program(installed, scratch, [need('clang++')], '-fno-rtti', *STRICT)


def wrong_backend(installed, scratch):
    """Headers of one backend with the library of another must not link, and the message must name the backend."""
    other = {'host': 'cuda', 'cuda': 'host', 'hip': 'cuda'}[installed.backend]
    shutil.copytree(installed.include, scratch / 'include')
    config = scratch / 'include/runnel/config.hpp'
    text = config.read_text().replace(f'BACKEND_{installed.backend.upper()} ', f'BACKEND_{other.upper()} ')
    config.write_text(text.replace(f'{installed.backend}_v0', f'{other}_v0'))
    refused([f'runnel::{other}_v0::'],
            lambda: installed.run(*installed.cxx, '-std=c++20', '-I', scratch / 'include', HERE / 'program.cpp', '-o', scratch / 'program',
                                  *installed.flags('--libs', static=installed.kinds == ['static'])))


def plugin(installed, scratch):
    if 'shared' not in installed.kinds:
        raise Skip('a static library in two places is two libraries (docs/installing.md)')
    flags = ['-std=c++20', '-I', HERE / 'plugin', *installed.flags('--cflags')]
    libs = installed.flags('--libs')
    for visibility in ('default', 'hidden'):
        installed.run(*installed.cxx, *flags, '-shared', '-fPIC', HERE / 'plugin/plugin.cpp', '-o', scratch / 'libplugin.so', *libs)
        installed.run(*installed.cxx, *flags, f'-fvisibility={visibility}', HERE / 'plugin/main.cpp', '-o', scratch / 'program', '-L', scratch,
                      '-lplugin', f'-Wl,-rpath,{scratch}', *libs)
        installed.expect_result(scratch / 'program', said='one current stream, one pool')


def unloaded_plugin(installed, scratch):
    """A plugin that uses runnel is unloaded. The library has threads, so it stays."""
    installed.run(*installed.cxx, '-std=c++20', HERE / 'plugin/unload.cpp', '-o', scratch / 'program', '-pthread', '-ldl')
    for kind in installed.kinds:
        static = kind == 'static'
        target = scratch / f'{kind}.so'
        installed.run(*installed.cxx, '-std=c++20', '-shared', '-fPIC', '-Dmain=use', *installed.flags('--cflags'), HERE / 'program.cpp', '-o', target,
                      *installed.flags('--libs', static=static), *(['-Wl,--exclude-libs,ALL', '-Wl,-z,nodelete'] if static else []))
        library = target if static else installed.lib / f'librunnel-{installed.backend}.so'
        expect('NODELETE' in run(need('readelf'), '-d', library), f'{library} may be unloaded')
        text = installed.run(scratch / 'program', target, library)
        expect(text.startswith(f'{installed.backend}: '), text)


def own_kernel(installed):
    """The folder of the example of this backend, and what finds its compiler."""
    if installed.backend == 'host' or installed.options.get('hip_platform') == 'nvidia' and installed.backend == 'hip':
        raise Skip('kernels are of CUDA and of HIP on AMD')
    folder = SOURCE / 'examples/own_kernel' / installed.backend
    environment = dict(installed.environment)
    if installed.backend == 'cuda':
        environment['PATH'] = os.path.dirname(need('nvcc', '/usr/local/cuda/bin/nvcc')) + ':' + os.environ['PATH']
    else:
        # The architecture has to be named where there is no GPU.
        environment |= {'CXX': need('hipcc'), 'CXXFLAGS': '--offload-arch=gfx90a'}
    return folder, environment


def expect_kernel(installed, program):
    installed.expect_result(program, said='each number was scaled', environment=installed.on_the_machine)
    needed = run(need('readelf'), '-d', program)
    runtime = {'cuda': 'libcudart.so', 'hip': 'libamdhip64.so'}[installed.backend]
    expect(runtime in needed, f'a second runtime was linked into the program:\n{needed}')


def own_kernel_cmake(installed, scratch):
    folder, environment = own_kernel(installed)
    tool = need('cmake')
    run(tool, '-S', folder, '-B', scratch / 'build', environment=environment)
    run(tool, '--build', scratch / 'build', environment=environment)
    expect_kernel(installed, scratch / 'build/own_kernel')
    if installed.backend == 'cuda':
        run(tool, '-S', folder, '-B', scratch / 'old', '-DCMAKE_CUDA_STANDARD=17', environment=environment)
        refused(['runnel needs C++20'], lambda: run(tool, '--build', scratch / 'old', environment=environment))


def own_kernel_any_backend(installed, scratch):
    """A project without the language CUDA: a kernel on CUDA, a host function elsewhere."""
    folder, tool, environment = SOURCE / 'examples/own_kernel/any', need('cmake'), dict(installed.environment)
    if installed.backend == 'cuda':
        environment['PATH'] = os.path.dirname(need('nvcc', '/usr/local/cuda/bin/nvcc')) + ':' + os.environ['PATH']
    for number, backend in enumerate(('', installed.backend)):
        build = scratch / f'build{number}'
        run(tool, '-S', folder, '-B', build, f'-DBACKEND={backend}', environment=environment)
        run(tool, '--build', build, environment=environment)
        installed.expect_result(build / 'own_kernel', said='each number was scaled', environment=installed.on_the_machine)
    refused(['a program has one backend'], lambda: run(tool, '-S', folder, '-B', scratch / 'two', '-DBACKEND=cuda;host', environment=environment))


def own_kernel_meson(installed, scratch):
    folder, environment = own_kernel(installed)
    run(MESON, 'setup', scratch / 'build', folder, environment=environment)
    run(MESON, 'compile', '-C', scratch / 'build', environment=environment)
    expect_kernel(installed, scratch / 'build/own_kernel')


def own_kernel_line(installed, scratch):
    """The command in docs/own-kernels.md."""
    folder, environment = own_kernel(installed)
    source, = (path for path in folder.iterdir() if path.stem == 'own_kernel')
    page = (SOURCE / 'docs/own-kernels.md').read_text()
    line = re.search(rf'^{"nvcc" if installed.backend == "cuda" else "hipcc"} .*$', page, re.MULTILINE)[0]
    expect(line.count(source.name) == 1, f'{line!r} does not compile {source.name}')
    run('sh', '-c', line.replace(source.name, str(source)), at=scratch, environment=environment)
    expect_kernel(installed, scratch / 'own_kernel')


def kokkos_has_cuda():
    return any(path.suffix == '.cu' for path in (BUILD / 'tests/conformance/kokkos').glob('*'))


def need_kokkos():
    if not any(found['name'] == 'Kokkos' for found in json.loads(run(MESON, 'introspect', '--dependencies', BUILD))):
        raise Skip('the build found no Kokkos by CMake files')
    if kokkos_has_cuda() and ctypes.util.find_library('cuda') is None:
        raise Skip('programs of this Kokkos need the driver\'s libcuda.so.1, which is not installed')


def cmake_kokkos(installed, scratch):
    need_kokkos()
    tool = need('cmake')
    installed.run(tool, '-S', HERE / 'kokkos', '-B', scratch / 'build', f'-DBACKEND={installed.backend}', '-DCMAKE_BUILD_TYPE=Release')
    installed.run(tool, '--build', scratch / 'build')
    installed.expect_result(scratch / 'build/program', environment=installed.on_the_machine if kokkos_has_cuda() else None)


def meson_kokkos(installed, scratch):
    need_kokkos()
    if kokkos_has_cuda():
        raise Skip('this Kokkos is compiled by nvcc')
    installed.run(MESON, 'setup', scratch / 'build', HERE / 'kokkos', f'-Drunnel_backend={installed.backend}')
    installed.run(MESON, 'compile', '-C', scratch / 'build')
    installed.expect_result(scratch / 'build/program')


def expect_sum(installed, program):
    """In two processes, also as root and on one processor."""
    mpirun = need('mpirun')
    of_open_mpi = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1', 'OMPI_MCA_rmaps_base_oversubscribe': '1'}
    said = run(mpirun, '-n', 2, program, environment={**installed.environment, **of_open_mpi})
    expect(said == (f'{installed.backend}: 2 processes, sum 3\n' if installed.has_device else ''), said)


def need_comm(installed):
    if not (installed.include / 'runnel/mpi.hpp').exists():
        raise Skip('the component comm was not built, or without MPI')


def comm_pkg_config(installed, scratch):
    need_comm(installed)
    flags = installed.run('pkg-config', '--cflags', '--libs', f'runnel-comm-{installed.backend}').split()
    # MPI's headers have warnings of their own.
    quiet = [part for flag in flags for part in (['-isystem', flag[2:]] if flag.startswith('-I') and 'runnel' not in flag else [flag])]
    installed.run(*installed.cxx, '-std=c++20', *STRICT, HERE / 'comm/program.cpp', '-o', scratch / 'program', *quiet)
    expect_sum(installed, scratch / 'program')


def comm_cmake(installed, scratch):
    need_comm(installed)
    tool = need('cmake')
    kinds = ['static'] if installed.kinds == ['static'] else ['shared']
    installed.run(tool, '-S', HERE / 'comm', '-B', scratch / 'build', f'-DCOMPONENTS={";".join([installed.backend, *kinds])}')
    installed.run(tool, '--build', scratch / 'build')
    expect_sum(installed, scratch / 'build/program')


def comm_missing(installed, scratch):
    if (installed.include / 'runnel/communicator.hpp').exists() or shutil.which('mpicxx') is None:
        raise Skip('the component comm was built, or MPI is not installed')
    refused(['installed without the component comm', '-Dmpi=enabled'],
            lambda: installed.run(need('cmake'), '-S', HERE / 'comm', '-B', scratch / 'build', f'-DCOMPONENTS={installed.backend}'))


def finds_races(installed, scratch):
    """A library with the option find_races, and a program with ThreadSanitizer: it reports the missing wait with the two calls."""
    if not installed.options['find_races']:
        raise Skip('a library with the option find_races is a build of its own')
    source = HERE / 'race.cpp'
    lines = {mark: number for number, line in enumerate(source.read_text().splitlines(), 1) for mark in ('one', 'other') if line.endswith(f'// {mark}')}
    under = [need('setarch'), '-R'] if subprocess.run(['setarch', '-R', 'true'], stderr=subprocess.DEVNULL).returncode == 0 else []
    compilers = [path for name in ('g++', 'clang++') if (path := shutil.which(name))]
    for compiler in compilers:
        for wait in ([], ['-DWITH_WAIT']):
            installed.run(compiler, '-std=c++20', '-g', '-O1', '-fsanitize=thread', *wait, *installed.flags('--cflags'), source,
                          '-o', scratch / 'program', *installed.flags('--libs'))
            if wait:
                expect(installed.run(*under, scratch / 'program') == f'{installed.backend}: done\n', 'no report')
            else:
                refused(['ThreadSanitizer: data race', *(f'race.cpp:{line}' for line in lines.values())],
                        lambda: installed.run(*under, scratch / 'program'))
    return ', '.join(compilers)


CONSUMERS = [nothing_outside_the_prefix, no_build_path, only_names_of_runnel, versions, default_names_the_backend, the_command,
             beside_other_backends, meson_dependency, meson_subproject, cmake_component, cmake_static, cmake_default, cmake_kokkos, meson_kokkos, comm_pkg_config, comm_cmake, comm_missing,
             cmake_backend_missing, cmake_unknown_component, cmake_version_too_new, cmake_subdirectory, configure_refused, makefile, strict_warnings,
             without_rtti, hidden_symbols, link_time_optimisation, static_library, own_cpp_library, with_clang, with_clang_without_rtti, wrong_backend, plugin, unloaded_plugin, own_kernel_cmake, own_kernel_any_backend, own_kernel_meson, own_kernel_line, finds_races]


def attempt(consumer, number, installed, folder):
    """Whether it worked, and what TAP says of it."""
    scratch = folder / consumer.__name__
    scratch.mkdir()
    name = consumer.__name__.replace('_', ' ')
    try:
        note = consumer(installed, scratch)
        return True, f'ok {number} - {name}' + (f': {note}' if note else '')
    except Skip as reason:
        return True, f'ok {number} - {name} # SKIP {reason}'
    except Exception:  # any failure: continue with the other consumers
        return False, f'not ok {number} - {name}\n' + '\n'.join(f'# {line}' for line in traceback.format_exc().splitlines())


def main():
    wanted = [consumer for consumer in CONSUMERS if WANTED in consumer.__name__]
    print(f'1..{len(wanted)}', flush=True)
    failures = 0
    with tempfile.TemporaryDirectory(prefix='runnel-consumers-') as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        installed = Installed(pathlib.Path(folder))
        attempts = [pool.submit(attempt, consumer, number, installed, pathlib.Path(folder)) for number, consumer in enumerate(wanted, 1)]
        for each in attempts:
            worked, said = each.result()
            print(said, flush=True)
            failures += not worked
    sys.exit(1 if failures else 0)


if __name__ == '__main__':
    main()
