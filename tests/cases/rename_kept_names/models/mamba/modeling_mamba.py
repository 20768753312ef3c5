from torch import nn

from ...utils.import_utils import is_mamba_ssm_available, is_mambapy_available


if is_mambapy_available():
    from mambapy.pscan import pscan
else:
    pscan = None


class MambaMixer(nn.Module):
    """The mamba mixer: needs `mamba-ssm`, or use_mambapy."""

    def __init__(self, config):
        super().__init__()
        self.use_mambapy = config.use_mambapy
        self.mamba = config.mamba_ssm_mamba
        self.fast = is_mamba_ssm_available() and self.use_mambapy

    def forward(self, x, mamba_selective_scan=None):
        return pscan(x) if mamba_selective_scan is None else mamba_selective_scan(x, mamba_inner_fn_2=self.mamba)
