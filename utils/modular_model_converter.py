"""`modular-convert` under the name that contributors know: `python utils/modular_model_converter.py --files-to-parse …`."""

from __future__ import annotations

import os
import sys


sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from modular_converter.commands.convert import main  # noqa: E402


if __name__ == "__main__":
    main()
