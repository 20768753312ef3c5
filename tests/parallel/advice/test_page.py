"""The page with pictures: it is whole, shows the figures, and takes nothing from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from modular_converter.parallel.advice.candidates import Advice, Question, advise
from modular_converter.parallel.advice.devices import cluster_of
from modular_converter.parallel.advice.report import (
    LABEL,
    VALUE,
    WIDTH,
    StackedBar,
    advice_page,
    bar_picture,
    fastest_in_stages,
    gib,
    line_to_run,
    recommendation,
)
from modular_converter.parallel.advice.step_time import timeline_of_stages
from modular_converter.parallel.advice.subject import ModelInQuestion, model_in_question
from modular_converter.parallel.costs import CountRequest


SMALL = {
    "hidden_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 200,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
}


class Tags(HTMLParser):
    """Checks that each element that is opened is closed, and collects attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "data", "action")]
        if tag not in ("meta", "rect", "path", "line"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("rect", "path", "line"):
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def advised(devices: str) -> tuple[ModelInQuestion, Advice]:
    subject = model_in_question(CountRequest("llama", SMALL, None, 1, 64))
    return subject, advise(subject, Question(cluster_of(devices), 8))


@pytest.mark.slow
def test_the_page_is_whole_and_takes_nothing_from_elsewhere() -> None:
    subject, found = advised("4xH100-80GB")
    staged = fastest_in_stages(found)
    assert staged is not None
    page = advice_page(found, "llama", timeline_of_stages(subject, staged.setting, found.question.cluster))
    tags = Tags()
    tags.feed(page)
    assert tags.open == [] and tags.addresses == []
    assert "<script" not in page and "url(http" not in page and "@import" not in page
    text = " ".join(tags.words)
    assert recommendation(found) in text and line_to_run(found, "llama") in text
    for one in found.candidates:
        assert str(one.setting.layout) in text and one.why_not in text
        assert one.memory is None or gib(one.memory.total) in text
    assert f"stage {staged.setting.layout.pp - 1}" in text


def test_bars_have_the_lengths_of_their_figures() -> None:
    bars = [StackedBar("a", (1.0, 3.0), "4"), StackedBar("b", (2.0, 0.0), "2")]
    picture = bar_picture(bars, ("x", "y"), "GiB", 8.0)
    widths = [float(one) for one in re.findall(r'width="([\d.]+)" height="18"', picture)]
    inner = WIDTH - LABEL - VALUE
    assert widths == pytest.approx([inner / 8, 3 * inner / 8, 2 * inner / 8, 0.0], abs=0.01)
    limit = re.search(r'class="limit" d="M([\d.]+)', picture)
    assert limit is not None and float(limit[1]) == pytest.approx(WIDTH - VALUE)
