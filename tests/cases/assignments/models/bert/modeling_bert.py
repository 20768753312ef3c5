from torch import nn

from ...utils import logging


logger = logging.get_logger(__name__)

SIZE = 1
_CHECKPOINT_FOR_DOC = "google/bert"
_CONFIG_FOR_DOC = "BertConfig"
BERT_START_DOCSTRING = "start"
BERT_INPUTS_DOCSTRING = "inputs"
_EXPECTED_OUTPUT_SHAPE = [1, 2]


def explain(*texts):
    return texts


class BertModel(nn.Module):
    docs = explain(BERT_START_DOCSTRING, BERT_INPUTS_DOCSTRING, _CHECKPOINT_FOR_DOC, _CONFIG_FOR_DOC)
    shape = _EXPECTED_OUTPUT_SHAPE * SIZE

    def warn(self):
        logger.warning("bert")
