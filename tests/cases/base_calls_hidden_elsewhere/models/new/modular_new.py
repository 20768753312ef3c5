from ...shared import Mixin, Root
from ..old.modeling_old import OldMLP


class NewMLP(Mixin, OldMLP):
    # `super()` would reach `Mixin.describe` first.
    def describe(self):
        return Root.describe(self)


class NewMixedMLP(OldMLP, Mixin):
    # `super()` would reach `Root.describe` first.
    def describe(self):
        return Mixin.describe(self)

    def name(self):
        return Mixin.name(self)
