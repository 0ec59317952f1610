# SPDX-License-Identifier: Apache-2.0
"""A copy of the sources in which one fault at a time is put, built and looked for. What all kinds of faults share."""
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Tree:
    """The copy is made anew. `keep` are build folders of the sources that it has, too; the files keep their times, so nothing in them is built again."""

    def __init__(self, folder, keep=()):
        self.folder = pathlib.Path(folder).resolve()
        kept = {each for path in keep for each in (path.resolve(), *path.resolve().parents)}

        def left_out(parent, names):
            paths = {name: pathlib.Path(parent, name) for name in names}
            return [name for name, path in paths.items()
                    if path.resolve() == self.folder or name in ('.git', '.cache', '__pycache__') or (is_build(path) and path.resolve() not in kept)]

        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(ROOT, self.folder, symlinks=True, ignore=left_out, copy_function=shutil.copy2)

    def set_up(self, name, *options):
        """A build folder of this copy."""
        build = self.folder / name
        if not (build / 'build.ninja').exists():
            subprocess.run(['meson', 'setup', build, self.folder, '-Dbuildtype=debugoptimized', '-Dexamples=disabled', '-Dbenchmarks=disabled', *options], check=True, stdout=subprocess.DEVNULL)
        return build

    @contextlib.contextmanager
    def changed(self, fault):
        """The copy has the fault in here. Gives why it cannot be put there, or ''."""
        paths = [self.folder / name for name in fault.files]
        before = [path.read_text() for path in paths]
        try:
            yield fault.put_in(self.folder)
        finally:
            for path, text in zip(paths, before):
                if path.read_text() != text:
                    path.write_text(text)


def is_build(path):
    return path.parent == ROOT and path.name.startswith('build')


def build(folder, *targets, jobs=()):
    """Whether it compiles."""
    return subprocess.run(['ninja', *jobs, '-C', str(folder), *targets], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def run(program, environment=None, patience=None):
    """Its status, or None if it was out of time, and what it wrote."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([str(word) for word in program], env={**os.environ, **(environment or {})}, stdout=output, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        try:
            status = process.wait(patience)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            status = None
        output.seek(0)
        return status, output.read().decode(errors='replace')


class Patch:
    """Undoes a mend."""

    def __init__(self, path):
        self.path = path
        self.text = path.read_text()
        self.files = re.findall(r'^\+\+\+ b/(\S+)', self.text, re.MULTILINE)

    def put_in(self, folder):
        done = subprocess.run(['patch', '--quiet', '--no-backup-if-mismatch', '-p1', '-d', folder, '-i', self.path], capture_output=True, text=True)
        return done.stdout if done.returncode != 0 else ''


class Replacement:
    """Another text in place of one that occurs once in a file; with a line, in place of that line."""

    def __init__(self, file, before, after, line=None):
        self.files = [file]
        self.before, self.after, self.line = before, after, line

    def put_in(self, folder):
        path = folder / self.files[0]
        text = path.read_text()
        if self.line is not None:
            lines = text.splitlines(keepends=True)
            if lines[self.line - 1].rstrip('\n') != self.before:
                return f'{self.files[0]}:{self.line} has another text'
            lines[self.line - 1] = self.after + '\n'
            path.write_text(''.join(lines))
            return ''
        if text.count(self.before) != 1:
            return f'{self.files[0]}: {self.before!r} occurs {text.count(self.before)} times'
        path.write_text(text.replace(self.before, self.after))
        return ''
