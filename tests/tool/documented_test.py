# SPDX-License-Identifier: Apache-2.0
"""What the command offers is in its manual page, which offers nothing else; the completions have no list of it that could go stale."""
import re

from offered import COMPLETIONS, ROOT, commands, options, same

manual = (ROOT / 'docs/runnel.1').read_text()
sections = dict(re.findall(r'^\.Ss (\w+)\n(.*?)(?=^\.S[sh] )', manual, re.MULTILINE | re.DOTALL))
same(sections, commands(), 'the manual page has the commands')
named = set(commands())
for command in commands():
    has = set(options(command)) - {'--help'}
    same(['--' + name for name in re.findall(r'^\.It Fl Fl ([a-z-]+)', sections[command], re.MULTILINE)], has, f'the manual page has for {command}')
    named |= has
for shell, path in COMPLETIONS.items():
    text = path.read_text()
    code = re.sub(r'^#(?!compdef).*$', '', text, flags=re.MULTILINE)
    same(re.findall(r'(?<![\w/_-])runnel(?:-[a-z]+)?(?= |$)', code, re.MULTILINE), ['runnel', 'runnel-cuda', 'runnel-hip', 'runnel-host'],
         f'{shell} completes for')
    same([name for name in named if name in code], [], f'{shell} has by name')
