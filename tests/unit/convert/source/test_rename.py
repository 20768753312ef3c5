"""Renaming on text gives what a visitor over a full syntax tree gives."""

from __future__ import annotations

import importlib.util
import pathlib
import re

import libcst as cst
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modular_converter.convert.source.rename import Renamer


BIG_BIRD = Renamer("big_bird", "BigBird", "emu", "Emu", kept=("mamba_ssm", "mamba-ssm"), copy_comment="Copied from")
GPT = Renamer("gpt", "GPT", "new_one", "NewOne", copy_comment="Copied from")


def spelled_anew(text: str, renamer: Renamer) -> str:
    """A name or a prose in which the model is called otherwise: one character after the other, as the rules say."""
    result, position = "", 0
    while position < len(text):
        before, rest = text[position - 1 : position], text[position:]
        spelling = next((rest[: len(form)] for form in (renamer.old, renamer.old_cased) if starts(rest, form)), "")
        if spelling and not (before.isascii() and (before.islower() or before.isdigit())):
            result += in_the_case_of(spelling, rest[len(spelling) :], renamer)
            position += len(spelling)
        else:
            result, position = result + rest[0], position + 1
    return result


def starts(text: str, form: str) -> bool:
    return text[: len(form)].lower() == form.lower()


def in_the_case_of(spelling: str, behind: str, renamer: Renamer) -> str:
    all_capitals = renamer.old_cased == renamer.old.upper()
    if all_capitals and spelling == renamer.old_cased:
        return renamer.new_cased if behind[:1].isalpha() else renamer.new.upper()
    spellings = {
        renamer.old.upper(): renamer.new.upper(),
        renamer.old: renamer.new,
        renamer.old_cased: renamer.new_cased,
    }
    return spellings.get(spelling, renamer.new_cased)


def renamed(text: str, renamer: Renamer) -> str:
    """A name or a prose renamed, but for the names of other libraries, which stand alone as words."""
    words = []
    for word in re.split(r"([\w-]+)", text):
        # A name without a minus of its own may stand beside one.
        words += [word] if word in renamer.kept else re.split("(-)", word)
    runs = [word if word in renamer.kept else None for word in words]
    result, prose = "", ""
    for word, kept in zip(words, runs, strict=True):
        if kept is None:
            prose += word
        else:
            result, prose = result + spelled_anew(prose, renamer) + kept, ""
    return result + spelled_anew(prose, renamer)


class Oracle(cst.CSTTransformer):
    """Renames names, plain strings and comments; the text of f-strings and modules outside of the models stay."""

    def __init__(self, renamer: Renamer) -> None:
        super().__init__()
        self.renamer = renamer

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        return updated_node.with_changes(value=renamed(updated_node.value, self.renamer))

    def leave_SimpleString(self, original_node: cst.SimpleString, updated_node: cst.SimpleString) -> cst.SimpleString:
        return updated_node.with_changes(value=renamed(updated_node.value, self.renamer))

    def leave_Comment(self, original_node: cst.Comment, updated_node: cst.Comment) -> cst.Comment:
        return updated_node.with_changes(value=renamed(updated_node.value, self.renamer))

    def leave_EmptyLine(
        self, original_node: cst.EmptyLine, updated_node: cst.EmptyLine
    ) -> cst.EmptyLine | cst.RemovalSentinel:
        comment = original_node.comment
        is_copied = comment is not None and comment.value[1:].lstrip(" \t").startswith("Copied from")
        return cst.RemoveFromParent() if is_copied else updated_node

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> cst.ImportFrom:
        beside = len(original_node.relative) == 1  # `...` leads out of the models
        return updated_node if beside else updated_node.with_changes(module=original_node.module)

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> cst.Import:
        names = [
            new.with_changes(name=old.name) for old, new in zip(original_node.names, updated_node.names, strict=True)
        ]
        return updated_node.with_changes(names=names)


def by_tree(text: str, renamer: Renamer) -> str:
    return cst.parse_module(text).visit(Oracle(renamer)).code


WORDS = (
    "big_bird",
    "BigBird",
    "BIG_BIRD",
    "Big_Bird",
    "gpt",
    "GPT",
    "Gpt",
    "x",
    "Model",
    "2",
    "_",
    "layer",
    "mamba_ssm",
)
names = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(
    lambda words: "n" * (words[0] == "2") + "".join(words)
)
prose = st.lists(st.sampled_from((*WORDS, " ", " ", ", ", "mamba-ssm", "{", "}", "é")), max_size=6).map("".join)
plain = prose.map(lambda text: text.replace("{", "").replace("}", ""))
quotes = st.sampled_from(('"', "'", '"""', "'''"))
strings = st.builds(
    lambda letter, quote, text: f"{letter}{quote}{text}{quote}", st.sampled_from(("", "r", "b")), quotes, prose
)
strings = strings.filter(lambda text: text.isascii() or text[0] != "b")
fields = st.builds(
    "{{{}{}{}}}".format, names, st.sampled_from(("", "!r", "=")), st.sampled_from(("", ":>5", ":big_bird"))
)
escapes = st.sampled_from(("", "", "\\n", "\\\\", "\\t "))
templates = st.builds(
    "{4}{0}{1}{5}{2}{3}{0}".format, quotes, plain, fields, plain, st.sampled_from(("f", "rf")), escapes
)
texts = st.builds('"""{}\n# Copied from {}\n"""'.format, plain, names)
modules = st.lists(
    st.builds("{}{}".format, names, st.sampled_from(("", ".big_bird", " as gpt"))), min_size=1, max_size=3
)
values = st.one_of(names, strings, templates, st.builds("{}({}, {}={})".format, names, strings, names, templates))
statements = st.one_of(
    st.builds("{} = {}".format, names, values),
    st.builds("{}.{} = [\n    {},  # {}\n]".format, names, names, values, prose),
    st.builds("# {}".format, prose),
    st.builds("    # Copied from {}".format, names),
    st.builds("from {}.{} import {} as {}".format, names, names, names, names),
    st.builds("from {}{} import {}".format, st.sampled_from((".", "...")), names, names),
    st.builds("import {}.{}".format, names, names),
    st.builds("{}import {}".format, st.sampled_from(("", "x = 1; ", "if x: ")), modules.map(", ".join)),
    st.builds("import {}".format, modules.map(", \\\n    ".join)),
    st.builds("{} = {}".format, names, texts),
    st.builds(
        "def {}({}):\n    from {} import {}\n    return {}  # {}".format, names, names, names, names, values, prose
    ),
    st.builds("class {}({}):\n    {}\n    {} = {}".format, names, names, strings, names, values),
)
# It begins with a statement: libcst makes a line of a module in which nothing is left.
sources = st.lists(statements, min_size=1, max_size=5).map(lambda lines: "\n".join(["first = 1", *lines]) + "\n")


@pytest.mark.parametrize("renamer", [BIG_BIRD, GPT], ids=["big_bird", "gpt"])
@settings(max_examples=150, deadline=None, database=None)
@given(source=sources)
def test_generated_sources(renamer: Renamer, source: str) -> None:
    assert renamer.code(source) == by_tree(source, renamer)


def test_a_kept_name_in_an_absolute_module() -> None:
    assert BIG_BIRD.code("import mamba_ssm.big_bird\n") == "import mamba_ssm.big_bird\n"


PUBLISHED = importlib.util.find_spec("transformers")
MODELS = {
    "llama": "Llama",
    "bert": "Bert",
    "gemma2": "Gemma2",
    "clip": "CLIP",
    "t5": "T5",
    "mistral": "Mistral",
    "gpt2": "GPT2",
    "opt": "OPT",
    "vit": "ViT",
    "dinov2": "Dinov2",
    "mamba": "Mamba",
    "olmo": "Olmo",
    "phi": "Phi",
    "qwen2": "Qwen2",
    "whisper": "Whisper",
}


@pytest.mark.skipif(PUBLISHED is None, reason="needs the transformers package")
@pytest.mark.parametrize(
    "model", [pytest.param(one, marks=[pytest.mark.slow] if number % 3 else []) for number, one in enumerate(MODELS)]
)
def test_published_files(model: str) -> None:
    assert PUBLISHED is not None and PUBLISHED.origin is not None
    path = pathlib.Path(PUBLISHED.origin).parent / "models" / model / f"modeling_{model}.py"
    renamer = Renamer(model, MODELS[model], "new_model", "NewModel", copy_comment="Copied from")
    text = path.read_text(encoding="utf-8")
    assert renamer.code(text) == by_tree(text, renamer)


def test_a_name_that_is_kept_is_kept_whole_only() -> None:
    renamer = Renamer("mamba", "Mamba", "new", "New", kept=("mamba_ssm",), copy_comment="Copied from")
    assert renamer.name("mamba_ssm") == "mamba_ssm"
    assert renamer.name("mamba_ssm_layer") == "new_ssm_layer"


def test_only_relative_modules_are_renamed_in_import_modules() -> None:
    text = "from .configuration_gpt import GPTConfig\nfrom gpt import gpt\n"
    assert GPT.import_modules(text) == "from .configuration_new_one import GPTConfig\nfrom gpt import gpt\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("y = mamba_ssm-mamba", "y = mamba_ssm-new"),
        ("y = -mamba_ssm", "y = -mamba_ssm"),
        ("# mamba-ssm, but mamba-ssm-2", "# mamba-ssm, but new-ssm-2"),
        ("y = mamba_ssm.mamba", "y = mamba_ssm.new"),
    ],
)
def test_a_kept_name_beside_a_minus(text: str, expected: str) -> None:
    renamer = Renamer("mamba", "Mamba", "new", "New", kept=("mamba_ssm", "mamba-ssm"))
    assert renamer.code(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import os, gpt_cpp", "import os, gpt_cpp"),
        ("from gpt_cpp import GPTCpp, gpt_x", "from gpt_cpp import GPTCpp, new_one_x"),
        ("return gpt_cpp.gpt.GPT(gpt), GPTCpp", "return gpt_cpp.gpt.GPT(new_one), GPTCpp"),
        ("return self.gpt_cpp, my_gpt_cpp", "return self.new_one_cpp, my_new_one_cpp"),
        ("# gpt_cpp is fast", "# new_one_cpp is fast"),
    ],
)
def test_names_of_other_libraries_stay_in_code(text: str, expected: str) -> None:
    renamer = Renamer("gpt", "GPT", "new_one", "NewOne", foreign=frozenset({"gpt_cpp", "GPTCpp"}))
    assert renamer.code(text) == expected
    assert renamer.name("GPTCpp") == "GPTCpp"


def test_relative_modules_lead_to_the_files_of_the_model_whatever_the_prefix() -> None:
    own = Renamer("gpt", "GPT", "new", "New")
    prefixed = Renamer("gpt", "GPT", "new_text", "NewText", siblings=own)
    text = "def f():\n    from .configuration_gpt import GPTConfig\n"
    assert prefixed.code(text) == "def f():\n    from .configuration_new import NewTextConfig\n"
    assert prefixed.code(text, keep_modules=True) == "def f():\n    from .configuration_gpt import NewTextConfig\n"


def test_attributes_and_keywords_of_other_libraries_stay_in_code() -> None:
    renamer = Renamer("dia", "Dia", "new", "New", foreign=frozenset({"torch.dial"}), members=frozenset({"diagonal"}))
    text = 'y = x.diagonal(diagonal=dia) + torch.dial(x).dial + self.dial  # the dia, "diagonal"\n'
    expected = 'y = x.diagonal(diagonal=new) + torch.dial(x).newl + self.newl  # the new, "newgonal"\n'
    assert renamer.code(text) == expected
    assert (renamer.name("diagonal"), renamer.name("dial")) == ("diagonal", "newl")
