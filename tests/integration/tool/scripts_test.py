# SPDX-License-Identifier: Apache-2.0
"""The scripts refuse wrong arguments with status 2 and do nothing, from any folder and in a folder whose name has a space. Argument: the source
root."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(sys.argv[1])
LIMIT_S = 60


def refuses(root, script, *arguments, says):
    before = sorted(root.rglob('*'))
    done = subprocess.run([root / 'scripts' / script, *arguments], cwd='/', capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode != 2 or says not in done.stderr or sorted(root.rglob('*')) != before:
        print(done.stdout, done.stderr, f'FAILED: {script} {arguments} returned {done.returncode}', sep='\n')
        sys.exit(1)
    print(f'ok: {script} {" ".join(arguments)}')


with tempfile.TemporaryDirectory(prefix='runnel scripts ') as folder:
    root = pathlib.Path(folder)
    shutil.copytree(SOURCE / 'scripts', root / 'scripts', ignore=shutil.ignore_patterns('__pycache__'))
    (root / 'build').mkdir()
    for script in ('demo', 'docs', 'gpu', 'release', 'test'):
        refuses(root, script, '--nonsense', says=f'usage: scripts/{script}')
    refuses(root, 'gpu', 'build', 'results', 'more', says='usage: scripts/gpu')
    refuses(root, 'debian', says='scripts/debian TARBALL FOLDER')
    # The name of the tarball is the name of a folder that is made anew.
    for name in ('notes.txt', 'runnel-1.0.0.zip', 'missing-runnel-1.0.0.tar.xz'):
        if not name.startswith('missing'):
            (root / name).write_text('not to be removed')
        refuses(root, 'debian', str(root / name), str(root), says=f'{name} is no tarball')
    refuses(root, 'repeat.py', sys.executable, '--per-process', '0', says='--per-process')
    refuses(root, 'repeat.py', str(root / 'none'), says='is no program')
