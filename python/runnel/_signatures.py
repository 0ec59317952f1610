# SPDX-License-Identifier: Apache-2.0
"""``inspect.signature()`` of the classes and methods of a backend's module."""
from __future__ import annotations

import gc
import inspect
import re
from typing import Any


def _of_function(function: Any) -> inspect.Signature:
    text, _, defaults = function.__nb_signature__[0]
    names = {f"_{i}": default for i, default in enumerate(defaults or ())}
    text = re.sub(r"\\(\d+)", r"_\1", text)
    exec(f"from __future__ import annotations\n{text}: ...", names)
    return inspect.signature(names[function.__name__])


def _without_self(signature: inspect.Signature) -> inspect.Signature:
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def _of_method(method: Any) -> inspect.Signature:
    return _without_self(_of_function(method.__func__))


def _of_class(cls: Any) -> inspect.Signature:
    made = cls.__init__
    if hasattr(made, "__nb_signature__"):
        return _without_self(_of_function(made)).replace(return_annotation=inspect.Signature.empty)
    if isinstance(made, type(object.__init__)):
        return inspect.Signature()  # no program makes one
    raise AttributeError("__signature__")  # a class that is derived by a program


def show(module: Any) -> None:
    """Nanobind's types of functions and classes, of which this module has its own, take no new attributes but in their dictionaries."""
    cls = module.Stream
    method = module.Device(0).synchronize  # a device asks the runtime nothing
    for kind, signature in ((type(cls.query), _of_function), (type(cls.wrap), _of_function), (type(method), _of_method), (type(cls), _of_class)):
        gc.get_referents(kind.__dict__)[0]["__signature__"] = property(signature)
