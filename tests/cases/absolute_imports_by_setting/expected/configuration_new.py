# This file was automatically generated from mylib/models/new/modular_new.py.
# Do not edit it, since it is generated again: change modular_new.py, and run `modular-convert`.
class NewConfig:
    size = 4


__all__ = ["NewConfig"]
