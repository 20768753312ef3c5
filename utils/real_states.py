"""The state dicts and signatures that models of a published release really have: `python utils/real_states.py FOLDER OUT`.

FOLDER holds the package `transformers` of a release, unpacked. Each model class of each `modeling_*.py` is built from
the defaults of its configuration on the device `meta`. OUT is a JSON file: class -> keys with their shapes, numbers in
names as `*`, or the reason why the class could not be built.
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
from typing import Any


SECONDS = 10
"""The time for one class."""
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
    signal.signal(signal.SIGALRM, _too_slow)
    found: dict[str, Any] = {}
    for path in sorted(glob.glob(os.path.join(folder, "transformers", "models", "*", "modeling_*.py"))):
        name = os.path.relpath(path, folder).removesuffix(".py").replace(os.sep, ".")
        try:
            module = importlib.import_module(name)
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"[:200]
            continue
        for cls in (getattr(module, one, None) for one in getattr(module, "__all__", ())):
            if inspect.isclass(cls) and cls.__module__ == name and issubclass(cls, PreTrainedModel):
                found[f"{name}.{cls.__name__}"] = _built(cls, torch)
    with open(out, "w", encoding="utf-8") as file:
        json.dump(found, file, indent=0, sort_keys=True)


def _too_slow(*_: object) -> None:
    raise TooSlow(f"more than {SECONDS} seconds")


def _built(cls: Any, torch: Any) -> Any:
    signal.alarm(SECONDS)
    try:
        with torch.device("meta"):
            config = cls.config_class()
            state = cls(config).state_dict()
        keys = {NUMBER.sub("*", name): list(tensor.shape) for name, tensor in state.items()}
        forward = [f"{one.name}={one.default!r}" for one in inspect.signature(cls.forward).parameters.values()]
        return {"keys": keys, "forward": forward}
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    finally:
        signal.alarm(0)


if __name__ == "__main__":
    main()
