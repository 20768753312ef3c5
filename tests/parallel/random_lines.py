"""Random lines of code on a model: calls, settings, modes, reads, writes and saves."""

from __future__ import annotations

import random
from typing import Any

import torch

from modular_converter.parallel.engine.base.call_state import settings_of
from modular_converter.parallel.engine.remote.caller_state import configs_in
from modular_converter.parallel.modules import is_plain


MACHINERY = frozenset(vars(torch.nn.Module())) - {"training"}
_NUMBERS = (int, float, bool)


class Lines:
    """The lines that fit a subject; modules, attributes and configuration are found, none is known by name."""

    def __init__(self, subject: Any, choice: random.Random) -> None:
        self.subject, self.choice, self.model = subject, choice, subject.model
        modules = dict(self.model.named_modules())
        self.paths = [path for path in modules if path]
        self.attributes = [
            (path, name, value)
            for path, module in modules.items()
            for name, value in vars(module).items()
            if name not in MACHINERY and not name.startswith("_") and (path, name) not in subject.stored
        ]
        self.buffers = [
            (p, n, b) for p, module in modules.items() for n, b in module._buffers.items() if b is not None
        ]
        self.weights = [name for name, _ in self.model.named_parameters()]
        self.dropouts = [path for path, module in modules.items() if isinstance(module, torch.nn.Dropout)]
        self.lists = [
            path for path, module in modules.items() if isinstance(module, torch.nn.ModuleList) and len(module) > 1
        ]
        self.settings = [
            (where, name, value)
            for where, config in named_configs(self.model)
            for name, value in vars(config).items()
            if is_plain(value) and not name.startswith("_") and value.__class__ in (*_NUMBERS, str, type(None))
        ]

    def sequence(self, number: int) -> list[str]:
        kinds = [self.call] * 6 + [self.setting] * 5 + [self.read] * 3 + [self.switch] * 2 + [self.configured] * 2
        kinds += [self.hooked, self.written, self.saved, self.odd]
        lines = [line for _ in range(number) if (line := self.choice.choice(kinds)())]
        return [*lines, self.call(), "out = m(**x)"]

    def one(self, *forms: str) -> str:
        return self.choice.choice(forms)

    def call(self) -> str:
        inputs, path = self.one("x", "x", "y", "z"), self.choice.choice(self.paths)
        call = self.one(
            f"m(**{inputs})",
            f"m(**{inputs})",
            f"m.forward(**{inputs})",
            f"m(**{inputs}, output_hidden_states=True)",
            f"m(**{inputs}, output_attentions=True)",
            f"m(**{inputs}, return_dict=False)[0]",
            f"m(**{inputs}, use_cache=False)",
            "m(**x, labels=ids)",
            # lengths and texts that a server passes on
            "m.generate(ids[:, :0], max_new_tokens=2)",
            f"m.generate(ids, max_new_tokens={self.one('0', '-3', 'None', '1.5')})",
            "m.generate(ids[:0], max_new_tokens=2)",
            "m.generate([[1, 2, 3]], max_new_tokens=2)",
            "m(**{key: value[:0] for key, value in x.items()})",
            "m.generate(ids, max_new_tokens=3)",
            "m.generate(ids, max_new_tokens=3, do_sample=True)",
            "m.generate(ids, max_new_tokens=3, num_beams=2)",
            "m.generate(ids, max_new_tokens=2, output_scores=True, return_dict_in_generate=True)",
            "m(input_ids=ids[:, -1:], past_key_values=m(**x, use_cache=True).past_key_values)[0]",
            f"at('{path}')(*given['{path}'][0], **given['{path}'][1])",
            f"at('{path}').forward(*given['{path}'][0], **given['{path}'][1])",
            f"threaded(lambda: m(**{inputs}))",
            f"[m(**{inputs})[0] if isinstance(m(**z), tuple) else m(**{inputs}) for _ in range(2)]",
        )
        mode = "" if "generate" in call else self.one(
            "", "", "", "", "", "with torch.autocast('cpu', dtype=torch.bfloat16): ", "with torch.inference_mode(): ",
            "with torch.enable_grad(): ", "with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH): ",
            "with torch.random.fork_rng(): ", "with torch.device('cpu'): ",
        )  # fmt: skip
        return f"{mode}out = {call}"

    def setting(self) -> str:
        path, name, value = self.choice.choice(self.attributes) if self.attributes else ("", "note", 1.0)
        place = f"at('{path}')"
        if self.choice.random() < 0.25 and self.buffers:
            return self.buffer()
        if self.choice.random() < 0.2:
            return self.flag()
        if type(value) is bool:
            return f"{place}.{name} = {not value}"
        if isinstance(value, _NUMBERS):
            return f"{place}.{name} = {self.one(repr(value * 2), repr(value + 1), repr(value * 0.5), '0')}"
        if isinstance(value, dict) and value and (key := self.choice.choice(list(value))) and is_plain(key):
            return f"{place}.{name}[{key!r}] = {self.one('2.0', 'None')}"
        if isinstance(value, list):
            return f"{place}.{name}.append({self.one('3.0', '1')})"
        if value is None or isinstance(value, str):
            return f"{place}.{name} = {self.one('1.5', 'None', repr('relu'))}"
        return self.one(f"{place}.{name} = twice", f"{place}.note = [1, 'two']", f"del {place}.{name}")

    def flag(self) -> str:
        path = self.choice.choice(self.dropouts or self.paths)
        other = self.choice.choice(self.paths)
        return self.one(
            f"at('{other}').train()", f"at('{path}').train()", f"at('{other}').eval()", f"at('{path}').p = 0.5",
            "m.eval()", "m.train()", "m.requires_grad_(False)", f"at('{other}').requires_grad_(False)",
            f"at('{other}').training = True", "[one.train() for one in m.modules() if isinstance(one, nn.Dropout)]",
        )  # fmt: skip

    def buffer(self) -> str:
        path, name, value = self.choice.choice(self.buffers)
        place = f"at('{path}').{name}"
        if not value.is_floating_point():
            return self.one(f"{place}.add_(0)", f"{place} = {place}.clone()", f"{place}.fill_(1)")
        return self.one(
            f"{place}.mul_(1.5)", f"{place}.data.add_(0.25)", f"{place} = {place} + 0.5", f"{place}[0] = 2.0",
            f"{place}.data = {place} * 2", f"{place} = None", f"at('{path}').register_buffer('{name}', {place} * 3)",
            f"{place}.set_(({place} * 2).clone())", f"{place}.numpy()[...] *= 2", f"{place} = {place}.float()",
            f"{place}.view(-1)[:1].zero_()", f"del {place}",
        )  # fmt: skip

    def configured(self) -> str:
        if not self.settings:
            return self.setting()
        where, name, value = self.choice.choice(self.settings)
        if type(value) is bool:
            return f"m.{where}.{name} = {not value}"
        if isinstance(value, _NUMBERS):
            return f"m.{where}.{name} = {self.one(repr(value * 2), repr(value + 1), repr(value / 2))}"
        return f"m.{where}.{name} = {self.one('1', 'True', 'None', repr('relu'))}"

    def switch(self) -> str:
        constant = self.choice.choice(self.paths)
        return self.one(
            "torch.set_default_dtype(torch.float64)", "torch.use_deterministic_algorithms(True)",
            "torch.set_float32_matmul_precision('medium')", "torch.set_flush_denormal(True)",
            "torch.backends.cuda.enable_flash_sdp(False)", "torch.set_grad_enabled(False)",
            "F.gelu = twice", "F.silu = twice", "F.linear = twice", "nn.Linear.forward = lambda s, i: i * 2",
            "nn.modules.module.register_module_forward_hook(plus)",
            "nn.modules.module.register_module_forward_pre_hook(lambda s, a: tuple(i * 2 for i in a))",
            "torch.set_default_dtype(torch.bfloat16)", "torch.set_autocast_enabled('cpu', True)",
            f"type(at('{constant}')).note = 3.0",
            # as libraries wrap functions of torch, which keeps their names and `__wrapped__`
            "F.gelu = wrapping(F.gelu)", "F.linear = wrapping(F.linear)", "F.softmax = wrapping(F.softmax)",
            "nn.Linear.forward = wrapping(nn.Linear.forward)", "nn.Module.__call__ = wrapping(nn.Module.__call__)",
        )  # fmt: skip

    def read(self) -> str:
        weight, path = self.choice.choice(self.weights), self.choice.choice(self.paths)
        place, _, leaf = weight.rpartition(".")
        one = f"at('{place}').{leaf}"
        return "out = " + self.one(
            "sum(p.numel() for p in m.parameters())", f"{one}.norm()", f"{one}.shape[0], {one}.dtype, {one}.requires_grad",
            "m.num_parameters()", "m.num_parameters(exclude_embeddings=True)", "m.get_memory_footprint()", "str(m.dtype)",
            "m.state_dict()", f"at('{path}').state_dict()", "[b.clone() for b in m.buffers()]", f"{one}.data.abs().max()",
            f"copy.deepcopy({one})", f"copy.deepcopy(at('{path}'))", f"{one}[:1] * 2", f"repr(at('{path}'))",
            f"[n for n, _ in at('{path}').named_modules()]", "m.training", f"[q.training for q in at('{path}').modules()]",
            "nn.utils.parameters_to_vector(m.parameters()).sum()", f"{one}.tolist()", f"{one}.numpy().sum()",
            "torch.cat([p.flatten()[:2] for p in m.parameters()])", f"{one}.grad", f"{one}.T.contiguous()",
            f"isinstance(at('{path}'), nn.Linear)", "m.get_num_params()", "m.facts()['heads']", "m.largest", "m.summary()",
            "m.get_input_embeddings().weight[:2]", f"at('{path}').extra_repr()", "torch.rand(2)",
            f"F.linear(torch.ones(1, {one}.shape[-1], dtype={one}.dtype), {one})", f"{one}.untyped_storage().nbytes()",
            f"torch.equal({one}, {one})", "held_here(m)", f"{one} is at('{place}').{leaf}", f"id(at('{path}')) == id(at('{path}'))",
        )  # fmt: skip

    def hooked(self) -> str:
        path = self.choice.choice(self.paths)
        return self.one(
            "m.register_forward_hook(plus)", "m.register_forward_pre_hook(lambda s, a: None)",
            "m.register_forward_pre_hook(lambda s, a, k: (a, {**k, **y}), with_kwargs=True)",
            f"at('{path}').register_forward_hook(plus)", f"at('{path}')._forward_hooks[9] = plus",
            f"at('{path}').forward = twice", f"at('{path}').__class__.forward",
        )  # fmt: skip

    def written(self) -> str:
        place, _, leaf = self.choice.choice(self.weights).rpartition(".")
        one, path = f"at('{place}').{leaf}", self.choice.choice(self.paths)
        inside = self.choice.choice(self.lists) if self.lists else path
        return self.one(
            f"{one}.mul_(2)", f"{one}.data.mul_(2)", f"{one} = nn.Parameter({one} * 2)", f"{one}.data = {one} * 2",
            f"nn.init.zeros_({one})", f"{one}[0] = 1.0", f"{one}.detach().add_(1)", f"{one}.copy_({one} * 2)",
            f"at('{place}')._parameters['{leaf}'] = nn.Parameter({one} * 2)", f"del at('{place}').{leaf}",
            f"at('{path}').load_state_dict(at('{path}').state_dict())", "m.load_state_dict(m.state_dict())",
            f"at('{inside}').append(at('{inside}')[0])", f"del at('{inside}')[0]", f"at('{inside}')[0] = at('{inside}')[1]",
            f"at('{place}').add_module('more', nn.Linear(2, 2))", f"torch._foreach_mul_([{one}], 2.0)",
            f"{one}.numpy()[...] = 0", f"torch.add({one}, 1, out={one})", f"at('{place}').double()", f"{one}.set_({one} * 2)",
            f"torch.nn.utils.parametrizations.weight_norm(at('{place}'))",
            f"at('{path}').apply(lambda one: None)", f"at('{place}')._apply(lambda t: t * 2)", "m._modules.popitem()",
            f"{one}.requires_grad = False", f"at('{path}').to(torch.float32)",
            "m.tie_weights()", f"{one}.as_strided((1,), (1,)).zero_()",
        )  # fmt: skip

    def saved(self) -> str:
        return self.one(
            "m.save_pretrained(folder); out = reloaded(folder)",
            "m.save_pretrained(folder, max_shard_size='20KB'); out = reloaded(folder)",
            "torch.save(m.state_dict(), folder / 'w.pt'); out = torch.load(folder / 'w.pt')",
            "m.save_pretrained(folder / 'c', is_main_process=False); out = sorted(one.name for one in (folder / 'c').iterdir())",
            "m.save_pretrained(folder / 'a' / 'b'); out = reloaded(folder / 'a' / 'b')",
            "out = type(m).from_pretrained(m.save_pretrained(folder) or folder)(**x)",
            "m.config.save_pretrained(folder); out = (folder / 'config.json').read_text()",
            "out = copy.deepcopy(m)(**x)",
            "out = type(m)(m.config).load_state_dict(m.state_dict()).missing_keys",
        )

    def odd(self) -> str:
        path = self.choice.choice(self.paths)
        return self.one(
            "out = torch.func.functional_call(m, {k: v * 2 for k, v in m.named_parameters()}, (), x)",
            "out = torch.func.functional_call(m, {k: v * 2 for k, v in m.named_buffers()}, (), x)",
            f"out = torch.func.functional_call(at('{path}'), {{}}, *given['{path}'])",
            "out = nn.utils.clip_grad_norm_(m.parameters(), 1.0)",
            f"vars(at('{path}'))['note'] = 4", f"object.__setattr__(at('{path}'), 'training', True)",
            "out = type(m).__name__, m.__class__.__module__, isinstance(m, nn.Module)", "out = len(list(m.children()))",
            "m.zero_grad()", "m.gradient_checkpointing_enable()", "m.set_attn_implementation('eager')",
            "m.resize_token_embeddings(8)", f"m.set_submodule('{path}', nn.Identity())", f"m.{path} = nn.Identity()",
            "m.config = copy.deepcopy(m.config)", "m.config.update({'note': 1})", "m.generation_config.do_sample = True",
            "m.generation_config.max_new_tokens = 2", "m.compile()", "out = torch.jit.trace(m, (ids,))(ids)",
            "out = m(ids)", "out = m(ids + 10**6)", "out = m()", "out = m(**x, nothing=1)", "out = m(**x, seen=plus)",
        )  # fmt: skip


def named_configs(model: Any) -> list[tuple[str, Any]]:
    """Configurations with the attributes that lead to them."""
    found = []
    for name, config in vars(settings_of(model)).items():
        found.append((name, config))
        known = [value for value in configs_in([config]) if value is not config]
        found += [
            (f"{name}.{inner}", value) for inner, value in vars(config).items() if any(value is one for one in known)
        ]
    return found
