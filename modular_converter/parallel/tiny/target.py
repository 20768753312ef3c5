"""A model to build small, named by import paths, so that other processes can build it too."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any, Protocol

from modular_converter.parallel.errors import BuildError
from modular_converter.parallel.tiny.importing import lay_over, reach


class Alteration(Protocol):
    """A change of a model after its construction; picklable and hashable."""

    def put_into(self, model: Any) -> None:
        """Make the same change to a small instance, in place."""


@dataclasses.dataclass(frozen=True)
class Target:
    """The model to build: a model class and its configuration class, by import path, both picklable.

    Attributes:
        folder: the folder to put into ``sys.path``; "" for none.
        texts: ``(module, path, source)`` of modules whose texts replace their files, or files that do not exist yet.
        alterations: changes of the model after its construction, in order.
    """

    name: str
    model_class: str
    config_class: str
    folder: str = ""
    texts: tuple[tuple[str, str, str], ...] = ()
    alterations: tuple[Alteration, ...] = ()

    def load(self) -> tuple[type[Any], type[Any]]:
        """The model class and the configuration class. Raises ``BuildError`` if one cannot be imported."""
        reach(self.folder)
        lay_over(self.texts)
        return load_class(self.model_class), load_class(self.config_class)


def load_class(path: str) -> type[Any]:
    """The class at an import path. Raises ``BuildError`` if its module cannot be imported or lacks it."""
    module, _, name = path.rpartition(".")
    try:
        found: type[Any] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise BuildError(f"{path}: cannot be imported ({error}); install the library that it names") from error
    except AttributeError as error:
        raise BuildError(f"{path}: {error}; give the class that is meant") from error
    except Exception as error:  # a module that runs may raise anything
        raise BuildError(f"{path}: importing {module} fails: {type(error).__name__}: {error}") from error
    return found
