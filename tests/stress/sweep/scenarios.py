# SPDX-License-Identifier: Apache-2.0
"""The scenarios of sweep_scenarios, for the scripts that run them."""
import os
import subprocess


def scenarios_of(program, environment, only, collectives=False):
    """The settings of each scenario, as it names them; only of those in `only`, unless that is empty. With `collectives` those over the library
    of collective operations, unless they have a fault of their own."""
    listing = subprocess.run([program], check=True, capture_output=True, text=True, env=environment).stdout
    found = {}
    for line in listing.splitlines():
        name, *settings = line.split()
        settings = dict(setting.split("=", 1) for setting in settings)
        is_fit = name.startswith("ccl_") and "STANDIN_CCL_FAULT" not in settings if collectives else "SWEEP_ONLY" not in settings
        if is_fit and (not only or name in only):
            found[name] = settings
    if unknown := set(only or ()) - set(found):
        raise SystemExit(f"no such scenario: {', '.join(sorted(unknown))}")
    return found


def path_of(standin):
    """Where the loader finds the stand-in, and that of the library of collective operations, which has a folder beneath it."""
    folder = os.path.dirname(os.path.abspath(standin))
    return os.path.join(folder, "ccl") + ":" + folder
