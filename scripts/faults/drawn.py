# SPDX-License-Identifier: Apache-2.0
"""Many small changes of the library, drawn by chance, of which the suites should find each."""
import hashlib
import json
import pathlib
import queue
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import tree
from tree import ROOT

FOLDERS = {'src': ('host', 'cuda'), 'backends/host': ('host',), 'backends/cuda_hip': ('cuda',), 'backends/cuda': ('cuda',)}
COMMUNICATORS = 'src/comm/'
SUITES = (('host', None), ('cuda', 'lazy'), ('cuda', 'random'))
# What Meson runs of the conformance suite: cases, number of devices, memory of a device in MiB. The short runs come first.
SLOW = 'BlockedFunctions.*:MissingWait.*:Stress.*:QueueBound.*:Staging.*'
RUNS = (('NoDevice.*', '0', None), ('OverlapInLittleMemory.*', '1', '64'), ('*-' + SLOW, '1', None), ('*Two*:MultiDevice.*', '2', None),
        (SLOW, '1', None))
# Reusing memory is the work of the host backend, and of the runtime on other devices.
RUNS_BY_BACKEND = {'host': (('MemoryReuse.*:DeviceMemory.*:RecordedUses.*', '1', '256'), *RUNS), 'cuda': RUNS}


# draw

def is_worth_a_change(line):
    text = line.strip()
    return bool(text) and not re.match(r'(//|///|#|}|{|namespace|using|template|static_assert|public:|private:)', text)


def mutants_of(path):
    """All changes of one line of a file that universalmutator knows."""
    lines = path.read_text().splitlines()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, '-m', 'universalmutator.genmutants', str(path), '--noCheck', '--mutantDir', folder],
                       stdout=subprocess.DEVNULL, check=True, cwd=folder)
        for changed in sorted(pathlib.Path(folder).glob('*.mutant.*')):
            after = changed.read_text().splitlines()
            if len(after) != len(lines):
                continue  # a new line: mostly a `break` where none can be
            places = [i for i, (a, b) in enumerate(zip(lines, after)) if a != b]
            if len(places) == 1 and is_worth_a_change(lines[places[0]]):
                yield {'file': str(path.relative_to(ROOT)), 'line': places[0] + 1, 'from': lines[places[0]], 'to': after[places[0]]}


def draw(options):
    generator = random.Random(options.seed)
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob('*.[ch]pp')):
            if options.under in str(path.relative_to(ROOT)):
                found += list(mutants_of(path))
    # One change for each line at most, so that long lines do not count more often.
    by_line = {}
    for mutant in found:
        by_line.setdefault((mutant['file'], mutant['line']), []).append(mutant)
    drawn = [generator.choice(by_line[key]) for key in sorted(by_line)]
    generator.shuffle(drawn)
    # More than were asked for: some do not compile.
    json.dump({'wanted': options.count, 'mutants': drawn[:3 * options.count]}, sys.stdout, indent=1)


# run

class Place(tree.Tree):
    """A copy with a build folder for each backend, in which one thread builds and tests changes."""

    def __init__(self, folder, builds, patience):
        super().__init__(folder, builds.values())
        self.patience = patience
        self.failed = None  # the last program that failed, and the end of its output
        self.has_hung = False  # whether it was out of time
        self.builds = {backend: self.folder / build.relative_to(ROOT) for backend, build in builds.items()}

    def build(self, backend):
        """Builds the library, and the tests that are compiled with headers of src/. The other tests use the shared library."""
        build = self.builds[backend]
        targets = [str(path.relative_to(build)) for path in self.libraries(backend)]
        if backend == 'host':
            targets.append('tests/unit/unit')
        return tree.build(build, *targets, jobs=['-j1'])

    def libraries(self, backend):
        return sorted((self.builds[backend] / 'src').rglob('librunnel-*.so.*.*.[0-9]'))

    def code(self, backend):
        """A number for the machine code of the libraries. Without build identifiers, which the names of folders go into, too."""
        stripped = self.folder / 'stripped.so'
        number = hashlib.sha256()
        for library in self.libraries(backend):
            subprocess.run(['strip', '--remove-section=.note.gnu.build-id', '-o', str(stripped), str(library)], check=True)
            number.update(stripped.read_bytes())
        return number.hexdigest()

    def run_communicators(self, backend, order):
        """True if the suites of communicators pass, in two processes."""
        build = self.builds[backend] / 'tests/conformance/comm'
        scripts = self.folder / 'tests/conformance/comm'
        standins = self.builds[backend] / 'tests/support/standin'
        standin = f'{standins}/ccl:{standins}'
        # As tests/conformance/comm/meson.build has it.
        environment = dict(OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1', OMPI_MCA_rmaps_base_oversubscribe='1',
                           OMPI_MCA_mpi_yield_when_idle='1', RUNNEL_HOST_DEVICES='2', STANDIN_DEVICES='2')
        on_standin = {'LD_LIBRARY_PATH': standin, 'RUNNEL_STANDIN': '1', 'STANDIN_SCHEDULER': order}
        if backend == 'host':
            programs = [['mpirun', '-n', '2', build / 'comm_tests'], ['mpirun', '-n', '2', build / 'comm_tests', '--most=100000'],
                        [sys.executable, scripts / 'processes.py', build / 'process_cases', shutil.which('mpirun')]]
        else:
            environment.update(on_standin)
            programs = [[sys.executable, scripts / 'launch.py', '-n', '2', build / 'ccl_tests'],
                        [sys.executable, scripts / 'ccl_processes.py', build / 'ccl_process_cases', standin],
                        ['mpirun', '-n', '2', *(word for name in on_standin for word in ('-x', name)), build / 'comm_tests'],
                        [sys.executable, self.folder / 'tests/stress/sweep/sweep.py', '--scenarios', self.builds[backend] / 'tests/stress/sweep/sweep_scenarios',
                         '--standin', next(standins.glob('libcudart.so.*')), '--collectives', '--bounded', '10']]
        return all(self.passes(program, environment) for program in programs)

    def run(self, backend, order):
        """True if the suite passes."""
        build = self.builds[backend]
        environment = dict(RUNNEL_EXIT_CASES=str(build / 'tests/conformance/exit_cases'))
        if order is not None:
            environment.update(LD_LIBRARY_PATH=str(build / 'tests/support/standin'), RUNNEL_STANDIN='1', STANDIN_SCHEDULER=order, STANDIN_SEED='1')
        options = ['--gtest_brief=1', '--gtest_fail_fast']
        short = {'host': ['tests/unit/unit', 'tests/conformance/hooks'], 'cuda': ['tests/integration/backends/capture_test', 'tests/integration/backends/calls_test']}[backend]
        if not all(self.passes([str(build / program), *options], dict(environment, RUNNEL_HOST_MEMORY='64M')) for program in short):
            return False
        if not all(self.passes(program, environment) for program in self.traces(backend)):
            return False
        conformance = [str(build / 'tests/conformance/conformance'), *options]
        return all(self.passes([*conformance, '--gtest_filter=' + cases], dict(environment, **self.properties(backend, devices, memory)))
                   for cases, devices, memory in RUNS_BY_BACKEND[backend])

    def traces(self, backend):
        """The programs that test traces, as tests/integration/trace/meson.build has them."""
        scripts, build = self.folder / 'tests/integration/trace', self.builds[backend] / 'tests/integration/trace'
        programs = [[sys.executable, scripts / 'trace.py', build / 'trace_program']]
        if (build / 'libcupti.so').exists():
            programs.append([sys.executable, scripts / 'activities.py', build / 'trace_program', build])
        return [[str(word) for word in program] for program in programs]

    @staticmethod
    def properties(backend, devices, memory):
        """The environment that gives the devices these properties."""
        if backend == 'host':
            return {'RUNNEL_HOST_DEVICES': devices, **({'RUNNEL_HOST_MEMORY': memory + 'M'} if memory else {})}
        return {'STANDIN_DEVICES': devices, **({'STANDIN_MEMORY_MIB': memory} if memory else {})}

    def passes(self, program, environment):
        status, output = tree.run(program, environment, self.patience)
        self.has_hung = status is None
        if status != 0:
            self.failed = ' '.join(map(str, program)) + '\n' + output[-2000:]
        return status == 0


def backends_of(mutant):
    return next(backends for folder, backends in FOLDERS.items() if mutant['file'].startswith(folder + '/'))


def runner(place, mutant):
    """What runs the suites that may notice the change."""
    return place.run_communicators if mutant['file'].startswith(COMMUNICATORS) else place.run


def judge(place, mutant, original):
    """'invalid', 'same code', 'survived', or what killed the mutant."""
    with place.changed(tree.Replacement(mutant['file'], mutant['from'], mutant['to'], mutant['line'])) as complaint:
        backends = backends_of(mutant)
        if complaint or not all(place.build(backend) for backend in backends):
            return 'invalid'
        changed = [backend for backend in backends if place.code(backend) != original[backend]]
        if not changed:
            return 'same code'
        for backend, order in SUITES:
            if backend in changed and not runner(place, mutant)(backend, order):
                return (f'stand-in, {order}' if order else 'host suite') + (', out of time' if place.has_hung else '')
        return 'survived'


def run(options):
    work = json.load(options.faults)
    builds = {'host': options.host.resolve(), 'cuda': options.cuda.resolve()}
    todo = queue.SimpleQueue()
    for mutant in work['mutants']:
        todo.put(mutant)
    results = []
    lock = threading.Lock()
    todo_is_over = threading.Event()
    end = time.monotonic() + options.seconds

    def work_on(number):
        place = Place(pathlib.Path(options.work) / str(number), builds, options.patience)
        original = {backend: place.code(backend) for backend in builds}
        runners = {runner(place, mutant) for mutant in work['mutants']}
        if number == 0 and not all(run(*suite) for run in runners for suite in SUITES):
            print(f'the unchanged library fails: {place.failed}', file=sys.stderr)
            todo_is_over.set()
        while time.monotonic() < end and not todo_is_over.is_set():
            with lock:
                if sum(r['result'] not in ('invalid', 'same code') for r in results) >= work['wanted']:
                    return
            try:
                mutant = todo.get_nowait()
            except queue.Empty:
                return
            result = judge(place, mutant, original)
            with lock:
                results.append(dict(mutant, result=result))
                options.output.seek(0)
                json.dump(results, options.output, indent=1)
                options.output.truncate()
                options.output.flush()

    threads = [threading.Thread(target=work_on, args=(n,)) for n in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return count(results)


def count(results):
    counts = {}
    for result in results:
        counts[result['result']] = counts.get(result['result'], 0) + 1
    survived = counts.get('survived', 0)
    judged = sum(n for name, n in counts.items() if name not in ('invalid', 'same code'))
    for name, n in sorted(counts.items()):
        print(f'{n:6}  {name}', file=sys.stderr)
    if judged:
        print(f'{judged - survived} of {judged} killed: {100 * (judged - survived) / judged:.1f} %', file=sys.stderr)


def show(options):
    results = json.load(options.results)
    for result in sorted(results, key=lambda r: (r['file'], r['line'])):
        if result['result'] == 'survived':
            print(f"{result['file']}:{result['line']}\n  - {result['from'].strip()}\n  + {result['to'].strip()}")
    count(results)

