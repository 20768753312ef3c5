"""The store with which the ranks of a session find each other."""

from __future__ import annotations

import socket

from modular_converter.parallel.engine.ranks.protocol import LOOPBACK
from modular_converter.parallel.errors import RankError
from modular_converter.parallel.torch_private import TCPStore


def local_store(port: int | None) -> TCPStore:
    """A store that only this machine can reach. torch's own listens on all interfaces, without a password.

    Raises ``RankError`` if the port is not free or not valid.
    """
    listening = socket.socket()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((LOOPBACK, port or 0))
        listening.listen(128)
        listening.setblocking(False)
        found, descriptor = listening.getsockname()[1], listening.detach()  # the store closes it
        return TCPStore(LOOPBACK, found, is_master=True, wait_for_workers=False, master_listen_fd=descriptor)
    except (OSError, OverflowError, RuntimeError) as error:
        listening.close()
        raise RankError(f"master_port={port} cannot be used; leave it out: {error}") from error
