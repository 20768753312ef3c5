"""Changes that break what users of a model rely on, as `check-modular-conversion --breaking` tells them (MC6xx). The
comparison words them itself: what happens is the same for a model and for its heirs.
"""

from __future__ import annotations

from modular_converter.findings import Rule, Severity


def _promise(code: str, name: str, summary: str) -> Rule:
    return Rule(code, name, Severity.WARNING, summary)


KEY_REMOVED = _promise("MC601", "key-removed", "a change removes entries of a model's state dict")
KEY_ADDED = _promise("MC602", "key-added", "a change adds entries to a model's state dict")
KEY_RENAMED = _promise("MC603", "key-renamed", "a change renames entries of a model's state dict")
KEY_SHAPE = _promise("MC604", "key-shape", "a change gives a parameter another shape")
SETTING_REMOVED = _promise("MC605", "setting-removed", "a change removes or renames a setting of a configuration")
SETTING_DEFAULT = _promise("MC606", "setting-default", "a change gives a setting another default")
MODEL_TYPE_CHANGED = _promise("MC607", "model-type-changed", "a change gives a configuration another model type")
LOADING_CHANGED = _promise("MC608", "loading-changed", "a change of the names that loading treats in their own way")
STATE_NOT_KNOWN = _promise(
    "MC609", "state-not-known", "a part of a model is made otherwise, and what it holds is not known"
)
EXPORT_REMOVED = _promise("MC611", "export-removed", "a change removes a name from `__all__`")
BASE_REMOVED = _promise("MC612", "base-removed", "a class is no longer a heir of one of its bases")
METHOD_REMOVED = _promise("MC613", "method-removed", "a class no longer defines a public method")
PARAMETER_CHANGED = _promise("MC614", "parameter-changed", "calls of a public method no longer fit its parameters")
PARAMETER_DEFAULT = _promise("MC615", "parameter-default", "a parameter of a public method has another default")
PLAN_CHANGED = _promise("MC616", "plan-changed", "a plan of parallelism or placement changes")
DOCUMENTED_ARGUMENT = _promise("MC621", "documented-argument", "a docstring no longer tells of an argument")
