"""The examples of the rules are true: each bad one breaks its rule and no other, each good one breaks none."""

from __future__ import annotations

import pathlib

import pytest

from modular_converter import rules
from modular_converter.authoring.sources import find_inheritable
from modular_converter.convert.batch import Run
from modular_converter.findings import Finding, Rule
from modular_converter.settings.load import profile_settings


WHOLE_RUN = {"cycle"}
"""Rules about several modular files at once: their examples are converted in `tests/unit/convert/test_batch.py`."""

WITH_EXAMPLES = [rule for rule in rules.all_rules() if rules.page_text(rule).bad and rule.name not in WHOLE_RUN]
OFF = {"inheritable-definition": find_inheritable}
"""Rules that are off by default, each with the function that finds what breaks them."""


def findings_of(example: rules.Files, folder: pathlib.Path) -> tuple[list[str], tuple[Finding, ...]]:
    """The codes of what is found in an example, and the findings of the conversion."""
    for path, text in example:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    [modular] = [folder / path for path, _ in example if "/modular_" in path]
    [conversion] = Run(profile_settings()).convert([str(modular)])
    found = [
        *conversion.findings,
        *(one for find in OFF.values() for one in find([str(modular)], profile_settings())),
    ]
    return [finding.code for finding in found], tuple(found)


WORDED = {
    "ambiguous-prefix": ("`NewText`, `NewVision`; all copies from it get `NewVision`", "`class NewVisionMLP(OldMLP)`"),
    "base-in-class-method": ("`nn.Module.load(…)` becomes `super().load(…)`", "another name"),
    "class-decorators": ("`@dataclass` drops the parent's `order=True`", "Write `@dataclass(order=True)`"),
    "colliding-prefix": ("collides with `OldTextMLP`", "`class NewMLP(OldMLP)`"),
    "deep-inheritance": ("inherits from `FirstMLP` of ..first.modeling_first", "Inherit from `FirstMLP`"),
    "del-still-read": ("still reads it in `forward`", "without `self.dropout`"),
    "del-unknown-attribute": ("`OldMLP.__init__` does not assign it", "Did you mean `dropout`?"),
    "half-overridden": ("`width` loses the parent's annotation `int`", "`width: int = …`"),
    "lookup-by-text": ("`globals(…)` in the generated `NewMLP`", "in code"),
    "method-decorators": ("`scale` takes the parent's `@functools.lru_cache`", "Write `@functools.lru_cache`"),
    "missing-from-all": ("`NewModel` is missing", 'Add `"NewModel"`'),
    "model-type-of-another": ('"old"` of `NewConfig`', "Drop the line"),
    "plan-lacks-new-layer": ("splits `up_proj` of `NewMLP`, but has no entry for the new `gate_proj`", "Override"),
    "plan-names-missing-layer": ("an entry `mlp.up_proj`", "Override `base_model_tp_plan`"),
    "removal-without-call": ("does not remove `scale`", "Write `scale = AttributeError()`"),
    "remove-unknown-attribute": ("`OldConfig` has no attribute `mlp_bais`", "`mlp_bias`"),
    "removed-setting-read": ("the generated `NewMLP` still reads `config.mlp_bias`", "keep the attribute"),
    "replaced-dependency": ("`NewRotaryTable` changes `NewEmbeddings`", "`NewModel.__init__`"),
    "shared-class-attribute": ("`cache` of `OldMLP` is one object for `NewMLP` and `NewGate`", "both classes"),
    "taken-description": ("`self.forward.__doc__` reads the docstring that `forward` takes", "Write the docstring"),
    "stub-stays": ("`NewMLP.rescale` raises", "blank line above it"),
    "stub-still-called": ("`NewMLP.rescale` is removed", "keep `rescale`"),
    "super-call-not-in-parent": ("`super().extra_repr()` stays", "Base.extra_repr(self, …)"),
    "super-kwargs-without-parent": ("`OldMLP` does not define it", "**kwargs"),
    "unknown-class-listed": ("`NewLayr`", "`NewLayer`"),
    "unknown-in-all": ("lists `NewModel`", "take it out"),
    "unknown-setting": ("`config.gate_rnk` is no attribute", "Did you mean `gate_rank`?"),
    "unused-definition": ("no class uses `double`", "remove it"),
}
"""Rule whose check words its message -> what the message and the help for its bad example say; `test_messages.py` has the others."""


@pytest.mark.parametrize("rule", WITH_EXAMPLES, ids=lambda rule: rule.name)
def test_a_bad_example_breaks_its_rule_alone(rule: Rule, tmp_path: pathlib.Path) -> None:
    codes, found = findings_of(rules.page_text(rule).bad, tmp_path)
    assert codes == [rule.code]
    for finding in found:
        assert finding.severity is rule.severity
        assert finding.location.path.startswith(str(tmp_path))
        assert finding.location.path.endswith("modular_new.py")
        message, help = WORDED.get(rule.name, ("", ""))
        assert message in finding.message and not finding.message.endswith(".")
        assert help in finding.help and finding.help.endswith(".")


@pytest.mark.parametrize("rule", WITH_EXAMPLES, ids=lambda rule: rule.name)
def test_a_good_example_breaks_no_rule(rule: Rule, tmp_path: pathlib.Path) -> None:
    codes, _ = findings_of(rules.page_text(rule).good, tmp_path)
    assert codes == []


def test_every_rule_that_is_off_can_be_asked_for() -> None:
    assert {rule.name for rule in rules.all_rules() if not rule.by_default} == OFF.keys()
