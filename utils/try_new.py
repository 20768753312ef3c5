"""Begin a model from each model of the published library, in memory: `python utils/try_new.py`.

Prints the models from which none can be begun, with the reason, and the number of the others.
"""

from __future__ import annotations

import os
import sys

from modular_converter.authoring.new_model import new_model, read_parent
from modular_converter.convert.source.library import Library
from modular_converter.files.read import find_package
from modular_converter.findings import ConversionError
from modular_converter.settings.load import load_settings
from modular_converter.settings.values import names_of_models


def main() -> None:
    """Try all models, or those of the command line."""
    models = os.path.join(find_package("transformers", os.getcwd()) or "", "models")
    library = Library(load_settings(models))
    known = [
        name
        for name in names_of_models(models, library.settings)
        if name not in ("__pycache__", *library.settings.no_models)
    ]
    names = sys.argv[1:] or known
    refused = 0
    for name in names:
        try:
            new_model("kiwi", "Kiwi", [read_parent(name, models, library)], models, library)
        except ConversionError as error:
            refused += 1
            print(f"{name}: {error.findings[0].code} {error.findings[0].message}", flush=True)
    print(f"{len(names)} models, {len(names) - refused} give a model that converts at once")


if __name__ == "__main__":
    main()
