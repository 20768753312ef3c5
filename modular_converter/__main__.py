"""`python -m modular_converter` is the `modular-convert` command."""

import os
import sys


if __name__ == "__main__":
    # `-m` puts the current folder before everything else, and a stranger's tree may hold a `click.py`.
    if sys.path[0] == os.getcwd() != os.path.dirname(os.path.dirname(os.path.abspath(__file__))):
        del sys.path[0]
    from modular_converter.commands.convert import main

    main()
