# SPDX-License-Identifier: Apache-2.0
"""scripts/results replaces the rows of the parts whose logs are there, keeps the others, and refuses a log without a summary.

usage: results_test.py SOURCE-FOLDER"""
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
script = pathlib.Path(sys.argv[1]) / 'scripts/results'
PAGE = '''# Page
<!-- results: begin -->
| Part | Result |
|---|---|
| `repeat` | kept |
| `put_back` | old |
<!-- results: end -->
end
'''


def run(folder):
    return subprocess.run([sys.executable, script, '--logs', folder, '--page', folder / 'page.md'], capture_output=True, text=True)


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    (folder / 'page.md').write_text(PAGE)
    assert run(folder).returncode == 1, 'without any log'
    (folder / 'put_back.txt').write_text('item 1: 24 5\n9 of 10 found: not eight\n')
    (folder / 'races_long.txt').write_text('# 27 cases with a race, 24 without, 100 times each: 0 wrong\n' * 2)
    done = run(folder)
    assert done.returncode == 0, done.stderr
    expected = PAGE.replace('| old |', '| 9 of 10 found: not eight |').replace('<!-- results: end', '''| `races_long` | \
27 cases with a race, 24 without, 100 times each: 0 wrong; 27 cases with a race, 24 without, 100 times each: 0 wrong |
<!-- results: end''')
    assert (folder / 'page.md').read_text() == expected, (folder / 'page.md').read_text()
    (folder / 'page.md').write_text(expected.replace('`repeat`', '`by_hand`'))
    done = run(folder)
    assert done.returncode == 1 and 'by_hand' in done.stderr, 'a row that no log can replace'
    (folder / 'page.md').write_text(expected)
    (folder / 'repeat.txt').write_text('the machine stopped\n')
    done = run(folder)
    assert done.returncode == 1 and 'repeat' in done.stderr, done.stderr
    assert (folder / 'page.md').read_text() == expected, 'a page is written whole or not at all'
