# SPDX-License-Identifier: Apache-2.0
"""What the rules share: the files of the repository, and how a rule reports what it found."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
SKIPPED = 77

SOURCE_ENDINGS = ('.hpp', '.cpp', '.cu', '.hip', '.h', '.in', '.py', '.sh', '.build')
OWN_DIRECTORIES = ('include', 'src', 'backends', 'tests', 'tools', 'examples', 'benchmarks', 'scripts', '.ci')


def files(*directories, endings=SOURCE_ENDINGS):
    """The files under the directories that have one of the endings, in order."""
    for directory in directories or OWN_DIRECTORIES:
        for path in sorted((ROOT / directory).rglob('*')):
            if path.is_file() and path.name.endswith(endings) and '__pycache__' not in path.parts:
                yield path


def name(path):
    return path.relative_to(ROOT).as_posix()


def finish(complaints):
    for complaint in complaints:
        print(complaint)
    print(f'{len(complaints)} found' if complaints else 'nothing found')
    sys.exit(1 if complaints else 0)


def skip(reason):
    print('skipped: ' + reason)
    sys.exit(SKIPPED)
