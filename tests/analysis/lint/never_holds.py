# SPDX-License-Identifier: Apache-2.0
"""Each public function is tried behind a closed gate by tests/conformance/never_holds.cpp, or is excused here with a reason; a wait for other
streams' work is documented there by a sentence of its header. Doxygen tells the functions."""
import pathlib
import re
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree

import repository

TABLE = 'tests/conformance/never_holds.cpp'
ELSEWHERE = 'its own tests have what it needs'
VALUE = 'reads or sets members of its object only'
PROCESS = 'is the whole process\'s, and would watch all other cases; tests/conformance/hooks.cpp and race_checker.cpp use it'
# By header, by class or by function.
EXCUSED = {
    'communicator.hpp': ELSEWHERE + ': other ranks',
    'mpi.hpp': ELSEWHERE + ': MPI',
    'world.hpp': ELSEWHERE + ': other processes',
    'kokkos.hpp': ELSEWHERE + ': Kokkos',
    'execution.hpp': ELSEWHERE + ': stdexec',
    'coroutine.hpp': 'calls on_complete(), which is tried',
    'overlap_ends.hpp': VALUE,
    'overlap_times.hpp': VALUE,
    'AnyOverlapEnd': VALUE,
    'error.hpp': VALUE,
    'Outcome': VALUE,
    'OverlapError': VALUE,
    'Priority': VALUE,
    'PriorityRange': VALUE,
    'MemoryPlace': VALUE,
    'DeviceSpan': VALUE,
    'Device::Device': VALUE,
    'Device::ordinal': VALUE,
    'Device::operator<<': VALUE,
    'Device::to_string': VALUE,
    'StreamGuard::original_device': VALUE,
    'DeviceResource::device': VALUE,
    'NativeDeviceResource::NativeDeviceResource': VALUE,
    'NativeDeviceResource::device': VALUE,
    'LimitResource::LimitResource': VALUE,
    'LimitResource::limit': VALUE,
    'LimitResource::in_use': VALUE,
    'StatisticsResource::StatisticsResource': VALUE,
    'StatisticsResource::statistics': VALUE,
    'StatisticsResource::reset_peak': VALUE,
    'LoggingResource::LoggingResource': VALUE,
    'SharedBuffer::operator DeviceSpan< T >': VALUE,
    'SharedBuffer::operator DeviceSpan< const T >': VALUE,
    'PinnedPool::PinnedPool': 'is deleted',
    'Staging::Staging': 'is deleted',
    'DeviceGuard::operator=': 'is deleted',
    'StreamGuard::operator=': 'is deleted',
    'SynchronizeAtExit::operator=': 'is deleted',
    'Event::operator=': 'is that of EventBase, which is tried',
    'TimedEvent::operator=': 'is that of EventBase, which is tried',
    'PageableGuard::operator=': 'is deleted',
    'StreamContext::Guard::operator=': 'is deleted',
    'HookLocation::operator=': 'is deleted',
    'ProfilerRange::operator=': 'is deleted',
    'TraceRange::operator=': 'is deleted',
    'RaceChecker': PROCESS,
    'Trace': PROCESS,
    'set_hook': PROCESS,
    'to_string': VALUE,
    'name': VALUE,
}


def public_functions(folder):
    """Pairs of a header's name and a function's."""
    settings = (repository.ROOT / 'docs/Doxyfile').read_text() + (
        f'OUTPUT_DIRECTORY = {folder}\nINPUT = include/runnel\nFILE_PATTERNS = *.hpp\nGENERATE_HTML = NO\nGENERATE_XML = YES\n'
        'XML_PROGRAMLISTING = NO\nINLINE_INHERITED_MEMB = NO\nWARNINGS = NO\nWARN_AS_ERROR = NO\n')
    subprocess.run(['doxygen', '-'], input=settings, cwd=repository.ROOT, capture_output=True, text=True, check=True)
    found = set()
    for path in pathlib.Path(folder).glob('xml/*.xml'):
        for compound in xml.etree.ElementTree.parse(path).getroot().findall('compounddef'):
            scope = compound.findtext('compoundname')
            if compound.get('kind') not in ('class', 'struct', 'namespace') or compound.get('prot') == 'private':
                continue
            if 'detail' in scope and not scope.endswith('detail::EventBase'):
                continue
            scope = re.sub(r'^runnel(::|$)', '', scope).replace('detail::', '')
            for member in compound.iter('memberdef'):
                if member.get('kind') in ('function', 'friend') and member.get('prot') == 'public':
                    header = pathlib.Path(member.find('location').get('file')).name
                    found.add((header, '::'.join(filter(None, (scope, member.findtext('name'))))))
    return found


def tried():
    text = (repository.ROOT / TABLE).read_text()
    members = re.findall(r'^    OF\((\w+), [^,]+, (\w+)', text, re.MULTILINE)
    return {name.split(',')[0] for name in re.findall(r'^    \{"([^"]+)"', text, re.MULTILINE)} | {'::'.join(each) for each in members}


def missing_sentences():
    waits = (repository.ROOT / TABLE).read_text().partition('const Wait waits[]')[2].partition('};\n\n')[0]
    found = re.findall(r'^    \{"([^"]+)",\s+"([\w.]+): ([^"]+)"', waits, re.MULTILINE)
    for name, header, sentence in found:
        words = re.sub(r'\s*///\s*', ' ', (repository.ROOT / 'include/runnel' / header).read_text())
        if sentence not in words:
            yield f'{header} does not say of {name}: {sentence}'
    if not found:
        yield f'{TABLE}: no wait has a sentence'


def excuse(header, name):
    scope = name.rpartition('::')[0]
    return next((key for key in (header, scope, name) if key in EXCUSED), None)


def complaints_about(functions):
    names, table = {name for _, name in functions}, tried()
    excuses = {each: excuse(*each) for each in functions}
    yield from (f'{TABLE}: {name} ({header}) is missing, and tests/analysis/lint/never_holds.py does not excuse it'
                for header, name in sorted(functions) if name not in table and excuses[header, name] is None)
    # The destructors of buffers are those of a base in detail.
    yield from (f'{TABLE}: there is no public function {name}' for name in sorted(table - names) if '::~' not in name)
    yield from (f'{key} is excused, but there is no such function' for key in EXCUSED if key not in excuses.values())
    yield from (f'{name} is excused, but {TABLE} tries it' for name in sorted(table) if name in EXCUSED)
    yield from missing_sentences()
    if len(functions) < 200:
        yield f'Doxygen tells only {len(functions)} functions'


def main():
    if shutil.which('doxygen') is None:
        repository.skip('doxygen is not installed')
    with tempfile.TemporaryDirectory() as folder:
        functions = public_functions(folder)
    print(f'{len(functions)} functions')
    repository.finish([*complaints_about(functions)])


if __name__ == '__main__':
    main()
