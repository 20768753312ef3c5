"""What the rules say: the message names the thing, the help says what to write."""

from __future__ import annotations

import pytest

from modular_converter.findings import Finding, Location
from modular_converter.parallel.lint import plan_lacks_new_layer, plan_names_missing_layer
from modular_converter.rules import (
    all_rules,
    ambiguous_prefix,
    bad_ignore,
    bad_setting,
    base_not_a_name,
    changed_meaning,
    colliding_prefix,
    config_from_modeling,
    cycle,
    dangling_copy,
    deep_inheritance,
    del_still_read,
    del_unknown_attribute,
    drifted_copy,
    files_differ_alike,
    foreign_base,
    formatter_failed,
    formatter_version,
    generated_file_differs,
    generated_file_missing,
    generated_file_orphaned,
    half_overridden,
    import_from_package_root,
    imported_again,
    inconsistent_bases,
    inheritable_definition,
    internal_error,
    invalid_result,
    invisible_copy,
    lookup_by_text,
    lost_statement,
    missing_file,
    missing_from_all,
    missing_in_sibling,
    missing_module,
    not_utf8,
    nothing_to_convert,
    outside_root,
    override_not_mergeable,
    parent_in_other_case,
    read_only_target,
    remove_unknown_attribute,
    removed_setting_read,
    renamed_attribute,
    renamed_for_others,
    replaced_dependency,
    several_assignments_replaced,
    shared_local_name,
    star_import,
    statement_not_repeated,
    stub_stays,
    stub_still_called,
    super_argument_ignored,
    super_call_not_a_statement,
    super_call_not_in_parent,
    super_kwargs_without_parent,
    syntax_error,
    too_large,
    two_parents,
    typing_only_name,
    unchecked_release,
    undefined_name,
    unknown_in_all,
    unknown_line,
    unknown_neighbour,
    unknown_parent,
    unknown_revision,
    unused_definition,
    unused_ignore,
)
from modular_converter.rules._cures import name_heirs
from modular_converter.rules.files_differ_alike import Reason


AT = Location("models/new/modular_new.py", 3, 7)
OLD = "models/old/modeling_old.py"
NAMING = name_heirs(OLD, "New", "Old", "OldMLP")

WORDED = [
    (syntax_error.diagnose(AT, "expected ':'"), "expected ':'", "py_compile models/new/modular_new.py"),
    (syntax_error.diagnose(AT, "expected ':'", neighbour_of="m.py"), "(needed by m.py)", "py_compile"),
    (not_utf8.diagnose(AT, 0xE9, 12), "byte 0xe9 at offset 12", "UTF-8"),
    (missing_file.diagnose(Location("gema.py"), candidates=["gemma.py"]), "no such file", "Did you mean `gemma.py`?"),
    (
        unknown_neighbour.diagnose(AT, "..odl.modeling_odl", OLD, candidates=["..old.modeling_old"]),
        "`..odl.modeling_odl` does not exist",
        "`..old.modeling_old`",
    ),
    (
        unknown_neighbour.not_installed(AT, "base.models.old.modeling_old", "base"),
        "no package `base`",
        'additional_dependencies: ["base"]',
    ),
    (unknown_parent.diagnose(AT, "OldMlp", OLD, candidates=["OldMLP"]), f"not defined in {OLD}", "`OldMLP`"),
    (
        parent_in_other_case.diagnose(AT, "OLDMLP", "OldMLP", "..old.modeling_old"),
        "`OLDMLP` is read as `OldMLP`: ..old.modeling_old does not define it, and Python raises ImportError",
        "Write `OldMLP`, in the import too.",
    ),
    (
        config_from_modeling.diagnose(AT, "OldConfig", "..old.modeling_old"),
        "`OldConfig` is imported from `..old.modeling_old`",
        "`from ..old.configuration_old import OldConfig`",
    ),
    (
        import_from_package_root.diagnose(AT, "Cache", "transformers", module="transformers.cache_utils"),
        "`Cache` is imported from the root",
        "`from transformers.cache_utils import Cache`",
    ),
    (two_parents.diagnose(AT, "NewMLP", ("OldMLP", "OtherMLP")), "`OldMLP`, `OtherMLP`", "Keep one"),
    (base_not_a_name.diagnose(AT, "NewMLP", "make()"), "`make()`", "dotted name"),
    (cycle.diagnose(AT, ("a", "b")), "a -> b -> a", "outside the circle"),
    (nothing_to_convert.diagnose("gema", candidates=["gemma"]), "`gema` leads to no modular file", "`gemma`"),
    (too_large.diagnose(AT, 5_000_000, 4_000_000), "5,000,000 bytes", "max-file-bytes"),
    (read_only_target.same_place(AT, "b/new", "out"), "those of b/new would have the same paths", "different folders"),
    (read_only_target.modular_exists(AT), "exists, and is not overwritten", "--diff"),
    (missing_file.model(Location("gema"), ["gemma"]), "no model of this name", "Did you mean `gemma`?"),
    (syntax_error.diagnose(Location("<stdin>"), "invalid syntax"), "not valid Python", "`python -m py_compile FILE`"),
    (read_only_target.diagnose(AT, "it is read-only"), "it is read-only", "--output-dir"),
    (outside_root.diagnose(AT, "/etc/passwd", "models"), "leads to /etc/passwd", "symbolic link"),
    (formatter_failed.missing("black"), "`black` is not installed", "pip install black"),
    (formatter_failed.diagnose(AT, "ruff", "bad key"), "`ruff` failed: bad key", "--formatter none"),
    (lookup_by_text.diagnose(AT, "NewMLP", "eval(…)"), "`eval(…)` in the generated `NewMLP`", "in code"),
    (
        renamed_for_others.diagnose(AT, "old", "new", "f('old')", "X"),
        "`X`, `old` in `f('old')` becomes `new`",
        "override",
    ),
    (changed_meaning.parent_lost(AT, "X", "P", "H", ".o"), "`X` would ask for `P` of `.o`, from which", "Ask for `H`"),
    (missing_module.diagnose(AT, ".helper", "helper.py"), "no helper.py, and none is generated", "write the module"),
    (
        missing_module.diagnose(AT, ".helper", "helper.py", "modeling_old.py:2"),
        "imported by code that comes along from modeling_old.py:2, does not exist",
        "override the function",
    ),
    (
        missing_module.diagnose(AT, ".helper", "helper.py", "modeling_old.py:2", "from ..old.helper import x"),
        "`.helper`, imported",
        "lies beside the parent: `from ..old.helper import x`",
    ),
    (formatter_version.diagnose(AT, "ruff", "0.14.10", "9.9"), "with `ruff` 0.14.10", "pip install ruff==0.14.10"),
    (
        unchecked_release.diagnose(AT, "transformers", "5.25.0.dev0", "5.24.0", keeps_files=False),
        "transformers 5.25.0.dev0 is newer than 5.24.0",
        'accept-release = "5.25"',
    ),
    (
        files_differ_alike.diagnose(
            [AT, Location("/m/x/modeling_x.py", 3)], "leaves out decorators", 5, ("@a", ""), Reason.RELEASE
        ),
        "2 of 5 generated files that differ do so in the same way: the conversion leaves out decorators",
        "x/modeling_x.py:3",
    ),
    (bad_setting.unknown(AT, "wrokers", ["workers"]), "unknown setting `wrokers`", "Did you mean `workers`?"),
    (unknown_revision.diagnose("mian", "git knows no commit `mian`"), "since `mian`: git knows no", "git fetch"),
    (internal_error.diagnose(AT, KeyError("x"), class_name="NewMLP"), "class `NewMLP`: KeyError: 'x'", "report it"),
    (
        replaced_dependency.diagnose(AT, "NewFancyEmbeddings", "NewEmbeddings", "NewModel"),
        "`NewFancyEmbeddings` changes `NewEmbeddings`",
        "`NewModel.__init__`",
    ),
    (
        remove_unknown_attribute.diagnose(AT, "mlp_bais", "OldConfig", candidates=["mlp_bias"]),
        "`OldConfig` has no attribute `mlp_bais`",
        "`mlp_bias`",
    ),
    (super_kwargs_without_parent.diagnose(AT, "scale", ""), "no neighbour parent", "**kwargs"),
    (super_kwargs_without_parent.diagnose(AT, "scale", "OldMLP"), "`OldMLP` does not define it", "**kwargs"),
    (
        override_not_mergeable.diagnose(AT, "forward", "the parent's `forward` is a generator", "Write it out."),
        "`forward` cannot be merged with the parent's: the parent's `forward` is a generator",
        "Write it out",
    ),
    (
        super_argument_ignored.diagnose(AT, "__init__", "bias", "not bias", "bias = not bias", ["bias"]),
        "`not bias` does not reach the parent's `__init__`",
        "`bias = not bias` above the call, and pass `bias`.",
    ),
    (several_assignments_replaced.diagnose(AT, "size", "f", "f"), "several assignments in the parent", "than `size`"),
    (several_assignments_replaced.diagnose(AT, "size", "f", "g"), "in the parent's `g`, too", "the parent's `g`"),
    (super_call_not_in_parent.diagnose(AT, "forward", "OldMLP"), "`super().forward()` stays", "Base.forward(self, …)"),
    (super_call_not_a_statement.diagnose(AT, "forward", "OldMLP"), "does not reach `OldMLP`", "OldMLP.forward"),
    (super_call_not_a_statement.of_another_method(AT, "g", "OldMLP", ""), "another method", "Write the lines of"),
    (super_call_not_a_statement.diagnose(AT, "width", "OldMLP", is_call=False), "`super().width` is", "OldMLP.width"),
    (del_unknown_attribute.diagnose(AT, "x", "__init__", "OldMLP"), "`OldMLP.__init__` does not assign", "drop"),
    (
        del_still_read.diagnose(AT, "dropout", "NewMLP", ("forward",)),
        "reads it in `forward`",
        "without `self.dropout`",
    ),
    (stub_still_called.diagnose(AT, "scale", "NewMLP", ("NewMLP.forward",)), "`NewMLP.scale` is removed", "keep"),
    (
        ambiguous_prefix.diagnose(AT, OLD, ("NewText", "New"), "New", NAMING),
        "`NewText`, `New`; all copies from it get `New`",
        "`New` in place of `Old`: `class NewMLP(OldMLP)`",
    ),
    (
        ambiguous_prefix.other_tower(AT, "NewVisionLayer", "NewTextMLP", "NewVisionMLP", "OldMLP"),
        "`NewVisionLayer` would use `NewTextMLP`",
        "write `NewVisionMLP` there",
    ),
    (
        colliding_prefix.diagnose(AT, OLD, "NewText", "OldTextMLP", "New", NAMING),
        "collides with `OldTextMLP`",
        "`class NewMLP(OldMLP)`",
    ),
    (unused_definition.diagnose(AT, "helper"), "no class uses `helper`", "remove it"),
    (missing_from_all.diagnose(AT, "NewModel"), "`NewModel` is missing", 'Add `"NewModel"`'),
    (unknown_in_all.diagnose(AT, "NewMode", candidates=["NewModel"]), "`NewMode`", "`NewModel`"),
    (plan_names_missing_layer.diagnose(AT, "mlp.up", "base_model_tp_plan"), "`mlp.up`", "Override"),
    (plan_lacks_new_layer.diagnose(AT, "gate", "up", "NewMLP"), "splits `up` of `NewMLP`, but has no", "Override"),
    (deep_inheritance.diagnose(AT, "NewMLP", "OldMLP", "OlderMLP", "m.py"), "`OlderMLP` of m.py", "`OlderMLP`"),
    (unused_ignore.diagnose(AT, "MC307"), "no finding of `MC307`", "Remove `MC307`"),
    (bad_ignore.names_none(AT), "names no rule", "--list-rules"),
    (bad_ignore.diagnose(AT, "there is no rule `MC399`"), "no rule `MC399`", "Correct the comment"),
    (undefined_name.diagnose(AT, "torhc", "`NewMLP`", "Import `torch`."), "`NewMLP` uses `torhc`", "Import `torch`."),
    (generated_file_differs.diagnose(AT, "modular_new.py", ["NewMLP"], "edited"), "`NewMLP` differs", "--fix"),
    (generated_file_missing.diagnose(AT, "modular_new.py"), "does not exist", "--fix"),
    (generated_file_orphaned.diagnose(AT, "modular_new.py", "does not exist"), "does not exist", "Remove"),
    (lost_statement.diagnose(AT, "A, B = 1, 2"), "`A, B = 1, 2` would reach", "one name to an assignment"),
    (lost_statement.diagnose(AT, "NewMLP.x = 1", "NewMLP"), "`NewMLP.x = 1` would", "body of `NewMLP`"),
    (
        lost_statement.of_neighbours(AT, "OldMLP.x = 1", "OldMLP", is_class=True),
        "`OldMLP.x = 1` changes",
        "inherits from `OldMLP`",
    ),
    (
        lost_statement.of_neighbours(AT, "TABLE[1] = 1", "TABLE", is_class=False),
        "`TABLE[1] = 1` changes",
        "under another name",
    ),
    (
        lost_statement.in_neighbour(AT, "OldMLP", "old.py:3", is_class=True),
        "the change of `OldMLP` below",
        "inherits from `OldMLP`",
    ),
    (
        lost_statement.in_neighbour(AT, "TABLE", "old.py:3", is_class=False),
        "the change of `TABLE` below",
        "Write `TABLE` out",
    ),
    (
        changed_meaning.diagnose(AT, "scale", ["NewMLP"], "`..b`", "`..a`", is_class=False),
        "`NewMLP` would use `scale` of `..a`, not of `..b`",
        "Write `scale` out",
    ),
    (changed_meaning.displaced(AT, "SCALE", "`..a`"), "`SCALE` of the modular file is replaced", "Give yours another"),
    (shared_local_name.diagnose(AT, "x", "has no value", "f"), "the `x` that this line reads has", "another name"),
    (statement_not_repeated.diagnose(AT, "if x:\n    y()"), "`if x:…` is among", "Leave it out"),
    (half_overridden.annotation_lost(AT, "x", "int"), "`x` loses the parent's annotation `int`", "`x: int = …`"),
    (half_overridden.accessor_kept(AT, "x", "setter"), "`x` keeps the parent's setter", "Write the setter out"),
    (half_overridden.decorator_taken(AT, "x", "property"), "`x` takes the parent's `@property`", "Write `@property`"),
    (half_overridden.decorator_lost(AT, "x", "c(1)"), "`@c(1)` does not apply to its lines in `x`", "Write `@c(1)`"),
    (
        renamed_attribute.diagnose(AT, "old_proj", "new_proj", "OldMLP"),
        "`old_proj` of `OldMLP` is called `new_proj`",
        "Write `new_proj`",
    ),
    (super_argument_ignored.not_passed(AT, "f", "bias"), "does not pass `bias`", "Pass `bias=bias`"),
    (super_argument_ignored.not_passed(AT, "f", "**k"), "not pass `**k`, but", "Pass `**k`, or give your `k` another"),
    (
        super_argument_ignored.not_taken(AT, "f", "x"),
        "`x` is dropped: the parent's `f` does not take it",
        "Leave it out",
    ),
    (invalid_result.diagnose(AT, "'return' outside function", "`NewMLP`"), "outside function, in `NewMLP`", "--diff"),
    (typing_only_name.diagnose(AT, "Sequence", "`NewMLP`"), "`NewMLP` reads `Sequence`", '"Sequence"'),
    (inconsistent_bases.diagnose(AT, "NewMLP", "Module, Mixin"), "`NewMLP(Module, Mixin)`", "Name each base once"),
    (foreign_base.diagnose(AT, "NewMLP", "old.OldMLP"), "inherit from `old.OldMLP`", "class NewMLP(OldMLP)"),
    (
        missing_in_sibling.diagnose(AT, "NewTextConfig", ".configuration_new", "`NewMLP`"),
        "imports `NewTextConfig` from `.configuration_new`",
        "Define `NewTextConfig`",
    ),
    (
        imported_again.diagnose(AT, "fast", "modeling_old.py", 3, "definition", 7),
        "modeling_old.py imports `fast` in line 7, but the generated code would use the definition in line 3",
        "Remove one of the two",
    ),
    (star_import.diagnose(AT, "..old.modeling_old"), "`*` is imported from ..old", "from ..old.modeling_old import …"),
    (stub_stays.diagnose(AT, "rescale", "NewMLP"), "`NewMLP.rescale` raises", "blank line above it"),
    (
        removed_setting_read.diagnose(AT, "mlp_bias", "NewConfig", ("NewMLP",)),
        "`NewConfig` removes `mlp_bias`, but the generated `NewMLP` still reads `config.mlp_bias`",
        "keep the attribute",
    ),
    (unknown_line.diagnose(AT, 2), "there is no line 3: this file has 2", "from 1 to 2"),
    (drifted_copy.diagnose(AT, "NewMLP", "a.b.OldMLP", ("forward",)), "source a.b.OldMLP in `forward`", "--fix"),
    (drifted_copy.diagnose(AT, "f", "a.b.f", (), "it would not parse"), "`f` differs", "it would not parse"),
    (
        dangling_copy.diagnose(AT, "a.b.C", "b.py has no `C`"),
        "a.b.C does not exist: b.py has no `C`",
        "Correct the name",
    ),
    (
        inheritable_definition.diagnose(AT, "NewMLP", "OldMLP", "..old.modeling_old", is_class=True),
        "NewMLP",
        "Write `from ..old.modeling_old import OldMLP` and `class NewMLP(OldMLP)",
    ),
    (invisible_copy.diagnose(AT, "it stands behind code"), "it stands behind code", "# Copied from <package>"),
]


@pytest.mark.parametrize(("finding", "message", "help"), WORDED)
def test_wording(finding: Finding, message: str, help: str) -> None:
    assert message in finding.message
    assert help in finding.help
    assert not finding.message.endswith(".")
    assert finding.help.endswith(".")


def test_every_rule_is_worded_here() -> None:
    assert {finding.code for finding, _, _ in WORDED} == {rule.code for rule in all_rules()}
