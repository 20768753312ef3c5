"""Code of a model's classes that was changed is found; what a library keeps in a class is not."""

import torch

from modular_converter.parallel.engine.base import watched_code
from modular_converter.parallel.engine.base.watched_code import CodeFacts, WatchedCode, take_over


SCALE = 2.0


class Scaled(torch.nn.Module):
    kept = 1
    limit = 3

    def forward(self, x):
        return x * SCALE if self.limit else x


def watched():
    return WatchedCode(torch.nn.Sequential(Scaled(), torch.nn.Linear(2, 2)))


def test_a_changed_member_and_a_changed_global_are_found(monkeypatch):
    code = watched()
    assert code.changed() == "" and not code.unsent
    with monkeypatch.context() as patch:
        patch.setattr(Scaled, "limit", 4)
        assert code.changed().endswith("Scaled.limit" + watched_code._in_words(3, 4))
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "SCALE", 3.0)
        assert "SCALE" in code.changed()
    with monkeypatch.context() as patch:
        patch.setattr(Scaled, "forward", lambda self, x: x)
        assert code.changed().endswith("Scaled.forward")
    with monkeypatch.context() as patch:
        patch.setattr(torch.nn.Linear, "forward", lambda self, x: x)
        assert code.changed() == "torch's Linear.forward"
    assert code.changed() == ""


def test_a_new_plain_attribute_that_no_method_reads_is_unsent(monkeypatch):
    code = watched()
    with monkeypatch.context() as patch:
        patch.setattr(Scaled, "answer", 5, raising=False)
        assert code.changed() == "" and code.unsent
    assert code.changed() == ""
    patch.setattr(Scaled, "SCALE", 5, raising=False)
    try:
        assert code.changed().endswith("Scaled.SCALE" + watched_code._in_words(None, 5))
    finally:
        patch.undo()


def test_plain_values_are_taken_over_and_other_functions_named(monkeypatch):
    facts = watched().facts()
    here = (__name__, "Scaled")
    assert facts.values[(*here, "limit")] == 3 and (*here, "forward") in facts.code
    assert take_over(facts) == [] and not any("__doc__" in where or "__module__" in where for where in facts.values)
    monkeypatch.setattr(Scaled, "limit", 7)
    monkeypatch.setattr(Scaled, "forward", lambda self, x: -x)
    assert take_over(facts) == [f"{__name__}.Scaled.forward"] and Scaled.limit == 3
    elsewhere = CodeFacts()
    elsewhere.values["no_such_module_of_mine", "Scaled", "limit"] = 1
    elsewhere.code["no_such_module_of_mine", "", "f"] = next(iter(facts.code.values()))
    elsewhere.code[__name__, "NoSuchClass", "f"] = next(iter(facts.code.values()))
    assert take_over(elsewhere) == []
