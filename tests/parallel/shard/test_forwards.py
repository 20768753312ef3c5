"""What code of a forward sees, and code outside of forwards."""

import torch
from torch import nn

from modular_converter.parallel.shard.forwards import called_alone, forward_of, runs_in


class Asks(nn.Module):
    """Notes what is said of a module in its own forward, and in that of a module around it."""

    def forward(self, x):
        self.said = runs_in(self, "group"), called_alone(self)
        return x


class Asking(nn.Sequential):
    def forward(self, x):
        self.said = runs_in(self[0], "group")
        return super().forward(x)


def test_a_module_runs_in_its_own_forward_and_in_those_around_it():
    alone, around = Asks(), Asking(Asks())
    other = Asks()
    assert not runs_in(alone, "group")
    alone(torch.ones(1))
    around(torch.ones(1))
    assert alone.said == (True, True) and around[0].said == (True, False) and around.said

    class Elsewhere(nn.Module):
        def forward(self, x):
            self.said = runs_in(other, "group")
            return x

    elsewhere = Elsewhere()
    elsewhere(torch.ones(1))
    assert not elsewhere.said


def test_code_of_a_forward_of_the_group_runs_in_all_its_modules():
    with forward_of("group"):
        assert runs_in(Asks(), "group") and not runs_in(Asks(), "another group")
    assert not runs_in(Asks(), "group")
