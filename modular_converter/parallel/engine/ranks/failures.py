"""Find errors in the ranks' answers: an error of the caller, or ranks that no longer agree."""

from __future__ import annotations

import pickle
from typing import Any

from modular_converter.parallel.engine.ranks.processes import Lost, Rank
from modular_converter.parallel.engine.ranks.protocol import FAILURE, FATAL, UNSENT


class RemoteError(Exception):
    """An error that all ranks raised alike, with a rank's traceback.

    Attributes:
        error: the exception itself, if it could be pickled.
        about: kind of the message that raised the error, and the number of its model if there is one.
    """

    def __init__(self, error: Exception | None, text: str, about: tuple[Any, ...] = ()) -> None:
        super().__init__(text)
        self.error, self.about = error, about


def error_in(raw: list[bytes], ranks: list[Rank], about: tuple[Any, ...]) -> RemoteError | None:
    """The error that all ranks raised, which is the caller's own; None if there is no error.

    Raises ``Lost`` if only some ranks raised an error, or in different places, so that they can no longer agree.
    """
    failed = [number for number, data in enumerate(raw) if data[:1] in (FAILURE, FATAL, UNSENT)]
    if not failed:
        return None
    for rank in ranks:
        rank.reader.expected.clear()
    first = min(failed, key=lambda number: (raw[number][:1] != FATAL, raw[number][:1] != FAILURE, number))
    text, error = pickle.loads(raw[first][1:])
    if raw[first][:1] == FATAL:
        said = str(error or "").partition("\n")[0] or "an error of the device"
        raise Lost(said, f"rank {first} cannot go on; all ranks were ended: {said}\n{text}")
    if len(failed) < len(raw) and raw[first][:1] == FAILURE:
        raise Lost(f"rank {first} failed alone", f"rank {first} failed alone; all ranks were ended:\n{text}")
    if (
        len({rank.progress.met for rank in ranks}) > 1
    ):  # a collective that a rank has begun would match one of the next call
        raise Lost(
            "the ranks failed in different places", f"the ranks failed in different places; rank {first}:\n{text}"
        )
    return RemoteError(error, f"on rank {first}:\n{text}", about)
