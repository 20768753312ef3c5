"""The caller's random state goes to the ranks with every call, and comes back if the call has drawn numbers.

States are sent as bytes: a tensor would be moved to the receiver's device and back.
"""

from __future__ import annotations

import torch


# The states of the CPU and of the current GPU (None if this process uses no GPU), and the seed.
States = tuple[bytes, bytes | None, int]


def random_states() -> States:
    """The states of the caller's process."""
    cuda = _bytes(torch.cuda.get_rng_state()) if _cuda_is_used() else None
    return _bytes(torch.get_rng_state()), cuda, torch.initial_seed()


def set_random_states(cpu: bytes, cuda: bytes | None) -> None:
    """Give the caller the states that a rank has after a call."""
    torch.set_rng_state(_tensor(cpu))
    if cuda is not None and _cuda_is_used():
        torch.cuda.set_rng_state(_tensor(cuda))


def adopt(states: States, device: torch.device) -> None:
    """Give a rank the caller's states; on a GPU without a state of the caller, the caller's seed if it has changed."""
    cpu, cuda, seed = states
    torch.set_rng_state(_tensor(cpu))
    if device.type == "cuda" and cuda is not None:
        torch.cuda.set_rng_state(_tensor(cuda), device)
    elif device.type == "cuda" and seed != torch.cuda.initial_seed():
        torch.cuda.manual_seed(seed)


def changed_since(states: States, device: torch.device) -> tuple[bytes, bytes | None] | None:
    """A rank's states after a call that began with ``states``; None if the caller's states would be the same."""
    cpu, cuda, _ = states
    after = _bytes(torch.get_rng_state())
    after_cuda = None if cuda is None or device.type == "cpu" else _bytes(torch.cuda.get_rng_state(device))
    return None if after == cpu and after_cuda in (None, cuda) else (after, after_cuda)


def _cuda_is_used() -> bool:
    return torch.cuda.is_available() and bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _bytes(state: torch.Tensor) -> bytes:
    found: bytes = state.cpu().numpy().tobytes()
    return found


def _tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
