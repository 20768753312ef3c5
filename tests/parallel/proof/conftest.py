"""Processes of verifications that are started once for all commands of the tests here: each start takes seconds."""

from __future__ import annotations

import contextlib

import pytest


@pytest.fixture(scope="session")
def _pool():
    from modular_converter.parallel.proof.on_processes import RankPool

    with RankPool(2) as pool:
        yield pool


@pytest.fixture
def one_pool(_pool, monkeypatch):
    """The commands take two ranks that run already."""
    from modular_converter.parallel.proof import on_processes

    monkeypatch.setattr(on_processes, "RankPool", lambda size: contextlib.nullcontext(_pool))
