"""The facts of a finished conversion, as plain records: the input of the checks of rules."""
