"""The work of the processes of `test_broken_off.py` under torchrun; the first one prints its results as JSON.

Each use is Python that runs on a whole model in double precision, and on its shares in a layout.
"""

from __future__ import annotations

import copy
import json
import sys
from typing import Any

import pytest
import torch
import torch.distributed as dist

from modular_converter.parallel import parallelize
from modular_converter.parallel.errors import ApplyError, one_line
from tests.parallel.own_models import PlainNet


IDS = torch.arange(1, 37).view(4, 9)
BROKEN = {
    "forward": "attempt(lambda: m(ids, nonsense=1))",
    "layer in a forward": "hook = last.register_forward_hook(boom)\nattempt(lambda: m(ids))\nhook.remove()",
    "backward": (
        "hook = norm.register_forward_hook(lambda s, a, result: result.register_hook(boom) and None)\n"
        "broken = loss()\nhook.remove()\nattempt(broken.backward)"
    ),
    "layer alone": "attempt(lambda: norm(None))\nhook = layer.register_forward_hook(boom)\n"
    "attempt(lambda: layer(torch.ones(2, 9, m.embed.embedding_dim).double()))\nhook.remove()",
}
AFTER = {
    "zero_grad": "m.zero_grad(); loss().backward(); optimizer.step()",
    "new optimizer": "m.zero_grad(); optimizer = torch.optim.SGD(m.parameters(), 1.0); loss().backward(); optimizer.step()",
    "two backwards": "m.zero_grad(); loss().backward(); loss().backward(); optimizer.step()",
    "loaded": "load({name: value * 0.5 for name, value in state().items()})",
}
USES = {
    f"{name}, then {after}": f"loss().backward()\n{broken}\n{code}"
    for name, broken in BROKEN.items()
    for after, code in AFTER.items()
} | {
    "another loss waits": f"waits = loss()\n{BROKEN['forward']}\nwaits.backward(); optimizer.step()",
    "second step behind a loss": "for _ in range(3):\n    loss().backward(); loss(); optimizer.step(); m.zero_grad()",
    "written behind a loss": "loss()\nwith torch.no_grad():\n    [one.mul_(0.5) for one in m.parameters()]",
    "data written behind a loss": "loss()\n[one.data.mul_(0.5) for one in m.parameters()]",
    "data kept and written": "kept = [one.data for one in m.parameters()]\nloss(); loss()\n[one.mul_(0.5) for one in kept]",
    "a write that one process sees": (
        "weights = list(m.parameters())\nloss()\n"
        "if torch.distributed.get_rank() == 0:\n    with torch.no_grad():\n        weights[-1].mul_(1.0)"
    ),
    "step, then zero_grad in place": (
        f"loss().backward()\n{BROKEN['backward']}\nrefused()\noptimizer.zero_grad(set_to_none=False); loss().backward(); optimizer.step()"
    ),
    "step of no gradients": f"{BROKEN['backward']}\nrefused()\nm.zero_grad(); loss().backward(); optimizer.step()",
}


def boom(*args: Any) -> None:
    raise ZeroDivisionError


def run(code: str, model: Any, ids: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The last forward of all rows, and the whole weights."""
    caught = []

    def attempt(call: Any) -> None:
        try:
            call()
        except Exception as error:
            caught.append(error)

    whole = not hasattr(model, "full_state_dict")

    def refused() -> None:
        if not whole:
            with pytest.raises(ApplyError, match="of a backward that an exception has ended"):
                scope["optimizer"].step()

    state, load = (
        (model.state_dict, model.load_state_dict) if whole else (model.full_state_dict, model.load_full_state_dict)
    )
    layer = model.layers[0]
    scope = {
        "m": model, "ids": ids, "torch": torch, "attempt": attempt, "boom": boom, "layer": layer, "norm": layer.norm,
        "last": list(model.modules())[-1], "loss": lambda: model(ids).pow(2).mean(), "state": state, "load": load,
        "refused": refused, "optimizer": torch.optim.SGD(model.parameters(), 1.0, momentum=0.5),
    }  # fmt: skip
    exec(code, scope)
    assert len(caught) == code.count("attempt("), code
    return model(IDS).detach(), state()


class BrokenOnDisk(PlainNet):
    """Its own code, which the first process alone runs, fails."""

    def save_pretrained(self, folder: str, state_dict: Any = None, is_main_process: bool = True) -> None:
        raise KeyError(folder)


def saves(layout: str) -> list[list[str]]:
    """What processes are told that save models which cannot be saved, or of which the first one fails."""
    found = []
    for kind in (PlainNet, BrokenOnDisk):
        torch.manual_seed(0)
        model = parallelize(kind(), layout=layout, device="cpu", example_inputs={"ids": IDS}, probe=False)
        texts: list[Any] = [""] * dist.get_world_size()
        try:
            model.save_pretrained("somewhere")
            own = "saved"
        except Exception as error:
            own = one_line(error)
        dist.all_gather_object(texts, own)
        found.append(texts)
    return found


def main(layout: str) -> None:
    """Compare each use in a layout."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    whole = PlainNet().double()
    with torch.no_grad():
        for one in whole.parameters():
            one.add_(torch.randn_like(one) * 0.05)
    errors = {}
    for name, code in USES.items():
        one = copy.deepcopy(whole)
        shared = parallelize(
            copy.deepcopy(whole), layout=layout, device="cpu", example_inputs={"ids": IDS}, probe=False
        )
        ids = IDS.chunk(shared.layout.data)[shared.data_rank]
        (wanted, weights), (got, shares) = run(code, one, IDS), run(code, shared, ids)
        pairs = [(wanted, got), *((weights[key], shares[key]) for key in weights)]
        errors[name] = max(float((a - b).abs().max() / a.abs().max()) for a, b in pairs)
    told = saves(layout)
    if dist.get_rank() == 0:
        print(json.dumps({"errors": errors, "saves": told}))
    dist.destroy_process_group()


main(*sys.argv[1:])
