"""Ranks that are started once for all tests which only need some: importing torch and transformers takes seconds."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def ranks():
    """Two CPU ranks."""
    pytest.importorskip("transformers")
    from modular_converter.parallel.engine.ranks.session import Session

    with Session(("cpu", "cpu"), init_method="forkserver", limit_s=120.0) as session:
        session.start()
        yield session
