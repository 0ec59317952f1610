# SPDX-License-Identifier: Apache-2.0
"""A shell completes exactly the command's subcommands and options. Arguments: the command, the shell."""
import os
import re
import shutil
import subprocess
import sys

import tool
from offered import COMPLETIONS, commands, options, same

SHELL = sys.argv[2]
# What TAB does after the words "$@". For zsh, the functions that the completion calls are replaced, because they work only in the line editor.
PRESS_TAB = {
    'bash': 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); source "$FILE"; _runnel "$1" "${@: -1}"; printf "%s\\n" "${COMPREPLY[@]}"',
    'zsh': '''_call_program() { shift; "$@" }
_describe() { print -rl -- ${(P)@[-1]} }
_files() { print -rl -- $PREFIX*(N) }
_runnel() { local words=("$@") CURRENT=$# PREFIX=$@[-1]; source $FILE }
_runnel "$@"''',
    'fish': 'source $FILE; complete -C "$argv[2..]"',
}


def completed(*words):
    done = subprocess.run([SHELL, '-c', PRESS_TAB[SHELL], SHELL, tool.RUNNEL, *words], env={**os.environ, 'FILE': str(COMPLETIONS[SHELL])},
                          capture_output=True, check=True, timeout=tool.LIMIT_S)
    found = [re.split('[:\t]', line)[0] for line in done.stdout.decode().splitlines()]
    # In zsh the replaced functions would drop the words that do not begin with the typed text.
    return [word for word in found if word and word.startswith(words[-1])]


if shutil.which(SHELL) is None:
    tool.skip(f'{SHELL} is not installed')
same(completed(''), commands(), 'the commands')
same(completed('-'), options(), 'the options of runnel itself')
for command in commands():
    same(completed(command[:3]), [command], f'{command[:3]} becomes')
    same(completed(command, '-'), options(command), f'the options of {command}')
same(completed('overlap', '--in-flight', '3', '--tab'), ['--table'], 'an option after another option')
with tool.scratch() as folder:
    file = tool.path(folder, 'some-file')
    file.touch()
    # bash completes files by itself if the completion offers nothing.
    same(completed('overlap', f'{folder}/some'), [] if SHELL == 'bash' else [str(file)], 'a file')
