"""The benchmark's page is made from its file of figures, and its plan is the derived one."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest


UTILS = Path(__file__).parents[2] / "utils"


@pytest.fixture(scope="module")
def utils():
    sys.path.insert(0, str(UTILS))
    yield importlib.import_module
    sys.path.remove(str(UTILS))


def test_the_table_of_models_compares_one_device_with_two(utils):
    rows = [("one", "a", "decode_1_ms", 20.0), ("ours", "a", "decode_1_ms", 10.0), ("one", "a", "weights_bytes", 8e9)]
    rows += [("ours", "a", "decode_32_ms", 16.0), ("ours", "a", "decode_1_ms_ratios", [1.5, 1.9, 2.5])]
    rows += [("one", "a", "weight_bytes", 2), ("ours", "a", "start_s", 7.5), ("ours", "b", "problem", "slow")]
    rows += [("one", "b", "forward_long_ms", 300.0), ("turns", "b", "problem", "late")]
    text = utils("bench_parallel").models_page([dict(zip(("run", "shape", "name", "value"), row)) for row in rows])
    assert "| a | 4.00 B |  | 20.00 → 10.00 (1.90 ×; 1.50 to 2.50) |  → 16.00 | 20.00 | 7.50 |" in text
    assert (
        "compil" not in text
        and "| b |  | 300 →  |" in text
        and "* b, ours: slow" in text
        and "* b, turns: late" in text
    )


@pytest.mark.parametrize("shape", ["tiny", "tiny-t5"])
def test_models_of_the_benchmark_run(utils, shape):
    pytest.importorskip("transformers")
    said: dict[str, object] = {}
    runs, models = utils("parallel_runs"), utils("bench_model")
    both = [models.build(shape)] * 2
    runs.measure(both, shape, {"forward", "decode"}, lambda number, name, value: said.update({(number, name): value}))
    assert said[0, "forward_long_ms"] > 0 and said[1, "decode_32_ms"] > 0
    least, middle, most = said[1, "forward_short_ms_ratios"]
    assert least <= middle <= most


def test_the_page_is_written_between_its_markers(tmp_path):
    rows = [("about", 0, "layers", 2), ("one", 1, "weights_bytes", 8e9), ("one", 1, "decode_1_ms", 20.0)]
    rows += [
        ("ours", 2, "decode_1_ms", 10.0),
        ("ours", 2, "memory_mib", [7000.4, 7001.6]),
        ("ours", 2, "overhead_ms", 0.5),
    ]
    rows += [
        ("bounds", 2, "read_gb_s", 4000.0),
        ("bounds", 2, "sum_token_us", 10.0),
        ("library", 2, "problem", "slow"),
    ]
    rows += [("ours", 2, "profile_decode", {"wall": 10.0, "busy": 4.0, "kernels": 800.0, "products": 3.0})]
    results, page = tmp_path / "found.jsonl", tmp_path / "page.md"
    keys = ("run", "devices", "name", "value")
    results.write_text("".join(json.dumps(dict(zip(keys, row))) + "\n" for row in rows))
    page.write_text("before\n<!-- bench: start -->\nold\n<!-- bench: end -->\nafter\n")
    command = [sys.executable, str(UTILS / "bench_parallel.py"), "--render", "--results", str(results)]
    subprocess.run([*command, "--update", str(page)], check=True, capture_output=True)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "| parallelize, 2 devices | 7002 |  |  | 10.00 |  | 100 | 0.50 |" in text
    assert "| lower bound, 2 devices | 3815 |  |  | 1.06 | 1.06 | 943 |  |" in text  # 4 GB at 4 TB/s, and 6 sums
    assert "| parallelize, 2 devices, decode | 10.00 | 3.00 | 6.00 | 800 |" in text
    assert "* library, 2 devices: slow" in text


def test_the_table_of_models_counts(utils):
    rows = [
        {"model": "a", "forward": "equal", "generate": "equal", "reason": ""},
        {"model": "b", "forward": "equal", "generate": None, "reason": ""},
        {"model": "c", "forward": None, "generate": None, "reason": "no | room"},
        {"model": "d", "forward": "equal", "generate": "no: whole it fails too (ValueError)", "reason": ""},
        {"model": "e", "forward": "equal", "generate": None, "reason": "no plan"},
    ]
    text = utils("run_verified").table(rows)
    assert "Outputs equal: 4 of 5; tokens equal: 1 of 2 that generate." in text
    assert "| c | failed: no / room |  |" in text


def test_the_tables_of_published_sizes(utils):
    tables = utils("run_published")
    whole, error = "whole: layers.*.self_attn", "ApplyError: nothing | left"
    rows = [
        {"model": "a", "state": "verified", "holds_at": dict.fromkeys(tables.SIZES, "")},
        {"model": "b", "state": "verified", "holds_at": {"2": "", "3": whole, "4": error, "8": whole}},
        {"model": "c", "state": "refused", "reason": "no"},
        {"model": "d", "state": "verified"},
    ]
    text = tables.fit_table(rows)
    assert "Of 2 verified types. No result within the time limit: d. Those" in text
    assert "| 2 | 2 | 0 | 0 |" in text and "| 3 | 1 | 1 | 0 |" in text and "| 4 | 1 | 0 | 1 |" in text
    assert "| b | 3, 8 | whole: layers.*.self_attn |" in text and "| b | 4 | ApplyError: nothing / left |" in text
    right = {"model": "a", "devices": 3, "outputs": "equal", "tokens": "none", "kept": 0.345}
    text = tables.run_table([right, {**right, "devices": 8, "outputs": "differ by 1.0e-01"}])
    assert "equal: 0 of 0 on 2, 1 of 1 on 3, 0 of 0 on 4, 0 of 1 on 8" in text
    assert "| a |  | equal, 34% |  | differ by 1.0e-01, tokens none |" in text


def test_every_style_of_a_rule_is_explained(utils):
    page = (UTILS.parent / "docs" / "plans.md").read_text(encoding="utf-8")
    assert f"<!-- styles: start -->\n{utils('write_plan_docs').styles()}\n<!-- styles: end -->" in page


def test_each_type_with_a_plan_has_a_row_or_a_reason(utils):
    pytest.importorskip("transformers")
    page = utils("write_plan_docs")
    rows = [
        {"model": "llama", "state": "verified", "reason": "", "committed": {"outcome": "same"}},
        {"model": "step3p7", "state": "verified", "reason": "", "committed": {"types": ["step3p5"]}},
        {"model": "gemma3n_text", "state": "failed", "reason": "BuildError: x"},
    ]
    said = page.types_without_row(rows)
    assert f"1 of the {len(page.types_with_plan())} types with a plan have a row of their own" in said
    assert "1 are parts of the model of another row (step3p5 in step3p7)" in said
    assert "because no small instance of their models runs (gemma3n_text)" in said
    assert "the model classes of llama (exaone, internlm3, iquestcoder)" in said
    reasons = said.partition("have none because ")[2]
    assert all(name in said for name in page.types_with_plan()) and "step3p5" not in reasons


def test_a_part_of_a_page_is_replaced_alone(utils, tmp_path):
    page, write_part = tmp_path / "page.md", utils("marked_pages").write_part
    page.write_text("above\n<!-- a: start -->\nold\n<!-- a: end -->\nbelow\n<!-- b: start -->\n<!-- b: end -->\n")
    write_part(page, "a", "new")
    write_part(page, "b", "two\nlines\n")
    whole = "above\n<!-- a: start -->\nnew\n<!-- a: end -->\nbelow\n<!-- b: start -->\ntwo\nlines\n<!-- b: end -->\n"
    assert page.read_text() == whole
    with pytest.raises(SystemExit, match="has no lines <!-- c: start --> and <!-- c: end -->"):
        write_part(page, "c", "text")
    assert page.read_text() == whole


@pytest.mark.slow
def test_rows_of_the_table_of_models(utils, ranks):
    from modular_converter.parallel.proof.prove import derive_model
    from modular_converter.parallel.tiny.build import target_of

    row = utils("run_verified").row
    plan = str(derive_model(target_of("gpt2")).plan)
    found = row({"model": "gpt2", "plan": plan}, ranks)
    assert (found["forward"], found["generate"], found["reason"]) == ("equal", "equal", "")
    wrong = plan.replace("packed_colwise dim=1 parts=1:1:1", "colwise dim=1")
    refused = row({"model": "gpt2", "plan": wrong}, ranks)
    assert refused["forward"] is None and "other numbers on the ranks" in refused["reason"]
    lost = {"model": "gpt2", "folder": "gpt2", "class": "GPT2Model", "plan": plan.replace("c_attn", "c_nothing")}
    assert "matches no module" in row(lost, ranks)["reason"]


def test_the_table_of_starts_tells_what_was_too_little(utils):
    row = {
        "run": "folder:fsdp2:offload",
        "cap_gib": 7.0,
        "package": None,
        "torch": "2",
        "device": "GPU",
        "model": 2**33,
    }
    figures = {"seconds": 3.21, "read": 2**32, "peak": 2**32, "kept": 2**32}
    more = {"step_s": 1.5, "step_peak": 2**31}
    lost = {"run": "memory:fsdp2", "cap_gib": None, "package": "old", "error": "OutOfMemoryError: no | room"}
    text = utils("bench_start").table([row | figures | more, lost, row | figures | {"error": "Error: too little"}])
    assert "two of GPU, files of 8.00 GiB." in text
    assert "| fsdp2, offload, folder | 7.0 | 3.2 | 4.00 | 4.00 | 4.00 | 1.5 | 2.00 |" in text
    assert "| fsdp2, memory (version old) |  | OutOfMemoryError: no / room |  |  |  |  |  |" in text
    assert "| fsdp2, offload, folder | 7.0 | 3.2 | 4.00 | 4.00 | 4.00 |  | Error: too little |" in text
