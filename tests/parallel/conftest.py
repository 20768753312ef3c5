"""Ranks that are started once for all tests which only need some: importing torch and transformers takes seconds."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def _import_path(monkeypatch):
    """Reading a model file puts its folder into `sys.path`, where later tests would find it."""
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture(scope="session")
def ranks():
    """Two CPU ranks."""
    pytest.importorskip("transformers")
    from modular_converter.parallel.ranks.session import Session

    with Session(("cpu", "cpu"), init_method="forkserver", limit_s=120.0) as session:
        session.start()
        yield session


@pytest.fixture
def nothing_kept(tmp_path, monkeypatch):
    """No answer of another test is kept: for tests that put something else in the place of a part of the proof."""
    monkeypatch.setenv("MODULAR_CONVERTER_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def alone():
    """A group of this process alone."""
    dist = pytest.importorskip("torch.distributed")
    if dist.is_initialized():
        pytest.skip("another group is there already")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
