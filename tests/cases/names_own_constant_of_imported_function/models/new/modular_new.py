from ..old.modeling_old import OldMLP
from ..older.modeling_older import older_step


NEW_STEP = 5


class NewMLP(OldMLP):
    def forward(self, value):
        return older_step(value)
