"""The files and packages that one conversion has looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Observations:
    """The files and packages that one conversion has looked at, and the class that it is working on.

    The library fills this in while the steps read; the steps do not return it. A conversion that ends with an error
    depends on the files read so far, and most files are read deep inside functions that return something else.
    """

    files: dict[str, str] = field(default_factory=dict)
    """File -> its hash, or the word that takes its place (see `Conversion.reads`)."""
    packages: dict[str, str] = field(default_factory=dict)
    """Folder of the file that imports, joined with the name of a package -> its folder, "" where none was found."""
    class_name: str = ""
    """The class that is being worked on, for the report of an internal error."""

    @property
    def reads(self) -> Mapping[str, str]:
        """The files, sorted."""
        return dict(sorted(self.files.items()))
