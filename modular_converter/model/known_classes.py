"""The attributes of classes of other libraries that the converter knows without reading them."""

from __future__ import annotations

import abc
import builtins
import collections
import enum


# Of torch 2.13. `forward` is left out: there it only says that the heir has to define it.
_OF_MODULE = """
    T_destination __call__ __delattr__ __dir__ __getattr__ __getstate__ __init__ __repr__ __setattr__
    __setstate__ _apply _backward_hooks _backward_pre_hooks _buffers _call_impl _compiled_call_impl
    _forward_hooks _forward_hooks_always_called _forward_hooks_with_kwargs _forward_pre_hooks
    _forward_pre_hooks_with_kwargs _get_backward_hooks _get_backward_pre_hooks _get_name _is_full_backward_hook
    _load_from_state_dict _load_state_dict_post_hooks _load_state_dict_pre_hooks
    _maybe_warn_non_full_backward_hook _modules _named_members _non_persistent_buffers_set _parameters
    _register_load_state_dict_pre_hook _register_state_dict_hook _replicate_for_data_parallel
    _save_to_state_dict _slow_forward _state_dict_hooks _state_dict_pre_hooks _version _wrapped_call_impl
    add_module apply bfloat16 buffers call_super_init children compile cpu cuda double dump_patches eval
    extra_repr float get_buffer get_extra_state get_parameter get_submodule half ipu load_state_dict modules
    mtia named_buffers named_children named_modules named_parameters parameters register_backward_hook
    register_buffer register_forward_hook register_forward_pre_hook register_full_backward_hook
    register_full_backward_pre_hook register_load_state_dict_post_hook register_load_state_dict_pre_hook
    register_module register_parameter register_state_dict_post_hook register_state_dict_pre_hook requires_grad_
    set_extra_state set_submodule share_memory state_dict to to_empty train training type xpu zero_grad
"""

_KNOWN = {"torch.nn.Module": frozenset(_OF_MODULE.split()), "typing.Generic": frozenset[str]()}

_STANDARD = {module.__name__: module for module in (abc, builtins, collections, enum)}
"""The modules whose classes are looked at. None of protocols: each name that one binds is asked of what is to conform."""


def attributes_of_known_class(path: str) -> frozenset[str] | None:
    """What a class and its ancestors but `object` bind; None for an unknown one. `path` is dotted, of a built-in class its name."""
    if path == "typing.NamedTuple":
        return frozenset({*dir(collections.namedtuple("_", ""))})
    module, _, name = path.rpartition(".")
    found = getattr(_STANDARD.get(module or "builtins"), name, None)
    if isinstance(found, type):
        return frozenset[str]().union(*(vars(one) for one in found.__mro__ if one is not object))
    return _KNOWN.get(path)
