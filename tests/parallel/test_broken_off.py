"""After a forward or backward that an exception has ended, and after a loss without a backward, data ranks go on as one device."""

import pytest


pytest.importorskip("transformers")
from tests.parallel.launch import line_of  # noqa: E402


@pytest.mark.parametrize("layout", ["ddp2", pytest.param("fsdp2", marks=pytest.mark.slow)])
def test_what_follows_is_that_of_one_device(layout):
    found = line_of(2, "tests/parallel/broken_script.py", layout)
    errors, (without, failed) = found["errors"], found["saves"]
    assert len(errors) == 24
    assert max(errors.values()) < 1e-9, {name: error for name, error in errors.items() if error > 1e-9}
    assert len(set(without)) == 1 and "PlainNet has no save_pretrained: give what full_state_dict" in without[0]
    assert failed[0] == "KeyError: 'somewhere'"
    assert "process 0 could not save the model: KeyError: 'somewhere'" in failed[1]  # it does not wait for the first
