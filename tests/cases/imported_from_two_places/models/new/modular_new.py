from ..old.modeling_old import OldMLP


try:
    from math import sqrt as root
except ImportError:
    from cmath import sqrt as root


class NewMLP(OldMLP):
    def scaled(self, hidden_states):
        return hidden_states / root(2.0)


__all__ = ["NewMLP"]
