"""Kinds of generated file: the kind of a class, and the names of files. Pure functions of the table of kinds."""

from __future__ import annotations

import functools

from modular_converter.settings.values import Settings


@functools.lru_cache(maxsize=4096)
def split_stem(stem: str, kinds: tuple[str, ...]) -> tuple[str, str] | None:
    """`image_processing_pil_vit` -> `("image_processing_pil", "vit")`; None for a file of no kind.

    A kind may say where the model's name goes: `tokenization_vit_fast` is of the kind `tokenization_{model}_fast`.

    Args:
        kinds: `Settings.file_kinds`; the first that fits counts.
    """
    for kind in kinds:
        before, _, after = kind.partition("{model}") if "{model}" in kind else (f"{kind}_", "", "")
        if stem.startswith(before) and stem.endswith(after) and len(stem) > len(before) + len(after):
            return kind, stem[len(before) : len(stem) - len(after)]
    return None


def module_name(kind: str, model: str) -> str:
    """The inverse of `split_stem`: `modeling` and `gemma` -> `modeling_gemma`."""
    return kind.replace("{model}", model) if "{model}" in kind else f"{kind}_{model}"


def kind_of(name: str, cased: str, settings: Settings) -> str:
    """The kind of a class by the longest suffix of its name, which is looked at without the model's cased name.

    Args:
        name: the class.
        cased: the model's cased name, `Gemma`.
    """
    rest = name.replace(cased, "")
    suffix = max((suffix for suffix in settings.kinds if rest.endswith(suffix)), key=len, default="")
    return settings.kinds[suffix] if suffix else settings.default_kind
