from torch import nn

from ...generation import GenerationMixin
from ..old.modeling_old import OldMLP, OldModel


class FirstMixin:
    first = 1


class SecondMixin:
    second = 2


class FastGenerationMixin(GenerationMixin):
    fast = True


# The second does not take the place of the first.
class NewMLP(OldMLP, FirstMixin, SecondMixin):
    pass


class NewHead(FirstMixin, SecondMixin, OldMLP):
    pass


# An heir takes the place of what it inherits from.
class NewModel(OldModel, FastGenerationMixin):
    pass
