"""Normal forms of a text, by which equal definitions are found despite other line breaks and names of models."""

from __future__ import annotations

import functools
import re

from modular_converter.convert.source.library import ModelNames
from modular_converter.convert.source.rename import Renamer
from modular_converter.model import lexer
from modular_converter.model.module import Module, Role


PLACEHOLDER = "zz_model"
_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n)+")
_LAYOUT = re.compile(r"[\s(),;]+")
ORIGIN = re.compile(r"^#.*\bfrom (?:[\w.]+\.)?models(?:\.\w+){2,}.*\n", re.MULTILINE)
"""A comment such as `# Adapted from transformers.models.clip.modeling_clip.CLIPMLP`. A merge keeps the parent's."""
_LAST_WORD = re.compile(r"[A-Z][a-z0-9]*$")


@functools.lru_cache(maxsize=4096)  # a definition, and each of its parts, is compared with many
def normal(text: str) -> str:
    """The text without the parts that a formatter decides: white space, parentheses, commas, semicolons. Blank lines
    stay as marks. Two texts of the same form may still differ, so that a conversion has to decide.
    """
    return _LAYOUT.sub("", _BLANK_LINES.sub("¶", text.strip()))


def squeezed(text: str) -> str:
    """The text without white space, parentheses, commas and semicolons."""
    return _LAYOUT.sub("", text)


def without_comments(text: str) -> str:
    """The text without its comments."""
    comments = (token for token in lexer.tokens(text) if token.kind == "comment")
    return lexer.replace_spans(text, ((token.start, token.end, "") for token in comments))


class Abstraction:
    """Replaces the names of a model in its texts, so that definitions of different models can be compared."""

    def __init__(self, module: Module, model: str, names: ModelNames) -> None:
        """The abstraction for one module of a model."""
        classes = {name for name, one in module.definitions.items() if one.role is Role.CLASS}
        classes |= {name.bound for name in module.imported.values() if re.match(r"\.\w", name.module)}
        self._renamer = Renamer.between_models(names.with_written(model, module.classes), model, PLACEHOLDER)
        self._classes = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(classes)))})\b") if classes else None

    def abstract(self, text: str) -> str:
        """The text, line by line, without comments, and with the last word of its name for a class of the model."""
        text = without_comments(text)
        if self._classes is not None:
            text = self._classes.sub(lambda match: f"@{last_word(match[0])}", text)
        return self._renamer.between(text, 0, len(text))


def last_word(name: str) -> str:
    """`MLP` of `GemmaTextMLP`: the last word of a class name, mostly the kind of module."""
    match = _LAST_WORD.search(name)
    return match[0] if match else name


def texts_of(module: Module, is_generated: bool = True) -> dict[str, str]:
    """Definition -> its text with the comments above it; in a file written by hand without those on its origin."""
    return {
        name: f"{(one.lead if is_generated else ORIGIN.sub('', one.lead)).strip()}\n{one.text}".strip()
        for name, one in module.definitions.items()
        if name != "__all__"
    }
