"""The private names of transformers that are used; another version may lack one, so no other file names one.

The fields that models declare for the library to read (``_tp_plan``, ``_no_split_modules``, ``_keys_to_ignore_on_save``,
and of experts ``_apply_gate`` and what chooses their implementation) are not here.
"""

from __future__ import annotations

from typing import Any

from modular_converter.parallel.private_names import PrivateNames


_GENERATION = "transformers.generation.utils:GenerationMixin"
NAMES = PrivateNames(
    "transformers",
    {
        "defer_gradient_sums": "transformers.trainer:Trainer._defer_fsdp_gradient_reduction()",
        "device_mesh": "transformers.distributed.mixin:DistributedMixin._device_mesh",
        "expand_inputs": f"{_GENERATION}._expand_inputs_for_generation()",
        "get_logits_processor": f"{_GENERATION}._get_logits_processor()",
        "get_stopping_criteria": f"{_GENERATION}._get_stopping_criteria()",
        "prepare_attention_mask": f"{_GENERATION}._prepare_attention_mask_for_generation()",
        "prepare_generated_length": f"{_GENERATION}._prepare_generated_length()",
        "prepare_generation_config": f"{_GENERATION}._prepare_generation_config()",
        "prepare_position_ids": f"{_GENERATION}._prepare_position_ids_for_generation()",
        "prepare_special_tokens": f"{_GENERATION}._prepare_special_tokens()",
        "recordable_outputs": "transformers.utils.output_capturing:_CAN_RECORD_REGISTRY",
        "set_trial_arguments": "transformers.trainer:Trainer._hp_search_setup()",
        "supports_default_cache": f"{_GENERATION}._supports_default_dynamic_cache()",
        "supports_logits_to_keep": f"{_GENERATION}._supports_logits_to_keep()",
        "update_model_kwargs": f"{_GENERATION}._update_model_kwargs_for_generation()",
    },
)


def __getattr__(name: str) -> Any:
    if name not in NAMES.places:
        raise AttributeError(f"{__name__} has no {name}")
    found = globals()[name] = NAMES.find(name)
    return found
