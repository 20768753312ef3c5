"""One class laid over another, without the files around them."""

from __future__ import annotations

import textwrap

from modular_converter.convert.inherit.build import Merged, merge_class
from modular_converter.convert.source.library import ModelNames
from modular_converter.findings import locate
from modular_converter.settings.load import profile_settings


def merged(child: str, parent: str, bases: str = "nn.Module") -> Merged:
    """`class NewMLP(OldMLP)` over `class NewMLP(bases)`; both bodies are written without indentation. What cannot be one
    method is not tried as two.
    """
    parent_text = class_text(f"class NewMLP({bases}):", parent)
    return merge_class(child_text(child), parent_text, "NewMLP", "OldMLP", NAMES, SETTINGS, apart={"no method"})


def merge(child: str, parent: str, bases: str = "nn.Module") -> str:
    """The text of the merged class, which may have no findings."""
    result = merged(child, parent, bases)
    assert not [finding.finding for finding in result.findings]
    compile(result.text, "merged", "exec")
    return result.text


def findings(child: str, parent: str, bases: str = "nn.Module") -> list[tuple[str, int, str]]:
    """The findings: code, line of the child's class, message."""
    found = []
    for finding in merged(child, parent, bases).findings:
        place = locate("modular", finding.node, child_text(child))
        found.append((finding.finding.code, place.line, finding.finding.message))
    return found


def child_text(body: str) -> str:
    """The class of the modular file."""
    return class_text("class NewMLP(OldMLP):", body)


def class_text(header: str, body: str) -> str:
    """A class with its body indented."""
    return f"{header}\n" + textwrap.indent(textwrap.dedent(body).rstrip("\n"), "    ") + "\n"


NAMES = ModelNames({})
SETTINGS = profile_settings()
