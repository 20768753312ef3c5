"""The conventions of mlx-lm: all models in one folder, a file for each, `models/llama.py`, with classes that mostly do not
say the model's name (`Attention`, `MLP`).
"""

from __future__ import annotations

from collections.abc import Mapping

from modular_converter.settings.profiles import fla


TABLE: Mapping[str, object] = {
    **fla.TABLE,
    "package": "mlx_lm",
    "layout": "files",
    "default-kind": "{model}",
    "kinds": {},
    # The configuration of a model is a class of its own file.
    "config-suffix": "Args",
    "model-base": "Module",
    # What models share.
    "no-models": [
        "activations",
        "base",
        "bitlinear_layers",
        "cache",
        "gated_delta",
        "mla",
        "pipeline",
        "rope_utils",
        "ssm",
        "switch_layers",
    ],
}
