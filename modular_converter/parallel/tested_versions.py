"""The versions of torch and transformers that are tested: those that the extra `parallel` names."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator
from importlib.metadata import requires, version

from modular_converter.parallel import torch_private, transformers_private


TOOL = "modular-converter"
EXTRA = "parallel"
LIBRARIES = ("torch", "transformers")
"""The libraries of which private names are used, so that another version may do something else."""

logger = logging.getLogger(__name__)


@functools.cache
def tell_untested() -> None:
    """Warn of versions that were not tested, in one line and once: of several ranks, the first one speaks.

    Raises ``MissingNameError`` for a private name that one of them lacks.
    """
    torch_private.NAMES.check()
    transformers_private.NAMES.check()
    if os.environ.get("RANK", "0") == "0" and (found := list(_untested())):
        said = "outside of what was tested: %s; private names are used, so a run may fail or give other numbers"
        logger.warning(said, "; ".join(found))


def _untested() -> Iterator[str]:
    """Each library whose version is out of its range, with the range.

    The ranges are read from the metadata of this package. A source tree that is not installed has none.
    """
    try:
        from packaging.requirements import Requirement  # comes with transformers

        for one in map(Requirement, requires(TOOL) or ()):
            if one.name in LIBRARIES and one.marker and one.marker.evaluate({"extra": EXTRA}):
                found = version(one.name)
                if not one.specifier.contains(found, prereleases=True):
                    yield f"{one.name} {found} (tested: {', '.join(sorted(map(str, one.specifier), reverse=True))})"
    except ModuleNotFoundError:
        return
