"""After a forward or backward that an exception has ended, and after a loss without a backward, data ranks go on as one device."""

import pytest


pytest.importorskip("transformers")
from tests.parallel.launch import line_of  # noqa: E402


@pytest.mark.parametrize("layout", ["ddp2", "fsdp2"])
def test_what_follows_is_that_of_one_device(layout):
    found = line_of(2, "tests/parallel/broken_script.py", layout)
    assert len(found) == 19
    assert max(found.values()) < 1e-9, {name: error for name, error in found.items() if error > 1e-9}
