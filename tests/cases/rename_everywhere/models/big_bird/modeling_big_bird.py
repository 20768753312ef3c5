import torch
from mamba_ssm.big_bird import kernel
from torch import nn

from ...integrations import mamba_ssm_big_bird
from .configuration_big_bird import BigBirdConfig


# A comment on big_bird, BigBird and BIG_BIRD; on Big_Bird too.
BIG_BIRD_INPUTS = {"big_bird": "BigBird", "x": "not xbig_bird, not 2big_bird, but a_big_bird and xBigBird"}


# Copied from transformers.models.bert.modeling_bert.scale with Bert->BigBird
def scale_big_bird(x):
    return x * len(BIG_BIRD_INPUTS)


class BigBirdLayer(nn.Module):
    """A BigBird layer of a BIG_BIRD model."""

    config: BigBirdConfig

    # Copied from transformers.models.bert.modeling_bert.BertLayer.forward
    def forward(self, big_bird_states):
        from big_bird.ops import big_bird_op

        # In the text of an f-string nothing is renamed, in its fields everything.
        message = f"BigBird at {big_bird_states.shape[0]} {big_bird_states['big_bird']:>{BIG_BIRD_INPUTS['x']}}"
        name = "mamba_ssm big_bird" + f'big_bird {"big_bird"}' + "big_bird"
        out = torch.relu(scale_big_bird(big_bird_op(kernel(big_bird_states))))
        return mamba_ssm_big_bird(out), message, name
