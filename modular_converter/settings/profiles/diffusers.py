"""The conventions of the models of diffusers: a folder for each sort of model, a file for each model,
`models/transformers/transformer_flux.py`. Another sort is named by `default-kind`: "autoencoder_kl".
"""

from __future__ import annotations

from collections.abc import Mapping

from modular_converter.settings.profiles import fla, transformers


TABLE: Mapping[str, object] = {
    **fla.TABLE,
    "package": "diffusers",
    "layout": "files",
    "default-kind": "transformer",
    "kinds": {},
    "config-suffix": "Config",
    "model-base": "ModelMixin",
    "formatter": "ruff",
    "formatter-version": transformers.TABLE["formatter-version"],
}
