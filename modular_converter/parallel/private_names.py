"""Private names of a library, in one table: a name that a version lacks is told by an error, and never passed over."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from operator import attrgetter
from typing import Any

from modular_converter.parallel.errors import PlanError


class MissingNameError(PlanError):
    """A private name that the installed version of a library lacks."""


@dataclass(frozen=True)
class PrivateNames:
    """The private names of a library that are used.

    Attributes:
        places: own name -> ``module:name``, or ``module:Class.method()`` for a method that a subclass may have changed.
    """

    library: str
    places: Mapping[str, str]

    def find(self, name: str) -> Any:
        """What a name stands for; a method as a function that calls it by name on its first argument.

        Raises ``MissingNameError`` if the library lacks it.
        """
        place = self.places[name]
        module, _, path = place.removesuffix("()").partition(":")
        try:
            found = attrgetter(path)(importlib.import_module(module)) if path else importlib.import_module(module)
        except (ImportError, AttributeError) as error:
            raise MissingNameError(
                f"{self.library} {version(self.library)} has no {place.replace(':', '.')}, which this project uses; install a "
                f"version of {self.library} that the extra `parallel` of this project names"
            ) from error
        return _called(path.rpartition(".")[2]) if place.endswith("()") else found

    def checked(self, name: str) -> str:
        """The library's word for a name. Raises ``MissingNameError`` if the library lacks it."""
        self.find(name)
        return self.places[name].removesuffix("()").rpartition(".")[2]

    def check(self) -> None:
        """Raise ``MissingNameError`` for the first missing name of the modules that are imported; others fail at their use."""
        for name, place in self.places.items():
            if place.partition(":")[0] in sys.modules:
                self.find(name)


def _called(method: str) -> Callable[..., Any]:
    def call(owner: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(owner, method)(*args, **kwargs)

    return call
