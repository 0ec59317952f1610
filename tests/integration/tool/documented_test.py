# SPDX-License-Identifier: Apache-2.0
"""The manual page describes exactly the command's subcommands and options. The completions contain no list of them, which could go stale."""
import re

from offered import COMPLETIONS, ROOT, commands, options, same

manual = (ROOT / 'docs/runnel.1').read_text()
sections = dict(re.findall(r'^\.Ss (\w+)\n(.*?)(?=^\.S[sh] )', manual, re.MULTILINE | re.DOTALL))
same(sections, commands(), 'the commands in the manual page')
named = set(commands())
for command in commands():
    has = set(options(command)) - {'--help'}
    same(['--' + name for name in re.findall(r'^\.It Fl Fl ([a-z-]+)', sections[command], re.MULTILINE)], has, f'the options of {command} in the manual page')
    named |= has
for shell, path in COMPLETIONS.items():
    text = path.read_text()
    code = re.sub(r'^#(?!compdef).*$', '', text, flags=re.MULTILINE)
    same(re.findall(r'(?<![\w/_-])runnel(?:-[a-z]+)?(?= |$)', code, re.MULTILINE), ['runnel', 'runnel-cuda', 'runnel-hip', 'runnel-host'],
         f'the commands that {shell} completes')
    same([name for name in named if name in code], [], f'names in the completion for {shell}')
