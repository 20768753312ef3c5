"""The kinds of change between a generated file and its conversion."""

from __future__ import annotations

import ast

import pytest

from modular_converter.check import tree_changes
from modular_converter.check.tree_changes import file_changes


CLASS = '''\
from torch import nn

from ...utils import auto_docstring, can_return_tuple, logging


logger = logging.get_logger(__name__)


# The norm.
class EmuNorm(nn.Module):
    """A norm."""

    scale = 1

    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.size = size  # in features
        self.eps = eps

    @can_return_tuple
    @auto_docstring
    def forward(self, hidden_states, past_key_value=None):
        """Normalize.

        Args:
            hidden_states: the input
        """
        if past_key_value is None:
            logger.warning("no cache")
        return self.norm(hidden_states, past_key_value=past_key_value)

    def extra(self):
        return "emu"
'''


def kinds(old: str, new: str) -> set[str]:
    return {one.kind for one in file_changes("/models/emu/modeling_emu.py", old, new)}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("    @can_return_tuple\n", "", {"leaves out decorators of methods"}),
        ("    @can_return_tuple\n    @auto_docstring\n", "", {"leaves out decorators of methods"}),
        ("@auto_docstring", "@torch.no_grad()\n    @auto_docstring", {"adds decorators of methods"}),
        ("    @can_return_tuple\n    @auto_docstring\n", "    @auto_docstring\n    @can_return_tuple\n", {"moves decorators of methods"}),
        ("(nn.Module)", "(Base, nn.Module)", {"adds base classes"}),
        ('    """A norm."""\n\n', "", {"leaves out docstrings of classes"}),
        ('"""A norm."""', '"""A norm for `Emu`."""', {"writes `norm for `~`.` for `norm.` in docstrings"}),
        ('"""A norm."""', '"""A norm"""', {"leaves out `.` in docstrings"}),
        ("the input", "", {"leaves out `the input` in docstrings"}),
        ("        Args:\n            hidden_states: the input\n", "", {"leaves out words of docstrings"}),
        ("  # in features", "", {"leaves out comments"}),
        ("# The norm.\n", "", {"leaves out comments"}),
        ("self.size = size  # in features\n", "# in features\n        self.size = size\n", {"changes the layout of code"}),
        ("past_key_value", "past_key_values", {"writes `past_key_values` for `past_key_value`"}),
        ("past_key_value=None", "cache=None, past_key_value=None", {"adds parameters"}),
        ("eps=1e-6", "eps=1e-5", {"writes `1e-05` for `1e-06`"}),
        ("size, eps=1e-6", "size: int, eps=1e-6", {"adds annotations"}),
        ("        self.eps = eps\n", "", {"leaves out assignments of attributes"}),
        ("        self.size = size  # in features\n        self.eps = eps\n", "        self.eps = eps\n        self.size = size  # in features\n", {"moves assignments of attributes"}),
        ('            logger.warning("no cache")\n', '            logger.warning("no cache")\n            logger.info("x")\n', {"adds calls"}),
        ("    scale = 1\n\n", "", {"leaves out class variables"}),
        ('\n    def extra(self):\n        return "emu"\n', "", {"leaves out methods"}),
        ("extra", "more", {"writes `more` for `extra`"}),
        ("self.norm(hidden_states, past", "self.norm(past", {"leaves out arguments of calls"}),
        ("...utils import", "...utils.generic import", {"imports from `.generic` in place of ``"}),
        ("from ...utils", "from transformers.utils", {"imports from `transformers` in place of `..`"}),
        ("    scale = 1\n", "\n    scale = 1\n", {"adds blank lines"}),
        ("hidden_states, past_key_value=None", "hidden_states,\n            past_key_value=None", {"changes the layout of code"}),
        ('"emu"', '"Emu"', {"writes `~` for `~` in strings"}),
    ],
)  # fmt: skip
def test_a_change_has_a_kind_without_names(old: str, new: str, expected: set[str]) -> None:
    assert CLASS.count(old)
    assert kinds(CLASS, CLASS.replace(old, new)) == expected


def test_a_function_within_a_method_counts_as_a_method() -> None:
    old = "class Emu:\n    def build(self):\n        @once\n        def run():\n            return 1\n\n        return run\n"
    assert kinds(old, old.replace("        @once\n", "")) == {"leaves out decorators of methods"}


def test_imports_and_definitions_that_only_the_change_uses_follow_it() -> None:
    without = CLASS.replace("    @can_return_tuple\n", "").replace(", can_return_tuple", "")
    assert kinds(CLASS, without) == {"leaves out decorators of methods"}
    assert kinds(CLASS, CLASS.replace(", can_return_tuple", "")) == {"leaves out imported names"}
    helped = CLASS.replace("# The norm.\n", "def helper():\n    return 1\n\n\n# The norm.\n").replace(
        "= size ", "= helper() "
    )
    assert kinds(helped, CLASS) == {"changes values from `Call` to `Name`"}
    own = CLASS.replace("from torch import nn\n", "from torch import nn\n\nfrom ...cache import Cache\n")
    assert kinds(own.replace("past_key_value=None", "past_key_value: Cache = None"), CLASS) == {
        "leaves out annotations"
    }


def test_a_moved_method_is_a_move_and_what_changes_in_it_is_told_too() -> None:
    head, extra = CLASS.split("\n    def extra")
    swapped = head.replace("    @can_return_tuple", f"    def extra{extra}\n    @can_return_tuple")
    assert kinds(CLASS, swapped) == {"moves methods"}
    assert kinds(CLASS, swapped.replace('"emu"', '"other"')) == {"moves methods", "writes `other` for `~` in strings"}


@pytest.mark.parametrize(
    "text", ["def f(:\n", "x = '\n", "\0", "x = " + "(" * 500 + ")" * 500, "x = " + "-" * 9000 + "1"]
)
def test_what_is_no_python_has_no_kinds(text: str) -> None:
    assert not kinds(text, CLASS) and not kinds(CLASS, text)


def test_places() -> None:
    (change,) = file_changes("/models/emu/modeling_emu.py", CLASS, CLASS.replace("    @can_return_tuple\n", ""))
    line = CLASS.split("\n").index("    @can_return_tuple") + 1
    assert (change.old, change.new.start == change.new.end) == ((line, line + 1), True)
    (change,) = file_changes("/models/emu/modeling_emu.py", CLASS.replace("        self.eps = eps\n", ""), CLASS)
    line = CLASS.split("\n").index("        self.eps = eps") + 1
    assert (change.old, change.new) == ((line, line), (line, line + 1))


@pytest.mark.parametrize(
    ("model", "old", "new", "kind"),
    [
        ("ant", "x = 1", "x = y", "changes values from `Constant` to `Name`"),
        ("opt", "x = 1 + a", "x = 1 - a", "changes op from `Add` to `Sub`"),
        ("add", "x = 1 + a", "x = 1 - a", "changes op from `Add` to `Sub`"),
        ("opt", "x = 'an option'", "x = 'an adoption'", "writes `adoption` for `option` in strings"),
        ("opt", "x = 'an OPTModel'", "x = 'an opt_model'", "writes `~_model` for `~Model` in strings"),
        ("opt", "x = my.OptLayer", "x = my.BigOptLayer", "writes `Big~Layer` for `~Layer`"),
        ("gpt_2", "x = my.gpt2", "x = my.GPT_2", "writes `~` for `~`"),
        ("t5", "x = my.T5Layer", "x = my.UMT5Layer", "writes `UMT5Layer` for `~Layer`"),
        ("call", "f(x)", "g(x)", "writes `g` for `f`"),
        ("emu", "x = '{0} {emu}'", "x = '{1} {emu}'", "writes `{1}` for `{0}` in strings"),
    ],
)
def test_the_name_of_the_model_is_left_out_of_words_alone(model: str, old: str, new: str, kind: str) -> None:
    (change,) = file_changes(f"/models/{model}/modeling_{model}.py", f"{old}\n", f"{new}\n")
    assert change.kind == kind


def test_long_lists_are_compared_in_steps_that_grow_with_their_length(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(tree_changes, "_head", lambda node: asked.append(node) or ast.dump(node))
    numbers = range(400)
    old, new = (", ".join(f"{name}{one}" for one in numbers) for name in "ab")
    assert len(file_changes("/m/emu/modeling_emu.py", f"x = [{old}]\n", f"x = [{new}]\n")) == len(numbers)
    assert len(asked) == 2 * len(numbers) + 2, "each entry and each assignment is looked at once"
