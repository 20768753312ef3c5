"""`check-modular-conversion` under the name that contributors know: `python utils/check_modular_conversion.py --files …`."""

from __future__ import annotations

import os
import sys


sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from modular_converter.commands.check import main  # noqa: E402


if __name__ == "__main__":
    main()
