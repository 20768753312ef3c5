"""Names of models, by a package's own table. The table is read as Python would build it, and nothing is executed."""

from __future__ import annotations

from collections import OrderedDict

import pytest

from modular_converter.convert.source.library import ModelNames, read_model_names, written_name


TABLES = {
    "a dictionary": 'T = {"a": "AConfig", **{"b-c": "BCConfig"}}\n',
    "an ordered one of pairs": 'T = OrderedDict([("a", "AConfig"), ["b", 1], ("c", "CConfig")])\n',
    "by keywords": 'T = dict({"a": "AConfig"}, **{"b": "BConfig"})\n',
    "extended": 'T = {"a": "AConfig"}\nT.update({"b": "BConfig"})\nT.update()\nT = OrderedDict(**T)\n',
    "replaced": 'T = {"a": "AConfig"}\nT = {"b": "BConfig"}\nU = {"c": "CConfig"}\nU.update({"d": "DConfig"})\n',
    "replaced by an update": 'T = {"a": "AConfig"}\nT.update({"a": "OtherConfig"})\n',
    "from itself": 'T = {"a": "AConfig"}\nT = {**T, "b": "BConfig"}\nT = OrderedDict(T)\n',
    "other values": 'T = {"a": 1, 2: "BConfig", "c": "CConfig", "d": print}\n',
}


@pytest.mark.parametrize("text", TABLES.values(), ids=TABLES)
def test_a_table_is_what_python_makes_of_it(text: str) -> None:
    scope: dict[str, object] = {"OrderedDict": lambda *pairs, **more: OrderedDict(*map(_pairs, pairs), **more)}
    exec(text, scope)
    table = {key: value for key, value in scope["T"].items() if isinstance(key, str) and isinstance(value, str)}  # type: ignore[attr-defined]
    found = read_model_names((("t.py", text),), "T", "Config").by_type
    assert [*found.items()] == [(key, value.replace("Config", "")) for key, value in table.items()]


def _pairs(given: object) -> object:
    return [tuple(pair) for pair in given] if isinstance(given, list) else given


def test_tables_of_several_files() -> None:
    sources = (
        ("a.py", 'T = {"a": "AConfig"}\n'),
        ("b.py", "U = {}\n"),
        ("c.py", 'T.update(b="BConfig")\nT = {**T, "c": "CConfig"}\n'),
    )
    assert read_model_names(sources, "T", "Config").by_type == {"a": "A", "c": "C"}


def test_a_file_that_cannot_be_read_is_an_error_with_its_name() -> None:
    for text in ("T = (\n", "T = " + "(" * 5000 + ")" * 5000 + "\n"):
        with pytest.raises(SyntaxError) as caught:
            read_model_names((("bad.py", text),), "T", "Config")
        assert caught.value.filename == "bad.py"


def test_both_forms_of_a_name() -> None:
    names = ModelNames({"big_bird": "BigBird", "blip-2": "Blip2", "qwen": "Qwen", "qwen-old": "Qwen"})
    assert [names.cased(one) for one in ("big_bird", "blip_2", "my_own2_model")] == ["BigBird", "Blip2", "MyOwn2Model"]
    assert [names.lowercase(one) for one in ("BigBird", "Blip2", "Qwen", "MyOwn2Model", "lower")] == [
        "big_bird",
        "blip_2",
        "qwen_old",
        "my_own2_model",
        "lower",
    ]


@pytest.mark.parametrize(
    ("model", "classes", "written"),
    [
        ("vlm", ["VLMConfig", "VLMModel"], "VLM"),
        ("glm4v", ["Glm4vMLP"], "Glm4v"),
        ("qwen9_5_vl", ["Qwen9_5_VLModel"], "Qwen9_5_VL"),
        ("qwen9_5_vl", ["Qwen9_5VLModel"], "Qwen9_5VL"),
        ("big_bird", ["BigBirdModel", "BIGBIRD"], "BigBird"),
        ("emu", ["EmuMLP", "EMULayer", "EMUNorm"], "EMU"),  # as most of them
        ("opt", ["OptimizedModel"], None),
        ("dia", ["Diagonal"], None),
        ("emu", ["TheEmu"], None),
    ],
)
def test_the_classes_of_a_model_tell_how_it_is_written(model: str, classes: list[str], written: str | None) -> None:
    assert written_name(model, classes) == written


def test_a_written_name_goes_both_ways_with_words_behind_it() -> None:
    names = ModelNames({"big_bird": "BigBird", "xclip": "XCLIP"})
    assert names.with_written("big_bird", ["BIGBirdModel"]) is names  # the table is right
    assert names.with_written("x_clip", ["XCLIPModel"]) is names
    assert names.with_written("vlm", ["TextModel"]) is names
    names = names.with_written("vlm", ["VLMModel"]).with_written("glm4v", ["Glm4vMLP"])
    for lowercase, cased in {"vlm": "VLM", "vlm_text": "VLMText", "glm4v_big_tower": "Glm4vBigTower"}.items():
        assert (names.lowercase(cased), names.cased(lowercase)) == (lowercase, cased)
    assert (names.cased("big_bird"), names.lowercase("BigBird")) == ("BigBird", "big_bird")


def test_a_table_that_does_not_tell_how_classes_are_written_is_overruled() -> None:
    names = ModelNames({"speech": "Ox3_5Text", "emu": "Emu_Old_", "yak3_5": "Yak3_5_"})
    assert (
        names.with_written("ox3_5_text", ["Ox3_5TextModel"]).cased("ox3_5_text") == "Ox3_5Text"
    )  # listed under another name
    assert names.with_written("emu", ["EmuMLP"]) is names and names.with_written("yak3_5", ["Yak3_5MLP"]) is names
