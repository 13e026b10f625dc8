"""The arithmetic of tools/bench/compare: ratios, goals, limits, what changed, the distance of
distributions. No program is run."""

import json
import math
import pathlib
import sys

import pytest

from serving import MODEL, TROUPE

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "bench"))
from comparing import fidelity, programs, report, workloads  # noqa: E402

MACHINE = {"processor": "P", "threads": 2, "instruction_set": "avx2", "read_gb_per_s": 20.0,
           "multiply_gop_per_s": 1000.0}
SIZES = {"file_bytes": 100_000_000, "parameters": 134_000_000, "embedding": 28_000_000,
         "kv_bytes": 20_000}


def rows(rounds, only_avx2=False):
    limits = report.limits_of(MACHINE, SIZES)
    listed = report.rows_of(rounds, "troupe", ["peer"], limits, only_avx2)
    return {row["name"]: row for row in listed}


def test_a_ratio_is_the_median_of_the_rounds_and_above_one_is_better():
    rounds = [{"troupe": {"decode_8": 300, "burst_ttft_p50": 1},
               "peer": {"decode_8": 100, "burst_ttft_p50": 4}},
              {"troupe": {"decode_8": 200, "burst_ttft_p50": 2},
               "peer": {"decode_8": 100, "burst_ttft_p50": 5}},
              {"troupe": {"decode_8": 900, "burst_ttft_p50": 1},
               "peer": {"decode_8": 100, "burst_ttft_p50": 9}}]
    found = rows(rounds)
    assert found["decode_8"]["ours"] == 300
    assert found["decode_8"]["ratio"] == 3
    assert found["decode_8"]["met"]
    assert found["burst_ttft_p50"]["ratio"] == 4


def test_the_best_peer_is_the_bar_and_the_same_file_has_a_goal_of_its_own():
    rounds = [{"troupe": {"prefill_512": 1000}, "peer": {"prefill_512": 190},
               "peer Q4_0": {"prefill_512": 400}}]
    row = rows(rounds)["prefill_512"]
    assert (row["best_peer"], row["ratio"]) == ("peer Q4_0", 2.5)
    assert row["ratio_same_file"] == pytest.approx(1000 / 190)
    assert row["met"]
    assert not rows(rounds, only_avx2=True)["prefill_512"]["met"]  # six times there


def test_limits_are_those_of_memory_or_of_arithmetic():
    limits = report.limits_of(MACHINE, SIZES)
    assert limits["decode_1"] == pytest.approx(200)
    assert limits["decode_128"] == pytest.approx(1e12 / (2 * 134e6))
    assert limits["decode_1_deep"] == pytest.approx(20e9 / (100e6 + 2048 * 20e3))
    assert limits["prefill_512"] == pytest.approx(1e12 / (2 * 106e6))
    row = rows([{"troupe": {"decode_1": 150}, "peer": {"decode_1": 50}}])["decode_1"]
    assert row["limit_share"] == pytest.approx(0.75)
    assert not row["met"]  # three times the peer, but not 85 % of the limit


def test_without_a_peer_there_are_values_and_no_ratios():
    row = rows([{"troupe": {"ready": 0.15}}])["ready"]
    assert (row["ratio"], row["best_peer"], row["met"]) == (None, None, True)


def test_changes_are_told_against_the_last_run_on_the_same_machine(tmp_path, capsys):
    history = tmp_path / "history.jsonl"
    for ours in (300, 303, 240):
        found = rows([{"troupe": {"decode_8": ours}, "peer": {"decode_8": 100}}])
        report.print_changes(list(found.values()), MACHINE, history)
    told = capsys.readouterr().out
    assert told.count("8 streams: ") == 1
    assert "8 streams: 3.03 -> 2.4 times the best peer" in told
    assert len(history.read_text().splitlines()) == 3
    report.print_changes([], {**MACHINE, "threads": 4}, history)
    assert json.loads(history.read_text().splitlines()[-1])["key"]["threads"] == 4
    assert "changes" not in capsys.readouterr().out


def test_the_divergence_of_distributions():
    assert fidelity.divergence({1: 0.5, 2: 0.5}, {1: 0.5, 2: 0.5}) == 0
    expected = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert fidelity.divergence({1: 0.5, 2: 0.5}, {1: 0.25, 2: 0.75}) == pytest.approx(expected)
    # What is not listed has what is left, here a quarter for the two of them.
    found = fidelity.divergence({1: 0.5, 2: 0.25, 3: 0.25}, {1: 0.75})
    assert found == pytest.approx(0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(2))


@pytest.mark.default_model
@pytest.mark.skipif(not MODEL, reason="the default model is not here")
def test_the_sizes_that_limits_come_from_are_those_of_the_model():
    sizes = programs.Troupe(TROUPE, MODEL, 2).sizes()
    assert sizes == {"file_bytes": 140544 + 66355200 + 30081024, "parameters": 134515008,
                     "embedding": 576 * 49152, "kv_bytes": 23040}


def test_prompts_differ_from_the_first_words_on():
    texts = [workloads.text_of(seed, 20) for seed in range(1, 200)]
    assert len({text[:12] for text in texts}) == len(texts)
