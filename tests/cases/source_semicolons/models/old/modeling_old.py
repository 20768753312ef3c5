from torch import nn


# Each statement of a line is executed once.
ITEMS = iter(range(9))
FIRST = "é", next(ITEMS); SECOND = next(ITEMS)  # two
PAIR = (1,
        2); TRIPLE = (FIRST, PAIR,
                      3);  # the end
LEFT = 1; \
RIGHT = 2;


class OldMLP(nn.Module):
    def forward(self, x):
        return x, FIRST, SECOND, TRIPLE, LEFT, RIGHT
