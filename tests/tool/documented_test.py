# SPDX-License-Identifier: Apache-2.0
"""What the command offers is in its manual page, which offers nothing else; and bash completes both commands and options."""
import pathlib
import re
import subprocess

import tool

ROOT = pathlib.Path(__file__).resolve().parents[2]


def offered(*command):
    return tool.run(*command, '--help').stdout.decode()


def options(text):
    return set(re.findall(r'(?:^| |,)--([a-z][a-z-]*)', text, re.MULTILINE))


def completed(*words):
    """What bash offers at the end of these words."""
    script = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _runnel "$1" "${@: -1}"; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(['bash', '-c', script, 'bash', ROOT / 'tools/completion/runnel', tool.RUNNEL, *words], capture_output=True, check=True)
    return set(done.stdout.decode().split())


def same(found, wanted, what):
    tool.expect(set(found) == set(wanted), f'{what}: {sorted(found)}, wanted: {sorted(wanted)}')


commands = re.findall(r'^  ([a-z]+) ', offered().partition('Subcommands:')[2], re.MULTILINE)
tool.expect({'info', 'overlap'} <= set(commands), 'there are commands')
manual = (ROOT / 'docs/runnel.1').read_text()
sections = dict(re.findall(r'^\.Ss (\w+)\n(.*?)(?=^\.S[sh] )', manual, re.MULTILINE | re.DOTALL))
same(sections, commands, 'the manual page has the commands')
same(completed(''), commands, 'bash completes commands to')
for command in commands:
    has = options(offered(command))
    same(re.findall(r'^\.It Fl Fl ([a-z-]+)', sections[command], re.MULTILINE), has - {'help'}, f'the manual page has for {command}')
    same(completed(command[:3]), [command], f'bash completes {command[:3]} to')
    same(completed(command, '-'), {'--' + option for option in has}, f'bash completes the options of {command} to')
same(completed('overlap', ''), [], 'bash completes file names by itself')
