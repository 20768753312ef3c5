import torch

from ...utils import deprecation
from ...utils.deprecation import deprecate_kwarg
from ...utils.deprecation import deprecate_kwarg as renamed
from ...utils.other import something as changed
from ..llama.modeling_llama import LlamaModel


class EmuModel(LlamaModel):
    @deprecate_kwarg("scale", "5.40.0", new_name="factor")
    def forward(self, hidden_states, factor=1.0):
        return self.up(hidden_states) + factor

    # The parent's own stands first.
    @deprecate_kwarg("x", "5.40.0", new_name="first")
    def first_goes(self, first):
        return first + 1

    @deprecate_kwarg("x", "5.40.0", new_name="middle")
    # Two names are old.
    @deprecate_kwarg("y", "5.40.0", new_name="middle")
    def middle_goes(self, middle):
        return middle + 1

    @deprecate_kwarg("length", "5.40.0", new_name="size")
    def static(size):
        return size + 1

    @deprecate_kwarg("length", "5.40.0", new_name="size")
    def from_size(cls, size):
        return cls(size + 1)

    @deprecate_kwarg("y", "5.40.0", new_name="x")
    def only_deprecated(self, x):
        return x + 1

    @torch.no_grad()
    @deprecate_kwarg("y", "5.40.0", new_name="x")
    def own_list(self, x):
        return x + 1

    @renamed("y", "5.40.0", new_name="x")
    def aliased(self, x):
        return x + 1

    @deprecation.deprecate_kwarg("y", "5.40.0", new_name="x")
    def dotted(self, x):
        return x + 1

    @changed("y")
    def other_function(self, x):
        return x + 1

    @no_inherit_decorator
    @deprecate_kwarg("y", "5.40.0", new_name="x")
    def none_inherited(self, x):
        return x + 1

    @deprecate_kwarg("y", "5.40.0", new_name="x")
    def inserted(self, x):
        super().inserted(x)
        return y + 1

    @deprecate_kwarg("y", "5.40.0", new_name="x")
    def was_static(self, x):
        return x + 1

    @deprecate_kwarg("y", "5.40.0")
    def size(self):
        return 1

    @deprecate_kwarg("y", "5.40.0")
    def frozen(self):
        return self

    @deprecate_kwarg("y", "5.40.0", new_name="x")
    def plain(self, x):
        return x + 1

    @deprecate_kwarg("y", "5.40.0", new_name="x")
    def new(self, x):
        return x + 1
