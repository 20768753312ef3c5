"""Changes that break what users of a model rely on, as `check-modular-conversion --breaking` tells them (MC6xx). The
comparison words them itself: what happens is the same for a model and for its heirs.
"""

from __future__ import annotations

from modular_converter.findings import Rule


KEY_REMOVED = Rule("MC601", "key-removed", "a change removes entries of a model's state dict")
KEY_ADDED = Rule("MC602", "key-added", "a change adds entries to a model's state dict")
KEY_RENAMED = Rule("MC603", "key-renamed", "a change renames entries of a model's state dict")
KEY_SHAPE = Rule("MC604", "key-shape", "a change gives a parameter another shape")
SETTING_REMOVED = Rule(
    "MC605", "setting-removed", "a change removes or renames a setting of a configuration or a processor"
)
SETTING_DEFAULT = Rule("MC606", "setting-default", "a change gives a setting another default")
MODEL_TYPE_CHANGED = Rule("MC607", "model-type-changed", "a change gives a configuration another model type")
LOADING_CHANGED = Rule("MC608", "loading-changed", "a change of the names that loading treats in their own way")
STATE_NOT_KNOWN = Rule(
    "MC609", "state-not-known", "a part of a model is made otherwise, and what it holds is not known"
)
EXPORT_REMOVED = Rule("MC611", "export-removed", "a change removes a name from `__all__`")
BASE_REMOVED = Rule("MC612", "base-removed", "a class is no longer a heir of one of its bases")
METHOD_REMOVED = Rule("MC613", "method-removed", "a class no longer defines a public method")
PARAMETER_CHANGED = Rule("MC614", "parameter-changed", "calls of a public method no longer fit its parameters")
PARAMETER_DEFAULT = Rule("MC615", "parameter-default", "a parameter of a public method has another default")
PLAN_CHANGED = Rule("MC616", "plan-changed", "a plan of parallelism or placement changes")
DOCUMENTED_ARGUMENT = Rule("MC621", "documented-argument", "a docstring no longer tells of an argument")
