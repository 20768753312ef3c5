"""The request for one forward's inputs, and inputs with known names and sizes from the configuration."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from modular_converter.parallel.tiny.fields import TEXT, integer, sub
from modular_converter.parallel.tiny.shrink import BATCH, SEQUENCE


Values = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Request:
    """A set of inputs to make.

    Attributes:
        required: names of the forward's arguments without a default.
        optional: names of its arguments with a default.
    """

    model: torch.nn.Module
    config: Any
    required: frozenset[str]
    optional: frozenset[str]
    generator: torch.Generator

    @staticmethod
    def of(model: torch.nn.Module) -> Request:
        """The request of a model's own forward."""
        taken = [
            parameter
            for parameter in inspect.signature(model.forward).parameters.values()
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        required = frozenset(parameter.name for parameter in taken if parameter.default is parameter.empty)
        optional = frozenset(parameter.name for parameter in taken) - required
        return Request(model, model.config, required, optional, torch.Generator().manual_seed(0))

    def takes(self, name: str) -> bool:
        """Whether the forward has an argument of this name."""
        return name in self.required or name in self.optional

    def normal(self, *shape: int) -> torch.Tensor:
        """Normally distributed random numbers, float32."""
        return torch.randn(*shape, generator=self.generator)

    def integers(self, low: int, high: int, *shape: int) -> torch.Tensor:
        """Random integers from ``low`` to ``high - 1``, int64."""
        return torch.randint(low, max(high, low + 1), shape, generator=self.generator)

    def only_taken(self, values: Mapping[str, Any]) -> Values:
        """The values whose names the forward takes."""
        return {name: value for name, value in values.items() if self.takes(name)}


InputLayout = Callable[[Request], Values]
"""A function that makes images or audio in one of the layouts that models take."""


def per_sample(rows: Sequence[int]) -> torch.Tensor:
    """The same row of integers for each sample, ``[batch, len(rows)]``."""
    return torch.tensor([list(rows)] * BATCH)


_WIDTH = ("hidden_size", "d_model", "dim", "n_embd", "embed_dim", "d_latents", "width")
_STATES = ("state_dim", "max_state_dim")
_ACTIONS = ("act_dim", "max_action_dim")
_VISUAL = ("visual_feat_dim", "visual_embedding_dim")
# Name -> axes after the batch: the length, or the fields that may give it.
_FLOATS: Mapping[str, tuple[int | tuple[str, ...], ...]] = {
    "inputs_embeds": (SEQUENCE, _WIDTH),
    "hidden_states": (SEQUENCE, _WIDTH),
    "query_embeds": (6, _WIDTH),
    "encoder_hidden_states": (10, ("encoder_hidden_size", "cross_attention_hidden_size", *_WIDTH)),
    "noise_embeds": (6, _WIDTH),
    "context_hidden_states": (10, _WIDTH),
    "action_embeds": (6, _WIDTH),
    "inputs": (SEQUENCE, ("d_model",)),
    "latents": (("hidden_size", "codebook_dim"), 10),
    "states": (6, _STATES),
    "actions": (6, _ACTIONS),
    "rewards": (6, 1),
    "returns_to_go": (6, 1),
    "spectrogram": (40, ("model_in_dim", "num_mel_bins")),
    "visual_feats": (6, _VISUAL),
    "visual_pos": (6, ("visual_pos_dim",)),
}
# Inputs that are left out unless they are required, since a model computes them from others.
_ONLY_REQUIRED = {"inputs_embeds", "hidden_states", "encoder_hidden_states", "query_embeds", "spectrogram", "inputs"}


def floats(request: Request) -> Values:
    """The floating-point inputs of the table that this forward takes and whose sizes the configuration gives."""
    values: Values = {}
    for name, axes in _FLOATS.items():
        needed = name in request.required
        if not needed and (name in _ONLY_REQUIRED or not request.takes(name)):
            continue
        shape = [axis if isinstance(axis, int) else _axis(request.config, axis) for axis in axes]
        if all(shape):
            values[name] = request.normal(BATCH, *shape)
    if "states" in values:
        values["timesteps"] = torch.arange(6).repeat(BATCH, 1)
    return values


def _axis(config: Any, names: tuple[str, ...]) -> int:
    """The length in a configuration, or in its part for actions or text; 0 if it has none."""
    return integer(config, names, 0) or integer(sub(config, "dit_config", *TEXT), names, 0)


def past(request: Request) -> Values:
    """The past of a time series with its features, and the future, for training losses."""
    if not request.takes("past_values"):
        return {}
    config = request.config
    context = integer(config, ("context_length",), 32)
    channels = integer(config, ("num_input_channels",), 0)
    lags = getattr(config, "lags_sequence", None) or [0]
    length = context + max(lags)
    horizon = integer(config, ("prediction_length",), 8)
    shape = (BATCH, length, channels) if channels else (BATCH, length)
    features = integer(config, ("num_time_features",), 1)
    return {
        "past_values": request.normal(*shape),
        "past_time_features": request.normal(BATCH, length, features),
        "past_observed_mask": torch.ones(*shape),
        "past_values_padding": torch.zeros(BATCH, length),
        "freq": torch.zeros(BATCH, 1, dtype=torch.long),
        "future_values": request.normal(BATCH, horizon, *shape[2:]),
        "future_time_features": request.normal(BATCH, horizon, features),
    }


def other_ids(request: Request) -> Values:
    """Ids of other vocabularies, of languages and of tasks, and boxes of words."""
    config = request.config
    values: Values = {"lang_ids": torch.zeros(BATCH, dtype=torch.long)}
    query = sub(config, "qformer_config")
    values["qformer_input_ids"] = request.integers(5, integer(query, ("vocab_size",), 32), BATCH, 8)
    values["task_inputs"] = request.integers(5, 32, BATCH, integer(config, ("task_seq_len",), 8))
    for kind in ("classes", "tasks"):
        vocabulary = integer(sub(config, *TEXT), ("vocab_size",), 32)
        values[f"{kind}_input_ids"] = request.integers(5, vocabulary, 3 * BATCH if kind == "classes" else BATCH, 8)
        values[f"{kind}_attention_mask"] = torch.ones_like(values[f"{kind}_input_ids"])
    values["classes_structure"] = torch.tensor([3] * BATCH)
    corners = request.integers(0, 40, BATCH, SEQUENCE, 2)
    values["bbox"] = torch.cat([corners, corners + 10], dim=-1)
    if request.takes("context_input_ids"):
        documents = integer(config, ("n_docs",), 5)
        values["context_input_ids"] = request.integers(5, 100, BATCH * documents, SEQUENCE)
        values["context_attention_mask"] = torch.ones_like(values["context_input_ids"])
        values["doc_scores"] = request.normal(BATCH, documents)
    queries = integer(config, ("latent_query_num",), 0)
    if queries and request.takes("image_embeds_position_mask"):
        values["image_embeds_position_mask"] = (torch.arange(SEQUENCE) < queries).long().repeat(BATCH, 1)
    if "codes" in request.required or "audio_codes" in request.required:
        codebooks = integer(config, ("num_quantizers", "num_codebooks"), 4)
        values["codes"] = values["audio_codes"] = request.integers(0, 16, BATCH, codebooks, 10)
    return values
