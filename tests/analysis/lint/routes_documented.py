# SPDX-License-Identifier: Apache-2.0
"""The table of routes in docs/architecture.md lists exactly the enumerators of Route, in the same order. tests/unit/routes.cpp expects each of them."""
import re

import repository

header = (repository.ROOT / 'src/copy/route.hpp').read_text()
body = re.search(r'enum class Route \{(.*?)\};', header, re.DOTALL).group(1)
routes = re.findall(r'^\s*(\w+),', body, re.MULTILINE)
page = (repository.ROOT / 'docs/architecture.md').read_text()
table = page[page.index('| `Route` |'):].split('\n\n')[0]
documented = re.findall(r'^\| `(\w+)` \|', table, re.MULTILINE)[1:]
tested = (repository.ROOT / 'tests/unit/routes.cpp').read_text()
complaints = [f'Route::{route} is not expected by any row of tests/unit/routes.cpp' for route in routes if not re.search(rf',\s+{route}[,}}]', tested)]
if routes != documented:
    complaints.append(f'docs/architecture.md has the routes {documented}, src/copy/route.hpp has {routes}')
if len(routes) < 5:
    complaints.append('fewer than five routes were found: this rule no longer understands the header')
repository.finish(complaints)
