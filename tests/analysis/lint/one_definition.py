# SPDX-License-Identifier: Apache-2.0
"""No two types of a namespace have the same name: librunnel and librunnel-comm are in one process, where two definitions of one name break
the rule of one definition, which no compiler and no linker reports. Types in unnamed namespaces do not count."""
import collections
import re

import repository

# Of which a build takes one.
ALTERNATIVES = {
    ('backends/host/engine.cpp', 'backends/host/engine_find_races.cpp'),
    ('src/base/announce.hpp', 'src/base/announce_races.hpp'),
}
NOISE = re.compile(r'//[^\n]*|"(?:\\.|[^"\\\n])*"|template <[^{};]*?>(?=\s)|\[\[.*?\]\]')
TOKEN = re.compile(r'\bnamespace\b(?P<namespace>[\w:\s]*)\{|\b(?:struct|class|enum class)\s+(?P<type>\w+)(?=\s*(?:final\s*)?(?::[^:;{}()][^;{}()]*)?\{)[^{]*\{|[{}]')


def types_of(text):
    """The names of types that stand in named namespaces only."""
    scopes = []
    for token in TOKEN.finditer(NOISE.sub('', text)):
        namespace, name = token['namespace'], token['type']
        if token[0] == '}':
            if scopes:
                scopes.pop()
        elif namespace is not None:
            # An inline namespace adds nothing to a name.
            scopes.append(namespace.strip().replace('::inline RUNNEL_ABI', '') or None)
        else:
            if name and None not in scopes:
                yield '::'.join(scopes + [name])
            scopes.append(None)


places = collections.defaultdict(list)
for folder in ('include', 'src', 'backends/host', 'backends/cuda_hip', 'backends/cuda', 'backends/hip'):
    for path in repository.files(folder, endings=('.hpp', '.cpp')):
        for name in types_of(path.read_text()):
            places[name].append(repository.name(path))
complaints = []
for name, found in sorted(places.items()):
    files = sorted({*found})
    if len(files) == 1 or tuple(files) in ALTERNATIVES or {file.split('/')[1] for file in files} == {'cuda', 'hip'}:
        continue
    complaints.append(f'{name} is defined in {" and in ".join(files)}')
if len(places) < 300:
    complaints.append(f'only {len(places)} types were found: this rule no longer understands the sources')
print(f'{len(places)} types')
repository.finish(complaints)
