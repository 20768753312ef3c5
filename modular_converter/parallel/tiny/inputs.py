"""Inputs for one forward: those that the caller has given, or made from its signature.

Text, vision, audio, time series, encoder-decoder, two towers. Images and audio have several layouts. The model's own
towers (``get_image_features``, ``get_audio_features``) show whether a layout fits, and how many placeholder tokens it
needs.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from modular_converter.parallel.tiny.fields import TEXT, integer, sub, token
from modular_converter.parallel.tiny.media import (
    InputLayout,
    Request,
    Values,
    audio_layouts,
    floats,
    image_layouts,
    other_ids,
    past,
)
from modular_converter.parallel.tiny.model_overrides import SEQUENCE_LENGTHS
from modular_converter.parallel.tiny.shrink import BATCH, SEQUENCE


_NAME = "_example_inputs"


class ExampleInputs:
    """Arguments of one forward, by name; pickled, so that the tensors are none of the module's.

    Attributes:
        staged: whether the module is cut into stages, which hand over whole tensors.
    """

    def __init__(self, inputs: Mapping[str, Any], staged: bool) -> None:
        self._data, self.staged = pickle.dumps(dict(inputs)), staged

    def values(self) -> dict[str, Any]:
        """The arguments, new at each call."""
        found: dict[str, Any] = pickle.loads(self._data)
        return found


def remember_examples(module: Any, inputs: Mapping[str, Any], staged: bool = False) -> None:
    """Let a module have example inputs: each run of its proofs and checks takes them."""
    module.__dict__[_NAME] = ExampleInputs(inputs, staged)


def is_staged(module: Any) -> bool:
    """Whether a module with example inputs is cut into stages."""
    found = module.__dict__.get(_NAME)
    return isinstance(found, ExampleInputs) and found.staged


def examples_of(module: Any) -> dict[str, Any] | None:
    """The example inputs of a module; None if it has none."""
    found = module.__dict__.get(_NAME)
    return found.values() if isinstance(found, ExampleInputs) else None


_KINDS = (("image", image_layouts), ("audio", audio_layouts))


def candidates(model: torch.nn.Module, text_alone: bool = False) -> Iterator[Values]:
    """Sets of keyword arguments for ``model.forward`` to try in turn; the same each time.

    Args:
        text_alone: whether to leave images and audio out, for models whose towers take none of the layouts.

    Yields:
        The example inputs that the caller has given, if any; else tensors on the CPU: ids ``[batch, sequence]`` int64; images, audio and series in the layouts of their modules.
    """
    examples = examples_of(model)
    if examples is not None:
        yield examples
        return
    plain = Request.of(model)
    if text_alone:
        if plain.takes("input_ids"):
            yield _assemble(plain, {}, _id_shapes(plain)[0])
        return
    first_kind, second_kind = (functools.partial(_fitting, model, kind, layouts) for kind, layouts in _KINDS)
    for first in first_kind():
        for second in second_kind():
            for shape in _id_shapes(plain):
                yield _assemble(Request.of(model), first | second, shape)


def _fitting(
    model: torch.nn.Module, kind: str, layouts: Callable[[Request], Sequence[InputLayout]]
) -> Iterator[Values]:
    """The layouts of images or audio that fit the model's tower, made one after the other; an empty one without a tower.

    An image of published size takes a tenth of a second, and mostly the first layout fits.
    """
    plain = Request.of(model)
    possible = layouts(plain)
    for layout in possible:
        values = plain.only_taken(layout(Request.of(model)))
        if counted := _counted(plain, kind, values):
            yield counted
    if not possible:
        yield {}


def make_inputs(model: torch.nn.Module) -> Values:
    """The likeliest keyword arguments for ``model.forward``."""
    return next(candidates(model))


def inputs_that_run(model: torch.nn.Module, run: Callable[[Values], Any]) -> Values:
    """The first keyword arguments for ``model.forward`` with which a run succeeds; the likeliest if none does.

    A text model with a single layout is not run, since 32 layers take a second. Raises the error of the likeliest layout if
    no layout can be made.
    """
    first: list[Values] = []
    refusal: Exception | None = None
    for text_alone in (False, True):
        found = candidates(model, text_alone)
        try:
            first += itertools.islice(found, 2 - len(first))
            if (
                len(first) == 1
                and not text_alone
                and first[0].keys() <= next(candidates(model, True), first[0]).keys()
            ):
                return first[0]
            for values in itertools.chain(first, found):
                with contextlib.suppress(Exception):  # raised by the model's own code for another layout
                    run(values)
                    return values
        except Exception as error:  # no layout of images or audio can be made
            refusal = refusal or error
    if not first:
        raise refusal or LookupError("its forward takes none of the known inputs")
    return first[0]


def _counted(request: Request, kind: str, values: Values) -> Values:
    """The values, with the number of features that the model's tower returns for them; empty if the tower fails."""
    getter = _getter(request.model, f"get_{kind}_features")
    marker = token(request.config, kind)
    if getter is None or not request.takes("input_ids") or marker < 0:
        return values
    taken, place = inspect.signature(getter).parameters, next(request.model.parameters()).device
    given = {key: value.to(place) if isinstance(value, torch.Tensor) else value for key, value in values.items()}
    try:
        with torch.no_grad():
            features = getter(**{key: value for key, value in given.items() if key in taken})
    except Exception:  # the layout does not fit the tower; a model around it may change the layout first
        return {} if hasattr(request.model, f"get_{kind}_features") else values
    rows = _rows(features)
    return values | {f"_{kind}s": rows // BATCH} if rows else values


def _getter(model: torch.nn.Module, name: str) -> Any:
    """The method of the model, or of a model inside; None if there is none."""
    inner = (getattr(module, name, None) for module in model.children())
    return getattr(model, name, None) or next((found for found in inner if found is not None), None)


def _rows(features: Any) -> int:
    """The number of feature vectors in a tower's result, over the whole batch."""
    found = getattr(features, "pooler_output", None)
    found = getattr(features, "last_hidden_state", None) if found is None else found
    found = features if found is None else found
    if isinstance(found, torch.Tensor):
        return found.numel() // found.shape[-1]
    if isinstance(found, (list, tuple)):
        return sum(_rows(item) for item in found if isinstance(item, torch.Tensor))
    return 0


def _id_shapes(request: Request) -> list[tuple[int, ...]]:
    """Shapes of ids to try: models with several codebooks have them in rows, or in an axis of their own."""
    plain = (BATCH, SEQUENCE_LENGTHS.get(request.config.model_type, SEQUENCE))
    inner = sub(request.config, "decoder_config", "decoder")
    books = integer(request.config, ("num_codebooks",), 0) or integer(inner, ("num_codebooks", "num_channels"), 0)
    if books < 2 or not request.takes("input_ids"):
        return [plain]
    return [plain, (BATCH * books, plain[1]), (*plain, books), (*plain, books + 1)]


def _assemble(request: Request, modal: Values, shape: tuple[int, ...] = (BATCH, SEQUENCE)) -> Values:
    counts = {kind: modal.get(f"_{kind}s", 0) for kind, _ in _KINDS}
    modal = {name: value for name, value in modal.items() if not name.startswith("_")}
    values: Values = {}
    decodes = request.takes("decoder_input_ids") and getattr(request.config, "is_encoder_decoder", False)
    if request.takes("input_ids"):
        values["input_ids"] = _ids(request, shape[:2] if decodes else shape)
    if decodes:
        values["decoder_input_ids"] = _ids(request, shape)[:, :8]
    values |= request.only_taken(floats(request) | past(request) | other_ids(request)) | modal
    for kind, count in counts.items():
        if count:
            _place(request, values, kind, count)
    for name, value in (("use_cache", False), ("return_dict", True)):
        if request.takes(name):
            values[name] = value
    return values


def _ids(request: Request, shape: tuple[int, ...]) -> torch.Tensor:
    """Text ids, without special tokens if possible."""
    text = sub(request.config, *TEXT)
    vocabulary = integer(text, ("vocab_size", "vocabulary_size", "char_vocab_size"), 32)
    high = max(min(vocabulary, 140), 8)
    return request.integers(5 if high > 16 else 1, high, *shape)


def _place(request: Request, values: Values, kind: str, count: int) -> None:
    """Put ``count`` placeholder tokens of a kind into each row of ids, and mark those of images in the token types."""
    marker = token(request.config, kind)
    ids = values["input_ids"]
    ids = torch.where(ids == marker, torch.full_like(ids, 5), ids)
    values["input_ids"] = torch.cat([ids[:, :4], torch.full((BATCH, count), marker), ids[:, 4:]], dim=1)
    if request.takes("mm_token_type_ids") and kind == "image":
        values["mm_token_type_ids"] = (values["input_ids"] == marker).long()
