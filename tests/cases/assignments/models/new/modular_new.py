from ..bert.modeling_bert import BertModel


# Not one of the names that replace a neighbour's.
SIZE = 2
OTHER = 5
_CHECKPOINT_FOR_DOC = "org/new"
_EXPECTED_OUTPUT_SHAPE = [3, 4]
# Replaced; the second is `None`, which only stands for the neighbour's.
NEW_START_DOCSTRING = "new start"
NEW_INPUTS_DOCSTRING = None


class NewModel(BertModel):
    other = OTHER
