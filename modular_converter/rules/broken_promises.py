"""Changes that break what users of a model rely on, as `check-modular-conversion --breaking` tells them (MC6xx). The
comparison words them itself: what happens is the same for a model and for its heirs.
"""

from __future__ import annotations

from modular_converter.findings import Rule, Severity


_ONLY = "Only `check-modular-conversion --breaking` tells of it ([what a change means](../how-to/change.md))."
CHECKPOINT = f"Level: checkpoint. {_ONLY}\n"
API = f"Level: API. {_ONLY}\n"
SOURCE = f"Level: source. {_ONLY}\n"

KEY_REMOVED = Rule(
    code="MC601",
    name="key-removed",
    severity=Severity.WARNING,
    summary="a change removes entries of a model's state dict",
    explanation=f"""\
Weights of published checkpoints have no place any more: they are left out when the checkpoint is loaded.

Keep the name, or map old names when checkpoints are loaded.

{CHECKPOINT}""",
)

KEY_ADDED = Rule(
    code="MC602",
    name="key-added",
    severity=Severity.WARNING,
    summary="a change adds entries to a model's state dict",
    explanation=f"""\
Published checkpoints have no weights for them, so a loaded model computes with random ones.

Give the new part a place that old checkpoints fill, or make it only where a new setting asks for it.

{CHECKPOINT}""",
)

KEY_RENAMED = Rule(
    code="MC603",
    name="key-renamed",
    severity=Severity.WARNING,
    summary="a change renames entries of a model's state dict",
    explanation=f"""\
Published checkpoints have the old name: the new part stays random, and the old weights are left out.

Keep the name, or map the old one when checkpoints are loaded.

{CHECKPOINT}""",
)

KEY_SHAPE = Rule(
    code="MC604",
    name="key-shape",
    severity=Severity.WARNING,
    summary="a change gives a parameter another shape",
    explanation=f"""\
The words of the code that decide a shape are not the same any more, and no default tells that both are the same
number. Published checkpoints may not fit.

Keep the shape for the settings that published configurations have.

{CHECKPOINT}""",
)

SETTING_REMOVED = Rule(
    code="MC605",
    name="setting-removed",
    severity=Severity.WARNING,
    summary="a change removes or renames a setting of a configuration",
    explanation=f"""\
A published `config.json` has the old name. It is kept as an attribute that nothing reads.

Keep the old name, or give it to `attribute_map`.

{CHECKPOINT}""",
)

SETTING_DEFAULT = Rule(
    code="MC606",
    name="setting-default",
    severity=Severity.WARNING,
    summary="a change gives a setting another default",
    explanation=f"""\
A published `config.json` leaves out what was the default when it was saved, so its models change in silence.

Keep the default, and write the new one into new configurations.

{CHECKPOINT}""",
)

MODEL_TYPE_CHANGED = Rule(
    code="MC607",
    name="model-type-changed",
    severity=Severity.WARNING,
    summary="a change gives a configuration another model type",
    explanation=f"""\
A published `config.json` names the old type, by which automatic classes find the model.

Keep the type, or register the old one, too.

{CHECKPOINT}""",
)

LOADING_CHANGED = Rule(
    code="MC608",
    name="loading-changed",
    severity=Severity.WARNING,
    summary="a change of the names that loading treats in their own way",
    explanation=f"""\
Tied weights, keys that may be missing or left over, and the tables by which keys are renamed decide what a
checkpoint has to hold, and what is told about it.

Load a published checkpoint, and look at the keys that are reported.

{CHECKPOINT}""",
)

STATE_NOT_KNOWN = Rule(
    code="MC609",
    name="state-not-known",
    severity=Severity.WARNING,
    summary="a part of a model is made otherwise, and what it holds is not known",
    explanation=f"""\
The text does not tell which module a call gives, or whether a condition holds, and it has changed. Nothing is
guessed: the state dict may or may not be the same.

Compare the state dicts of both versions.

{CHECKPOINT}""",
)

EXPORT_REMOVED = Rule(
    code="MC611",
    name="export-removed",
    severity=Severity.WARNING,
    summary="a change removes a name from `__all__`",
    explanation=f"""\
`from package import Name` fails for those who use it.

Keep the name for a while, with a warning.

{API}""",
)

BASE_REMOVED = Rule(
    code="MC612",
    name="base-removed",
    severity=Severity.WARNING,
    summary="a class is no longer a heir of one of its bases",
    explanation=f"""\
`isinstance` and `issubclass` say something else, and what was inherited is gone.

Keep the base where others test for it.

{API}""",
)

METHOD_REMOVED = Rule(
    code="MC613",
    name="method-removed",
    severity=Severity.WARNING,
    summary="a class no longer defines a public method",
    explanation=f"""\
Calls of the method fail, or reach another one.

Keep the method for a while, with a warning.

{API}""",
)

PARAMETER_CHANGED = Rule(
    code="MC614",
    name="parameter-changed",
    severity=Severity.WARNING,
    summary="calls of a public method no longer fit its parameters",
    explanation=f"""\
A parameter is gone, has another name or another place, or has to be given now. With `**kwargs` the call still
runs, and nothing reads the old name.

Add parameters at the end, with defaults; `@deprecate_kwarg` takes an old name.

{API}""",
)

PARAMETER_DEFAULT = Rule(
    code="MC615",
    name="parameter-default",
    severity=Severity.WARNING,
    summary="a parameter of a public method has another default",
    explanation=f"""\
Calls that leave it out do something else. Defaults of processors change what goes into a model.

Keep the default.

{API}""",
)

PLAN_CHANGED = Rule(
    code="MC616",
    name="plan-changed",
    severity=Severity.WARNING,
    summary="a plan of parallelism or placement changes",
    explanation=f"""\
Models are divided among devices in another way: `tp_plan`, `pp_plan`, and the modules that stay on one device.

Run the model with the plan; `modular-plan show` proves plans.

{API}""",
)

DOCUMENTED_ARGUMENT = Rule(
    code="MC621",
    name="documented-argument",
    severity=Severity.WARNING,
    summary="a docstring no longer tells of an argument",
    explanation=f"""\
Readers find the argument undocumented, and checks of docstrings may fail.

Document it, or remove the argument, too.

{SOURCE}""",
)
