"""The tensors of the layers of `torch.nn`, as data: which names a state dict has for them, and their shapes; and functions that
walk through a model after its `__init__`, and exchange modules in it: `named_children`, `isinstance`.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from modular_converter.breaking.bounds import NOT_KNOWN, computed, one_text
from modular_converter.breaking.values import (
    NONE,
    UNKNOWN,
    ClassValue,
    CodePlace,
    Either,
    Expression,
    External,
    HeldTensor,
    Items,
    Layer,
    ObjectValue,
    Shape,
    Slot,
    Value,
    either,
    is_module,
    pairs_of,
    plain,
    sequence,
    truth,
)


Bound = Mapping[str, Value]
"""Parameter -> its value."""
OF_PARAMETERS = ("torch.nn.ParameterList", "torch.nn.ParameterDict")
CONTAINERS = ("torch.nn.ModuleList", "torch.nn.Sequential", "torch.nn.ModuleDict", *OF_PARAMETERS)
PARAMETERS = ("torch.nn.Parameter", "torch.nn.parameter.Parameter", "torch.nn.UninitializedParameter")
BUFFERS = ("torch.nn.Buffer", "torch.nn.parameter.Buffer")
FILLED = frozenset(f"torch.{name}" for name in ("empty", "zeros", "ones", "rand", "randn", "Tensor", "FloatTensor"))
"""Functions whose arguments are the shape."""
SHAPED_FIRST = frozenset({"torch.full"})
TRUE = Expression("True", True)


def sizes_shape(*sizes: Value) -> Shape:
    """A shape from its sizes."""
    values = [one for _, one in sizes[0].items] if len(sizes) == 1 and isinstance(sizes[0], Items) else sizes
    text = one_text((one.text for one in values), ", ")
    numbers = [one.value if isinstance(one, Expression) else NOT_KNOWN for one in values]
    return Shape(f"({text})", "" if NOT_KNOWN in numbers else repr(numbers).replace("(", "[").replace(")", "]"))


_CONVOLUTION = (
    "in_channels out_channels kernel_size stride padding dilation groups=1 bias=True padding_mode",
    "weight(out_channels,in_channels//groups,kernel_size) bias(out_channels)?bias",
)
_TRANSPOSED = (
    "in_channels out_channels kernel_size stride padding output_padding groups=1 bias=True dilation",
    _CONVOLUTION[1],
)
_NORM = (
    "weight(num_features)?affine bias(num_features)?affine running_mean(num_features)?track_running_stats "
    "running_var(num_features)?track_running_stats num_batches_tracked()?track_running_stats"
)
_BATCH = "num_features eps momentum affine=True track_running_stats=True", _NORM
_INSTANCE = "num_features eps momentum affine=False track_running_stats=False", _NORM
_GATES = (
    "weight_ih{0}(input_size,hidden_size){1} weight_hh{0}(input_size,hidden_size){1} "
    "bias_ih{0}(input_size,hidden_size)?bias{1} bias_hh{0}(input_size,hidden_size)?bias{1} "
)
_STACKED = _GATES.format("_l*", "") + _GATES.format("_l*_reverse", "?bidirectional")
_TABLE: Mapping[str, tuple[str, str]] = {
    "Linear": (
        "in_features out_features bias=True",
        "weight(out_features,in_features) bias(out_features)?bias",
    ),
    "Bilinear": (
        "in1_features in2_features out_features bias=True",
        "weight(out_features,in1_features,in2_features) bias(out_features)?bias",
    ),
    "Embedding": ("num_embeddings embedding_dim padding_idx", "weight(num_embeddings,embedding_dim)"),
    "EmbeddingBag": ("num_embeddings embedding_dim", "weight(num_embeddings,embedding_dim)"),
    "LayerNorm": (
        "normalized_shape eps elementwise_affine=True bias=True",
        "weight(normalized_shape)?elementwise_affine bias(normalized_shape)?elementwise_affine?bias",
    ),
    "RMSNorm": ("normalized_shape eps elementwise_affine=True", "weight(normalized_shape)?elementwise_affine"),
    "GroupNorm": ("num_groups num_channels eps affine=True", "weight(num_channels)?affine bias(num_channels)?affine"),
    **{f"BatchNorm{n}d": _BATCH for n in "123"},
    "SyncBatchNorm": _BATCH,
    **{f"InstanceNorm{n}d": _INSTANCE for n in "123"},
    **{f"Conv{n}d": _CONVOLUTION for n in "123"},
    **{f"ConvTranspose{n}d": _TRANSPOSED for n in "123"},
    "LSTM": (
        "input_size hidden_size num_layers bias=True batch_first dropout bidirectional=False proj_size=0",
        f"{_STACKED}weight_hr_l*(proj_size,hidden_size)?proj_size "
        "weight_hr_l*_reverse(proj_size,hidden_size)?proj_size?bidirectional",
    ),
    "GRU": ("input_size hidden_size num_layers bias=True batch_first dropout bidirectional=False", _STACKED),
    "RNN": (
        "input_size hidden_size num_layers nonlinearity bias=True batch_first dropout bidirectional=False",
        _STACKED,
    ),
    **dict.fromkeys(("LSTMCell", "GRUCell", "RNNCell"), ("input_size hidden_size bias=True", _GATES.format("", ""))),
    "MultiheadAttention": (
        "embed_dim num_heads dropout bias=True add_bias_kv=False add_zero_attn kdim=None vdim=None",
        "in_proj_weight(3*embed_dim,embed_dim)?kdim==embed_dim "
        + "".join(f"{name}_proj_weight(embed_dim)?kdim!=embed_dim " for name in "qkv")
        + "in_proj_bias(3*embed_dim)?bias bias_k(1,1,embed_dim)?add_bias_kv bias_v(1,1,embed_dim)?add_bias_kv "
        "out_proj.weight(embed_dim,embed_dim) out_proj.bias(embed_dim)?bias",
    ),
    "PReLU": ("num_parameters=1 init", "weight(num_parameters)"),
}
"""Layer -> its parameters, those that decide with their defaults; and its tensors with their sizes, behind `?` the parameters on
which it depends whether the layer has them.
"""
_TENSOR = re.compile(r"([\w.*]+)\(([^)]*)\)(\S*)")


def _tensors(described: str, of: Bound) -> Iterator[tuple[str, tuple[Shape, bool | None]]]:
    for name, sizes, conditions in _TENSOR.findall(described):
        known = [_holds(one, of) for one in conditions.split("?")[1:]]
        shape = sizes_shape(*(_size(one, of) for one in sizes.split(",") if one))
        yield name, (shape, False if False in known else None if None in known else True)


def _holds(condition: str, of: Bound) -> bool | None:
    """Whether a parameter is true, or with `!=` and `==` whether it is given and another one's value is not the same."""
    word, test, other = condition.partition("!=") if "!=" in condition else condition.partition("==")
    known = truth(of[word])
    return known if known is None or not test else (of[word].text in ("None", of[other].text)) == (test == "==")


def _size(text: str, of: Bound) -> Value:
    """A size: a parameter, a number, or two of them with a sign between."""
    words = re.split(r"(\*|//)", text)
    one, *rest = (of[word] if word in of else Expression(word, int(word)) for word in words[::2])
    if not rest or rest[0].text == "1":
        return one
    compute = operator.mul if words[1] == "*" else operator.floordiv
    return Expression(f"{one.text} {words[1]} {rest[0].text}", computed(compute, plain(one), plain(rest[0])))


_WITHOUT = re.compile(
    r"(Adaptive)?(Avg|Max)Pool[123]d|MaxUnpool2d|(Alpha)?Dropout[123]?d?|(Constant|Zero|Reflection|Replication)Pad[123]d"
    r"|Upsample|Upsampling(Bilinear|Nearest)2d|PixelShuffle|PixelUnshuffle|Fold|Unfold|Flatten|Unflatten|Identity"
    r"|CELU|ELU|GELU|GLU|Hard(sigmoid|swish|tanh)|LeakyReLU|LogSigmoid|LogSoftmax|Mish|ReLU6?|SELU|SiLU|Sigmoid"
    r"|Softmax(2d)?|Softplus|Softsign|Tanh|Threshold|CosineSimilarity|\w+Loss"
)
"""Layers without tensors."""


def layer(name: str, arguments: Sequence[Value], named: Bound) -> Layer | None:
    """The layer of `torch.nn` that a call makes; None for one that the table does not have."""
    short = name.removeprefix("torch.nn.").removeprefix("modules.")
    if _WITHOUT.fullmatch(short):
        return Layer(name, {})
    if short not in _TABLE:
        return None
    parameters, tensors = _TABLE[short]
    bound: dict[str, Value] = {}
    kept: dict[str, Value] = {}
    for position, parameter in enumerate(parameters.split()):
        word, _, default = parameter.partition("=")
        constant = {"True": True, "False": False, "None": None, "0": 0, "1": 1}.get(default)
        given = arguments[position] if position < len(arguments) else named.get(word)
        bound[word] = given if given is not None else Expression(default or "default", constant)
        if given is not None and word not in ("bias", "device", "dtype"):  # `layer.bias` is a tensor
            kept[word] = given
    return Layer(name, dict(_tensors(tensors, bound)), kept)


def of_layer(layer: Layer, name: str) -> Value | None:
    """The attribute of a layer; None where it is not known."""
    if name in layer.given or name in layer.modules:
        return layer.modules.get(name, layer.given.get(name))
    shape, present = layer.tensors.get(name, (Shape(""), False))
    if present:
        return HeldTensor(shape, True)
    names = (one for one, _, _ in _TENSOR.findall(_TABLE.get(layer.text[9:], ("", ""))[1]))
    return NONE if present is False and name in names else None


def weight_normed(value: Layer, old: bool) -> Layer:
    """A layer after `weight_norm` of `torch.nn.utils`, in its old form or as a parametrization."""
    names = (
        ("weight_g", "weight_v") if old else ("parametrizations.weight.original0", "parametrizations.weight.original1")
    )
    tensors = {name: one for name, one in value.tensors.items() if name != "weight"}
    return replace(
        value, tensors={**tensors, **{name: value.tensors.get("weight", (Shape("?"), True)) for name in names}}
    )


def tensor_shape(name: str, arguments: Sequence[Value], named: Bound) -> Shape | None:
    """The shape of the tensor that a function of torch makes; None for a function that is not known to say it."""
    if name in FILLED and (arguments or "size" in named):
        return sizes_shape(*([named["size"]] if "size" in named else arguments))
    return sizes_shape(arguments[0]) if name in SHAPED_FIRST and arguments else None


def held(value: Value, *, persistent: bool | None) -> HeldTensor:
    """A tensor as a module holds it."""
    return HeldTensor(value.shape if isinstance(value, HeldTensor) else Shape(value.text), persistent)


MODULE = "torch.nn.Module"
HELD = ("_modules", "_parameters", "_buffers")
"""The dicts of a module in which torch keeps what it holds."""
_KNOWN_LAYERS = frozenset({"Linear", "Embedding", "LayerNorm", "GroupNorm", *(f"{a}{n}d" for a in ("BatchNorm", "Conv", "ConvTranspose") for n in "123")})  # fmt: skip
"""Layers of `torch.nn` which are no bases of others."""


def held_modules(module: Value) -> Mapping[str, Value] | None:
    """The modules that a module holds, by name; None where that is not known."""
    if isinstance(module, Layer) or plain(module) is None:
        return module.modules if isinstance(module, Layer) else {}
    if isinstance(module, Either):
        return _held_by_one(module.options)
    if isinstance(module, Items) and module.is_module:
        return dict(module.items)
    if not isinstance(module, ObjectValue) or not module.is_module:
        return None
    own_parts(module)
    held = {name: [one.value for one in slots if is_module(one.value)] for name, slots in module.slots.items()}
    return {name: functools.reduce(either, found) for name, found in held.items() if found}


def _held_by_one(options: Sequence[Value]) -> Mapping[str, Value] | None:
    found: dict[str, Value] = {}
    for held in map(held_modules, options):
        if held is None:
            return None
        found |= {name: either(found[name], one) if name in found else one for name, one in held.items()}
    return found


def own_parts(module: ObjectValue) -> None:
    """Give a module parts of its own, where others that were made alike hold the same: whoever asks for one may change it."""
    if not module.has_shared_parts:
        return
    module.has_shared_parts = False
    copies: dict[int, Value] = {}

    def own(value: Value) -> Value:
        if id(value) not in copies:
            copies[id(value)] = value if id(value) in module.given else copied(value)
        return copies[id(value)]

    def copied(value: Value) -> Value:
        if isinstance(value, ObjectValue) and value.is_module:
            return value.alike()
        if isinstance(value, Items):
            return replace(value, items=[(name, own(one)) for name, one in value.items])
        if isinstance(value, Either):
            return replace(value, options=tuple(map(own, value.options)))
        if isinstance(value, Layer):
            modules = {name: own(one) for name, one in value.modules.items()}
            return replace(value, tensors=dict(value.tensors), modules=modules)
        return value

    for name, slots in module.slots.items():
        module.slots[name] = [one._replace(value=own(one.value)) for one in slots]
    for name, value in module.attributes.items():
        module.attributes[name] = own(value)


LEAVE_MODULES = frozenset((
    "_register_load_state_dict_pre_hook", "bfloat16", "buffers", "children", "compile", "cpu", "cuda", "double",
    "eval", "extra_repr", "float", "forward", "get_buffer", "get_extra_state", "get_parameter", "half", "items",
    "keys", "load_state_dict", "modules", "named_buffers", "named_children", "named_modules",
    "named_parameters", "parameters", "register_forward_hook", "register_forward_pre_hook",
    "register_full_backward_hook", "register_full_backward_pre_hook", "register_load_state_dict_post_hook",
    "register_load_state_dict_pre_hook", "requires_grad_", "reset_parameters", "share_memory", "state_dict",
    "to", "to_empty", "train", "type", "values", "zero_grad"
))  # fmt: skip
"""Methods of modules of torch that leave what they hold under its names."""


def call_on_tree(module: Value, method: str) -> Value | None:
    """`named_children()`, `children()`, `named_modules()` and `modules()`, as a list of pairs or of modules."""
    found = held_modules(module) if method in _WALKS else None
    if found is None:
        return None
    if method.endswith("modules"):
        found = {"": module, **dict(_below(module, ""))}
    return pairs_of(found.items()) if method.startswith("named") else sequence(found.values())


_WALKS = ("named_children", "children", "named_modules", "modules")


def _below(module: Value, prefix: str) -> Iterator[tuple[str, Value]]:
    for name, one in (held_modules(module) or {}).items():
        yield prefix + name, one
        yield from _below(one, f"{prefix}{name}.")


def submodule(module: Value, path: object) -> Value | None:
    """`get_submodule(path)`; None where that is not known."""
    for name in path.split(".") if isinstance(path, str) else (UNKNOWN,):
        held = held_modules(module) or {}
        is_number = isinstance(module, Items) and (name.isdigit() or name == UNKNOWN)
        if name not in held and not (is_number and held):
            return None
        module = held[name] if name in held else functools.reduce(either, held.values())  # of a loop followed once
    return module


def may_be_module(owner: Value, name: str, text: str, place: CodePlace) -> None:
    """Note that something has been held by an attribute of a module of which the text does not tell what it is."""
    if isinstance(owner, ObjectValue) and owner.is_module:
        owner.slots[name] = [Slot(Expression(text, may_be_module=True), place, False)]


def may_hold_anything(module: Value, text: str) -> None:
    """Note that code which is not followed, with these words, was given a module."""
    unknown = Expression(text, may_be_module=True)
    if isinstance(module, Either):
        for one in module.options:
            may_hold_anything(one, text)
    elif isinstance(module, ObjectValue) and module.is_module:
        module.slots[UNKNOWN] = [Slot(unknown, module.cls.place(), False)]
    elif isinstance(module, Items) and module.is_module:
        module.put([*(item for item in module.items if item[0] != UNKNOWN), (UNKNOWN, unknown)])
    elif isinstance(module, Layer):
        module.tensors[UNKNOWN] = Shape(text), None


def exchange(holder: Value, name: str, value: Value, *, is_certain: bool) -> bool:
    """`holder._modules[name] = value` for a list of modules; whether it is one."""
    if not isinstance(holder, Items) or not holder.is_module:
        return False
    holder.put(
        (one, held if one != name else value if is_certain else either(held, value)) for one, held in holder.items
    )
    return True


def is_instance(value: Value, wanted: Value) -> bool | None:
    """Whether a module is an object of a class, or of one of several; None where that is not known."""
    if isinstance(wanted, Items):
        answers = {is_instance(value, one) for _, one in wanted.items}
        return True if True in answers else None if None in answers or not answers else False
    if isinstance(value, Either):
        answers = {is_instance(one, wanted) for one in value.options}
        return answers.pop() if len(answers) == 1 else None
    if not is_module(value) or not isinstance(wanted, (External, ClassValue)):
        return None
    if isinstance(wanted, External) and wanted.name == MODULE:
        return True
    if isinstance(value, ObjectValue):
        if any(one is wanted or (isinstance(wanted, External) and one.text == wanted.name) for one in value.ancestors):
            return True
        outer = [one for one in value.ancestors if isinstance(one, External)]
        return False if all(one.name == MODULE for one in outer) else None
    if isinstance(wanted, ClassValue):
        return False
    kind = value.text if isinstance(value, Layer) else ""
    if kind == wanted.name:
        return True
    is_known = isinstance(value, Items) or kind[9:] in _TABLE or _WITHOUT.fullmatch(kind[9:])
    return False if is_known and wanted.name[9:] in _KNOWN_LAYERS else None
