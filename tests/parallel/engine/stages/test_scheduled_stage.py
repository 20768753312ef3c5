"""What a stage notes of its actions, and of its errors."""

from types import SimpleNamespace

import pytest
import torch

from modular_converter.parallel.engine.stages.in_layout import PipelineInLayout
from modular_converter.parallel.engine.stages.scheduled_stage import ActionClock, FirstError
from modular_converter.parallel.errors import ApplyError


def test_the_clock_notes_actions_while_it_is_on():
    clock = ActionClock(torch.device("cpu"))
    with clock.action("F", 0, 0):
        pass
    with clock.on():
        for chunk in range(2):
            with clock.action("F", 1, chunk):
                torch.ones(100).sum()
    with clock.action("B", 1, 0):
        pass
    first, second = clock.timed()
    values = (
        [getattr(first, name) for name in ("start", "end")] if hasattr(first, "start") else [*vars(first).values()][1:]
    )
    assert 0 <= values[0] <= values[1] < 60 and len(clock.timed()) == 2 and second != first
    with clock.on():
        pass
    assert clock.timed() == ()


def test_the_first_error_ends_the_work_of_a_process_that_has_its_stages_alone():
    errors = FirstError(True)
    assert not errors.ends_work
    for text in ("first", "second"):
        errors.note(ValueError(text))
    assert errors.ends_work and str(errors.error) == "first"
    with pytest.raises(ValueError, match="of several"):
        FirstError(False).note(ValueError("of several"))


def test_a_model_of_another_library_is_not_saved_as_one_of_transformers():
    with pytest.raises(ApplyError, match=r"^Linear is not saved as models of transformers are"):
        PipelineInLayout.save_pretrained(SimpleNamespace(_shapes=torch.nn.Linear(1, 1)), "folder")
