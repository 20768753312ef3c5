"""What the rules say: the message names the thing, the help says what to write."""

from __future__ import annotations

import pytest

from modular_converter.findings import Finding, Location, Rule
from modular_converter.rules import (
    all_rules,
    base_classes,
    broken_promises,
    calls_of_super,
    double_meanings,
    input_files,
    lost_code,
    made_classes,
    members_of_both,
    merged_bodies,
    renamed_words,
    settings_tables,
    stale_files,
    tool_errors,
)
from modular_converter.rules._words import not_mergeable
from modular_converter.rules.stale_files import Reason
from tests.unit.rules.test_examples import WORDED as IN_EXAMPLES


AT = Location("models/new/modular_new.py", 3, 7)
OLD = "models/old/modeling_old.py"

WORDED = [
    (input_files.syntax_error(AT, "expected ':'"), "expected ':'", "py_compile models/new/modular_new.py"),
    (input_files.syntax_error(AT, "expected ':'", neighbour_of="m.py"), "(needed by m.py)", "py_compile"),
    (input_files.not_utf8(AT, 0xE9, 12), "byte 0xe9 at offset 12", "UTF-8"),
    (
        input_files.missing_file(Location("gema.py")),
        "no such file",
        "Check the path",
    ),
    (
        input_files.unknown_neighbour(AT, "..odl.modeling_odl", OLD, candidates=["..old.modeling_old"]),
        "`..odl.modeling_odl` does not exist",
        "`..old.modeling_old`",
    ),
    (
        input_files.not_installed(AT, "base.models.old.modeling_old", "base"),
        "no package `base`",
        'additional_dependencies: ["base"]',
    ),
    (base_classes.unknown_parent(AT, "OldMlp", OLD, candidates=["OldMLP"]), f"not defined in {OLD}", "`OldMLP`"),
    (
        base_classes.parent_in_other_case(AT, "OLDMLP", "OldMLP", "..old.modeling_old"),
        "`OLDMLP` is read as `OldMLP`: ..old.modeling_old does not define it, and Python raises ImportError",
        "Write `OldMLP`, in the import too.",
    ),
    (
        input_files.config_from_modeling(AT, "OldConfig", "..old.modeling_old"),
        "`OldConfig` is imported from `..old.modeling_old`",
        "`from ..old.configuration_old import OldConfig`",
    ),
    (
        input_files.import_from_package_root(AT, "Cache", "transformers", module="transformers.cache_utils"),
        "`Cache` is imported from the root",
        "`from transformers.cache_utils import Cache`",
    ),
    (base_classes.two_parents(AT, "NewMLP", ("OldMLP", "OtherMLP")), "`OldMLP`, `OtherMLP`", "Keep one"),
    (base_classes.base_not_a_name(AT, "NewMLP", "make()"), "`make()`", "dotted name"),
    (merged_bodies.assigned_often(AT, "f", "x", 2), "the parent assigns `x` 2 times", "the parent's `f` out"),
    (input_files.cycle(AT, ("a", "b")), "a -> b -> a", "outside the circle"),
    (input_files.nothing_to_convert("gema", candidates=["gemma"]), "`gema` leads to no modular file", "`gemma`"),
    (input_files.too_large(AT, 5_000_000, 4_000_000), "5,000,000 bytes", "max-file-bytes"),
    (input_files.same_place(AT, "b/new", "out"), "those of b/new would have the same paths", "different folders"),
    (input_files.modular_exists(AT), "exists, and is not overwritten", "--diff"),
    (input_files.model(Location("gema"), ["gemma"]), "no model of this name", "Did you mean `gemma`?"),
    (
        input_files.syntax_error(Location("<stdin>"), "invalid syntax"),
        "not valid Python",
        "`python -m py_compile FILE`",
    ),
    (input_files.read_only_target(AT, "it is read-only"), "it is read-only", "--output-dir"),
    (input_files.outside_root(AT, "/etc/passwd", "models"), "leads to /etc/passwd", "symbolic link"),
    (tool_errors.missing("black"), "`black` is not installed", "pip install black"),
    (tool_errors.formatter_failed(AT, "ruff", "bad key"), "`ruff` failed: bad key", "--formatter none"),
    (
        renamed_words.renamed_for_others(AT, "old", "new", "f('old')", "X"),
        "`X`, `old` in `f('old')` becomes `new`",
        "override",
    ),
    (
        double_meanings.parent_lost(AT, "X", "P", "H", ".o"),
        "`X` would ask for `P` of `.o`, from which",
        "Ask for `H`",
    ),
    (
        input_files.missing_module(AT, ".helper", "helper.py"),
        "no helper.py, and none is generated",
        "write the module",
    ),
    (
        input_files.missing_module(AT, ".helper", "helper.py", "modeling_old.py:2"),
        "imported by code that comes along from modeling_old.py:2, does not exist",
        "override the function",
    ),
    (
        input_files.missing_module(AT, ".helper", "helper.py", "modeling_old.py:2", "from ..old.helper import x"),
        "`.helper`, imported",
        "lies beside the parent: `from ..old.helper import x`",
    ),
    (tool_errors.formatter_version(AT, "ruff", "0.14.10", "9.9"), "with `ruff` 0.14.10", "pip install ruff==0.14.10"),
    (
        settings_tables.unchecked_release(AT, "transformers", "5.25.0.dev0", "5.24.0", keeps_files=False),
        "transformers 5.25.0.dev0 is newer than 5.24.0",
        'accept-release = "5.25"',
    ),
    (
        stale_files.files_differ_alike(
            [AT, Location("/m/x/modeling_x.py", 3)], "leaves out decorators", 5, ("@a", ""), Reason.RELEASE
        ),
        "2 of 5 generated files that differ do so in the same way: the conversion leaves out decorators",
        "x/modeling_x.py:3",
    ),
    (settings_tables.unknown(AT, "wrokers", ["workers"]), "unknown setting `wrokers`", "Did you mean `workers`?"),
    (input_files.unknown_revision("mian", "git knows no commit `mian`"), "since `mian`: git knows no", "git fetch"),
    (tool_errors.internal_error(AT, KeyError("x"), class_name="NewMLP"), "class `NewMLP`: KeyError: 'x'", "report it"),
    (
        merged_bodies.generator(AT, "forward", of_parent=True),
        "`forward` cannot be merged with the parent's: the parent's `forward` is a generator",
        "Write the lines of the parent's `forward` out",
    ),
    (
        calls_of_super.no_value(AT, "f", "x"),
        "`f` cannot be merged with the parent's: the parent's lines read its parameter `x`, which has no value here",
        "Add `x` to the parameters",
    ),
    (
        merged_bodies.assigned_by_both(AT, "f", "x"),
        "the parent's lines assign to a local `x` too",
        "another name",
    ),
    (
        not_mergeable(double_meanings.PARENT_AS_CLASS, AT, "f", "because"),
        "`f` cannot be merged with the parent's: because",
        "parent's `f` out",
    ),
    *(
        (not_mergeable(rule, AT, "f", "because", "Do that."), "merged with the parent's: because", "Do that")
        for rule in (
            base_classes.BASE_ORDER,
            made_classes.CLASS_MADE_OTHERWISE,
            members_of_both.NAME_OF_BOTH_CLASSES,
        )
    ),
    (
        calls_of_super.super_argument_ignored(AT, "__init__", "bias", "not bias", "bias = not bias", ["bias"]),
        "`not bias` does not reach the parent's `__init__`",
        "`bias = not bias` above the call, and pass `bias`.",
    ),
    (
        merged_bodies.several_assignments_replaced(AT, "size", "f", "f"),
        "several assignments in the parent",
        "than `size`",
    ),
    (merged_bodies.several_assignments_replaced(AT, "size", "f", "g"), "in the parent's `g`, too", "the parent's `g`"),
    (calls_of_super.super_call_not_a_statement(AT, "forward", "OldMLP"), "does not reach `OldMLP`", "OldMLP.forward"),
    (calls_of_super.of_another_method(AT, "g", "OldMLP", ""), "another method", "Write the lines of"),
    (
        calls_of_super.super_call_not_a_statement(AT, "width", "OldMLP", is_call=False),
        "`super().width` is",
        "OldMLP.width",
    ),
    (settings_tables.unused_ignore(AT, "MC307"), "no finding of `MC307`", "Remove `MC307`"),
    (settings_tables.names_none(AT), "names no rule", "--list-rules"),
    (settings_tables.bad_ignore(AT, "there is no rule `MC399`"), "no rule `MC399`", "Correct the comment"),
    (
        tool_errors.undefined_name(AT, "torhc", "`NewMLP`", "Import `torch`.", later=0),
        "`NewMLP` uses `torhc`",
        "Import `torch`.",
    ),
    (stale_files.generated_file_differs(AT, "modular_new.py", ["NewMLP"], "edited"), "`NewMLP` differs", "--write"),
    (stale_files.generated_file_missing(AT, "modular_new.py"), "does not exist", "--write"),
    (stale_files.generated_file_orphaned(AT, "modular_new.py", "does not exist"), "does not exist", "Remove"),
    (lost_code.lost_statement(AT, "print(1)"), "`print(1)` would reach", "at the top level"),
    (
        lost_code.of_neighbours(AT, "OldMLP.x = 1", "OldMLP", is_class=True),
        "`OldMLP.x = 1` changes",
        "inherits from `OldMLP`",
    ),
    (
        lost_code.of_neighbours(AT, "TABLE[1] = 1", "TABLE", is_class=False),
        "`TABLE[1] = 1` changes",
        "under another name",
    ),
    (
        lost_code.in_neighbour(AT, "OldMLP", "old.py:3", is_class=True),
        "the change of `OldMLP` below",
        "inherits from `OldMLP`",
    ),
    (
        lost_code.in_neighbour(AT, "TABLE", "old.py:3", is_class=False),
        "the change of `TABLE` below",
        "Write `TABLE` out",
    ),
    (
        double_meanings.changed_meaning(AT, "scale", ["NewMLP"], "`..b`", "`..a`", is_class=False, becomes="scale"),
        "`NewMLP` would use `scale` of `..a`, not of `..b`",
        "Write `scale` out",
    ),
    (
        double_meanings.changed_meaning(
            AT, "old_init", ["new_init"], "`..a`", "own", is_class=False, becomes="new_init"
        ),
        "`new_init` would call itself for ever in place of `old_init` of `..a`",
        "Give yours another name than `new_init`",
    ),
    (double_meanings.displaced(AT, "SCALE", "`..a`"), "`SCALE` of the modular file is replaced", "Give yours another"),
    (
        renamed_words.renamed_into(AT, "X", "old_x", "new_x", ".o"),
        "`old_x` of `.o` is renamed to `new_x`",
        "Write the code",
    ),
    (
        double_meanings.held_twice(AT, "SEEN", "X", ("a.py", "b.py"), is_same=False),
        "`X` changes the `SEEN` of its file alone: a.py and b.py hold one each",
        "an attribute of a class",
    ),
    (double_meanings.redefined(AT, "X", "f", "a.py:1", "a.py:2"), "`X` would use `f` of a.py:2", "different names"),
    (
        double_meanings.entered_above(AT, "X", "TABLE", "f", "a.py:2"),
        "`X` would find `f` of a.py:2 in `TABLE`",
        "Read `TABLE` in a method",
    ),
    (
        merged_bodies.shared_local_name(AT, "x", "has no value", "f"),
        "the `x` that this line reads has",
        "another name",
    ),
    (merged_bodies.read_by_parent(AT, "x", "y(x)", "f"), "`y(x)` reads this `x` in place of", "another name"),
    (merged_bodies.statement_not_repeated(AT, "if x:\n    y()"), "`if x:…` is among", "Leave it out"),
    (
        renamed_words.renamed_attribute(AT, "old_proj", "new_proj", "OldMLP"),
        "`old_proj` of `OldMLP` is called `new_proj`",
        "Write `new_proj`",
    ),
    (calls_of_super.not_passed(AT, "f", "bias"), "does not pass `bias`", "Pass `bias=bias`"),
    (calls_of_super.not_passed(AT, "f", "**k"), "not pass `**k`, but", "Pass `**k`, or give your `k` another"),
    (
        calls_of_super.not_taken(AT, "f", "x"),
        "`x` is dropped: the parent's `f` does not take it",
        "Leave it out",
    ),
    (
        tool_errors.invalid_result(AT, "'return' outside function", "`NewMLP`"),
        "outside function, in `NewMLP`",
        "--diff",
    ),
    (tool_errors.typing_only_name(AT, "Sequence", "`NewMLP`"), "`NewMLP` reads `Sequence`", '"Sequence"'),
    (base_classes.inconsistent_bases(AT, "NewMLP", "Module, Mixin"), "`NewMLP(Module, Mixin)`", "Name each base once"),
    (base_classes.foreign_base(AT, "NewMLP", "old.OldMLP"), "inherit from `old.OldMLP`", "class NewMLP(OldMLP)"),
    (
        tool_errors.missing_in_sibling(AT, "NewTextConfig", ".configuration_new", "`NewMLP`"),
        "imports `NewTextConfig` from `.configuration_new`",
        "Define `NewTextConfig`",
    ),
    (
        double_meanings.imported_again(AT, "fast", "modeling_old.py", 3, "definition", 7),
        "modeling_old.py imports `fast` in line 7, but the generated code would use the definition in line 3",
        "Remove one of the two",
    ),
    (input_files.unknown_older_tree("v9", "git knows no such commit"), "cannot compare with `v9`", "Give a commit"),
    (
        stale_files.merge_setup_missing(AT, "no driver"),
        "conflicts in generated files: no driver",
        "merge-driver install",
    ),
    (input_files.unknown_line(AT, 2), "there is no line 3: this file has 2", "from 1 to 2"),
    (stale_files.drifted_copy(AT, "NewMLP", "a.b.OldMLP", ("forward",)), "source a.b.OldMLP in `forward`", "--write"),
    (stale_files.drifted_copy(AT, "f", "a.b.f", (), "it would not parse"), "`f` differs", "it would not parse"),
    (
        stale_files.dangling_copy(AT, "a.b.C", "b.py has no `C`"),
        "a.b.C does not exist: b.py has no `C`",
        "Correct the name",
    ),
    (
        base_classes.inheritable_definition(AT, "NewMLP", "OldMLP", "..old.modeling_old", is_class=True),
        "NewMLP",
        "Write `from ..old.modeling_old import OldMLP` and `class NewMLP(OldMLP)",
    ),
    (stale_files.invisible_copy(AT, "it stands behind code"), "it stands behind code", "# Copied from <package>"),
]


@pytest.mark.parametrize(("finding", "message", "help"), WORDED)
def test_wording(finding: Finding, message: str, help: str) -> None:
    assert message in finding.message
    assert help in finding.help
    assert not finding.message.endswith(".")
    assert finding.help.endswith(".")


def test_every_rule_is_worded_here() -> None:
    """Or in `test_examples.py`; those of two versions of a library where these are compared (tests/unit/breaking)."""
    elsewhere = {rule.name for rule in vars(broken_promises).values() if isinstance(rule, Rule)}
    here = {finding.rule.name for finding, _, _ in WORDED}
    assert here | IN_EXAMPLES.keys() == {rule.name for rule in all_rules()} - elsewhere
