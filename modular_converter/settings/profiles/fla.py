"""The conventions of flash-linear-attention, whose models are shaped like those of transformers.

`utils/ecosystem.py` modularizes the published library under this profile and proves the result.
"""

from __future__ import annotations

from collections.abc import Mapping

from modular_converter.settings.profiles import transformers
from modular_converter.settings.values import PLAIN_BANNER


TABLE: Mapping[str, object] = {
    **{key: value for key, value in transformers.TABLE.items() if key not in ("older", "checked-release")},
    "package": "fla",
    "banner-root": "",
    "banner": PLAIN_BANNER,
    # No table names the models: each `__init__.py` registers its own.
    "auto-tables": [],
    "no-models": [],
    # Its files are laid out by hand, with imports of several names in one line.
    "formatter": "none",
    "formatter-version": "",
    "kinds": {"Config": "configuration"},
    "copied-kinds": {},
    "optional-kinds": [],
    "kept-names": [],
    "left-after-converting": [],
}
