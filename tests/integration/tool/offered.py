# SPDX-License-Identifier: Apache-2.0
"""The command's subcommands and options, as --help prints them, and the files with the shells' completions."""
import pathlib
import re

import tool

ROOT = pathlib.Path(__file__).resolve().parents[3]
COMPLETIONS = {'bash': ROOT / 'tools/completion/runnel', 'zsh': ROOT / 'tools/completion/_runnel', 'fish': ROOT / 'tools/completion/runnel.fish'}


def commands():
    found = re.findall(r'^  ([a-z]+) ', tool.run('--help').stdout.decode(), re.MULTILINE)
    tool.expect({'info', 'overlap'} <= set(found), 'there are commands')
    return found


def options(*command):
    """The options of a subcommand, or of the command itself, with the two dashes."""
    found = re.findall(r'(?:^| |,)(--[a-z][a-z-]*)', tool.run(*command, '--help').stdout.decode(), re.MULTILINE)
    tool.expect('--help' in found, f'there are options of {" ".join(["runnel", *command])}')
    return found


def same(found, wanted, what):
    tool.expect(set(found) == set(wanted), f'{what}: {sorted(found)}, wanted: {sorted(wanted)}')
