# This file was automatically generated from lib/acme/nets/tiny/modular_tiny.py.
# Do not edit it, since it is generated again: change modular_tiny.py, and run `modular-convert`.
class TinySettings:
    width = 4
