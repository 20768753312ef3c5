"""Under torchrun: what training scripts do with a model, in a layout as on one device, or refused with a cure."""

import pytest


pytest.importorskip("transformers")
from tests.parallel.launch import line_of  # noqa: E402


# Use -> the largest difference from one device, or words of the refusal.
STAGES = {
    "hooked": 1e-5,
    "classified": 1e-5,
    "in_double": 1e-5,
    "with_a_frozen_stage": 1e-12,
    "drawn_anew": 1e-5,
    "packed": 1e-5,
    "packed_without_a_cache": 1e-5,
    "of_vmap": "give all rows as one batch",
    "next_numbers": 0.0,
    "generated": 0.0,
    "generated_with_counts": 0.0,
    "generated_with_guidance": "runs the model for each token, of which a process has its own stages alone",
    "generated_from_embeddings": "give them in place of inputs_embeds",
    "own_loss_of_other_targets": "rows count otherwise",
    "beyond_the_vocabulary": 0.0,
}
PARTS_OF_STAGES = {
    "in_half_twice": 1e-3,
    "other_labels": "labels that count, and the mean of their losses is not that of the batch",
    "fewer_rows": "rows with",
    "own_sum": 1e-6,
    "own_sum_of_other_rows": 1e-6,
    "written_in_place": 1e-9,
    "own_comparison": "rows count otherwise in loss= together than alone",
}
SHARES = {
    "next_numbers": 0.0,
    "replaced": 1e-9,
    "swapped": 1e-5,
    "in_half": 0.05,
    "in_half_by_default": 1e-6,
    "loaded": 1e-5,
}

RECOMPUTED = {"recomputed": 1e-5, "recomputed_otherwise": "takes use_reentrant=True"}


@pytest.mark.parametrize(
    ("layout", "wanted"),
    [
        ("pp2", STAGES),
        (
            "fsdp2",
            SHARES | RECOMPUTED | {"in_half_twice": 1e-3, "of_vmap": "take torch.autograd, or a layout such as tp2"},
        ),
        pytest.param("pp2.fsdp2", PARTS_OF_STAGES, marks=pytest.mark.slow),
        pytest.param("tp2", SHARES | {"of_vmap": 1e-5, "classified": 1e-5}, marks=pytest.mark.slow),
    ],
)
def test_a_use_is_as_on_one_device_or_refused_with_a_cure(layout, wanted):
    found = line_of(4 if "." in layout else 2, "tests/parallel/uses_script.py", layout)
    assert set(found) == set(wanted)
    for use, limit in wanted.items():
        said = found[use]
        assert limit in str(said) if isinstance(limit, str) else isinstance(said, float) and said <= limit, (use, said)
