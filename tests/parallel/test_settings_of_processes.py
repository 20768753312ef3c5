"""Under torchrun: settings that processes change between calls must be the same where they compute one call together."""

import pytest


pytest.importorskip("transformers")
from tests.parallel.launch import line_of  # noqa: E402


@pytest.mark.parametrize("layout", ["tp2", "fsdp2"])
def test_a_process_that_alone_changes_a_setting_is_told_before_the_call(layout):
    found = line_of(2, "tests/parallel/settings_script.py", layout)
    different, built = found.pop("different"), found.pop("built")
    if layout == "tp2":
        resized, undone = found.pop("resized")
        assert "self_attn.head_dim was set, but processes share out the sizes" in resized and undone == ""
    for name, said in found.items():
        first, *refused, undone, both, both_undone = said
        assert len(refused) == 2 and first == undone == both == both_undone == "", (name, said)
        assert all("process 1 has set " in one and "process 0 has not" in one for one in refused), (name, said)
    assert "model.layers.1.training to True" in found["mode inside"][1]
    assert "config.output_hidden_states to True" in found["config"][1]
    assert "torch's dtype to torch.float64" in found["type"][1]
    assert "scaling to 2.0" in different and "process 0 has set others" in different
    assert "model.layers.0.mlp.training True" in built or "model.layers.0.mlp.training False" in built
