#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts faults into copies of the sources, one at a time, and says which of them the tests find.

  faults.py put-back --work FOLDER      defects that were mended: the random programs must find each
  faults.py models --work FOLDER        weaker orders and lost wake-ups: the model checks must find each
  faults.py draw --count 500 > faults.json
  faults.py run --host FOLDER --cuda FOLDER faults.json
  faults.py show results.json           small changes drawn by chance: a suite should find each

`draw` needs the Python package universalmutator. `run` builds each change in copies of two build folders, of the host backend and of the
CUDA backend, and runs the host suite and the suite on the stand-in; for a change of src/comm, the suites of communicators, so that both
builds need MPI, and that of the CUDA backend NCCL, and the sweep over NCCL. A change that does not compile, or that leaves the machine code
as it is, does not count. The others are killed (a test fails, crashes or hangs) or survive. On a busy machine "out of time" says little: use
--patience. A changed header costs much less with ccache, in whose folder (/usr/lib/ccache) the compilers must be found first.
"""
import argparse
import os
import pathlib
import tempfile


def with_work(verbs, name, text):
    parser = verbs.add_parser(name, help=text)
    parser.add_argument('--work', type=pathlib.Path, required=True, help='where the copy is made')
    return parser


def known_faults(verbs):
    put_back = with_work(verbs, 'put-back', 'puts mended defects back')
    put_back.add_argument('--seed', default='1')
    put_back.add_argument('--count', default='20000')
    put_back.add_argument('--only', default='', help='only patches whose names begin so')
    put_back.add_argument('--shrink', action='store_true')
    models = with_work(verbs, 'models', 'puts faults into what is modelled')
    models.add_argument('numbers', type=int, nargs='*')


def drawn_faults(verbs):
    draw = verbs.add_parser('draw', help='draws changes')
    draw.add_argument('--count', type=int, default=500)
    draw.add_argument('--seed', type=int, default=1)
    draw.add_argument('--under', default='', help='only files with this in their path')
    run = verbs.add_parser('run', help='builds and tests each change')
    run.add_argument('faults', type=argparse.FileType())
    run.add_argument('--host', type=pathlib.Path, required=True, help='a build folder of the host backend')
    run.add_argument('--cuda', type=pathlib.Path, required=True, help='a build folder of the CUDA backend')
    run.add_argument('--jobs', type=int, default=os.cpu_count())
    run.add_argument('--seconds', type=float, default=1e9, help='begins no change after that time')
    run.add_argument('--patience', type=float, default=150, help='seconds for one program: with a change that takes longer it hangs')
    run.add_argument('--work', default=tempfile.gettempdir() + '/faults', help='where copies of the tree are made')
    run.add_argument('--output', type=argparse.FileType('w'), default='results.json')
    show = verbs.add_parser('show', help='prints the changes that survived')
    show.add_argument('results', type=argparse.FileType())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest='verb', required=True)
    known_faults(verbs)
    drawn_faults(verbs)
    options = parser.parse_args()
    if options.verb == 'put-back':
        import put_back
        put_back.main(options)
    elif options.verb == 'models':
        import models
        models.main(options)
    else:
        import drawn
        {'draw': drawn.draw, 'run': drawn.run, 'show': drawn.show}[options.verb](options)


if __name__ == '__main__':
    main()
