"""Special tokens lie within the requested vocabulary."""

import pytest


pytest.importorskip("transformers")

from modular_converter.parallel.tiny.build import target_of  # noqa: E402
from modular_converter.parallel.tiny.shrink import shrink  # noqa: E402


def test_special_tokens_fit_a_vocabulary_that_was_given():
    config = shrink(target_of("phi3").load()[1], "sizes", {"vocab_size": 106})
    assert config.vocab_size == 106 and config.pad_token_id < 106
    assert shrink(target_of("phi3").load()[1], "sizes", {"pad_token_id": 3}).pad_token_id == 3
