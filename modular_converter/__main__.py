"""`python -m modular_converter` is the `modular-convert` command."""

from modular_converter.cli import main


if __name__ == "__main__":
    main()
