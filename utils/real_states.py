"""The state dicts and signatures that models of a published release really have: `python utils/real_states.py FOLDER OUT`.

FOLDER holds the package `transformers` of a release, unpacked. Every class that a module of a model exports is looked
at, and each model class is built from the defaults of its configuration on the device `meta`. OUT is a JSON file with
two parts: `states`, class -> entries with their shapes, numbers in names as `*`, or the reason why the class could not
be built; `signatures`, class -> public method -> parameter -> its kind and default, with the methods that a class has
from its bases.
"""

from __future__ import annotations

import glob
import importlib
import inspect
import json
import os
import re
import signal
import sys
import warnings
from collections.abc import Iterator
from typing import Any


SECONDS = 10
"""Seconds of CPU for one class."""
NUMBER = re.compile(r"\d+")


class TooSlow(Exception):
    """Raised when a class takes too long."""


def main() -> None:
    """Build every model."""
    folder, out = sys.argv[1:3]
    sys.path.insert(0, folder)
    warnings.simplefilter("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    import transformers
    from transformers import PreTrainedModel

    assert os.path.dirname(os.path.dirname(transformers.__file__)) == os.path.abspath(folder), transformers.__file__
    transformers.logging.set_verbosity_error()
    PreTrainedModel.init_weights = lambda self: None  # the numbers do not matter
    for filler in ("kaiming_uniform_", "uniform_", "normal_", "xavier_uniform_", "trunc_normal_"):
        setattr(torch.nn.init, filler, lambda tensor, *_, **__: tensor)
    signal.signal(signal.SIGPROF, _too_slow)
    states: dict[str, Any] = {}
    signatures: dict[str, Any] = {}
    for path in sorted(glob.glob(os.path.join(folder, "transformers", "models", "*", "*.py"))):
        name = os.path.relpath(path, folder).removesuffix(".py").replace(os.sep, ".")
        if name.rpartition(".")[2].startswith(("__init__", "modular_", "convert_")):
            continue
        try:
            module = importlib.import_module(name)
        except Exception as error:
            states[name] = f"{type(error).__name__}: {error}"[:200]
            continue
        for cls in (getattr(module, one, None) for one in getattr(module, "__all__", ())):
            if inspect.isclass(cls) and cls.__module__ == name:
                signatures[f"{name}.{cls.__name__}"] = dict(_signatures(cls))
                if issubclass(cls, PreTrainedModel):
                    states[f"{name}.{cls.__name__}"] = _built(cls, torch)
    with open(out, "w", encoding="utf-8") as file:
        json.dump({"states": states, "signatures": signatures}, file, indent=0, sort_keys=True)


def _signatures(cls: type) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """The public methods of a class that the package defines, without the instance."""
    for name in dir(cls):
        if name.startswith("_") and name not in ("__init__", "__call__"):
            continue
        owner = next((one for one in cls.__mro__ if name in vars(one)), None)
        if owner is None or not owner.__module__.startswith("transformers."):
            continue
        held = vars(owner)[name]
        function = held.__func__ if isinstance(held, (staticmethod, classmethod)) else held
        if not inspect.isfunction(function):
            continue
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            continue
        if not isinstance(held, staticmethod):
            del parameters[:1]
        yield name, {one.name: [one.kind.name, _default(one.default)] for one in parameters}


def _default(value: object) -> str:
    return "" if value is inspect.Parameter.empty else re.sub(r" at 0x[0-9a-f]+", "", repr(value))[:500]


def _too_slow(*_: object) -> None:
    raise TooSlow(f"more than {SECONDS} seconds")


def _built(cls: Any, torch: Any) -> Any:
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with torch.device("meta"):
            config = cls.config_class()
            state = cls(config).state_dict()
        keys = {NUMBER.sub("*", name): list(tensor.shape) for name, tensor in state.items()}
        return keys
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    main()
