"""The errors of this package: each names the fault and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


LIBRARIES = ("torch", "transformers", "accelerate", "jsonschema", "safetensors")
"""The packages of the extra `parallel`."""


MAKE_WHOLE = "call unshard(), or with data ranks (ddp, fsdp, cp) give full_state_dict() to a model made anew"
"""What to do before a change of a model that processes share out."""


class MissingLibraryError(ImportError):
    """A package of the extra `parallel`, or of `tune`, is not installed."""

    def __init__(self, name: str, extra: str = "parallel") -> None:
        advice = f"install this project with its extra `{extra}`, such as `pip install '.[{extra}]'` in its checkout"
        super().__init__(f"{name} is not installed; {advice}", name=name)


def one_line(error: BaseException, most: int = 160) -> str:
    """The class of an error and at most ``most`` characters of its message, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:most]}"


class PlanError(Exception):
    """Base of all errors that a user can correct; the message needs no traceback."""


class UnknownModel(PlanError):
    """A model type that the library does not have; the message lists the nearest names, and what else names a model.

    Args:
        saved: whether a folder or file with a configuration names one here, too.
    """

    def __init__(self, name: str, known: Iterable[str], saved: bool = False) -> None:
        near = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.6)
        hint = f"; did you mean {', '.join(near)}?" if near else "."
        forms = ["a model type (llama)", "a class path (package.module.Class)"]
        forms += ["a saved model's folder or config.json (./folder)"] * saved
        super().__init__(
            f"unknown model type {name!r}{hint} Give {', '.join(forms)}, or a file (./modeling_x.py, ./modular_x.py)"
        )


class BuildError(PlanError):
    """A model that cannot be built small or run; the message has the reason and settings that may help."""


class AdviceError(PlanError):
    """A question about memory or time that has no answer: unknown devices, optimizers, or sizes that do not divide."""


class TraceError(PlanError):
    """A forward that ran but could not be recorded."""


class PlanFormatError(PlanError):
    """A plan in a text or file with unknown styles or keys, or of a wrong form."""


class ApplyError(PlanError):
    """A plan that does not fit its model; the message names the layer."""


class MisfitError(ApplyError):
    """A part of a model that cannot be sharded over this number of ranks.

    Attributes:
        place: the parameter or module.
    """

    def __init__(self, place: str, message: str) -> None:
        super().__init__(message)
        self.place = place


class NotHere(ApplyError, AttributeError):
    """What a model in a layout lacks, as ``hasattr`` finds, and whole models or torch's wrappers have; the message says what to write."""


class RankError(PlanError):
    """Ranks that died, hung or disagreed."""


class ScheduleError(PlanError):
    """Sizes that a pipeline schedule does not allow, or costs that do not fit; the message names sizes that work."""


class WriteError(PlanError):
    """A plan that cannot be written into a source file; the message names the class and the remedy."""
