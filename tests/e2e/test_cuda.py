"""The CUDA backend without a card: nvcc's build where no driver is, and a card that is lost, emulated."""

import concurrent.futures
import json
import pathlib
import subprocess
import sys

import httpx
import pytest

from serving import ROOT, Server

BY_NVCC = ROOT / "build" / "cuda" / "troupe"
EMULATED = ROOT / "build" / "cuda-emulated" / "troupe"
no_card = [
    pytest.mark.skipif(not BY_NVCC.exists(),
                       reason="no build/cuda/troupe (tools/test --all makes it where nvcc is)"),
    pytest.mark.skipif(pathlib.Path("/dev/nvidiactl").exists(),
                       reason="there is a card here: tools/gpu-check tries it"),
]


def without_a_card(test):
    for mark in no_card:
        test = mark(test)
    return test


@pytest.mark.skipif(not BY_NVCC.exists(), reason="no build/cuda/troupe")
def test_no_hot_kernel_spills_registers_and_the_page_says_what_they_take():
    done = subprocess.run([ROOT / "tools" / "gpu-check-registers"], capture_output=True, text=True,
                          timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def measured(kernel, rows, us, **more):
    return json.dumps({"kernel": kernel, "rows": rows, "us": us, **more})


def test_what_a_card_measured_is_told_beside_the_goals(tmp_path):
    (tmp_path / "card.csv").write_text("name, driver\nsome card, 1.0\n")
    (tmp_path / "measured.txt").write_text("\n".join([
        "Filters: [.bench]",
        measured("copy", 0, 50, gb_per_s=4000.0),
        measured("8B BF16 decode at 128", 1, 4000, gb_per_s=3600.0, tflop_per_s=4.0),
        measured("135M BF16 decode at 128", 1, 400, gb_per_s=600.0, tflop_per_s=0.6),
        measured("135M BF16 idle between steps at 128", 1, 7),
        measured("attention of 64 x 256 in f16", 64, 100, gb_per_s=2400.0),
        measured("attention of 64 x 256 in f16, pages in order", 64, 98, gb_per_s=2450.0)]))
    for form, perplexity in (("f16", 20.0), ("int8", 20.1)):
        (tmp_path / f"perplexity-{form}.txt").write_text(
            "a line of the log\n" + json.dumps({"perplexity": perplexity}) + "\n")
    told = subprocess.run([sys.executable, ROOT / "tools" / "lib" / "gpu_report.py", tmp_path],
                          capture_output=True, text=True, check=True, timeout=60).stdout
    rows = {row["name"]: row
            for row in json.loads((tmp_path / "gpu-check.json").read_text())["rows"]}

    def said(name):
        return pytest.approx(rows[name]["value"]), rows[name]["met"]

    assert said("decode, one stream, 8B BF16") == (0.9, True)
    assert said("decode, one stream, 135M BF16") == (2500, False)
    assert said("idle between steps, one stream, 135M BF16") == (7, False)
    assert said("attention, 64 x 256") == (0.6, True)
    assert said("pages anywhere against in order, 64 x 256") == (0.98, True)
    assert said("perplexity with an int8 cache") == (0.5, False)
    assert rows["decode, one stream, 8B Q4_0"]["measured"] is False
    lines = {line[:45].strip(): line for line in told.splitlines()}
    assert "NOT MET" in lines["decode, one stream, 135M BF16"]
    assert "not run" in lines["decode, one stream, 8B Q4_0"]


def complete(server, **more):
    asked = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 8, **more}
    return httpx.post(server.url + "/v1/completions", json=asked, timeout=60)


@without_a_card
def test_without_a_driver_cuda_ends_with_one_line_that_says_what_to_do(stories):
    done = subprocess.run([BY_NVCC, "serve", "--port", "0", "--backend", "cuda", "--model",
                           stories], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stdout == ""
    said = [line for line in done.stderr.splitlines() if line.startswith("troupe: ")]
    assert len(said) == 1
    assert "no CUDA device can be used" in said[0]
    assert "driver" in said[0] and "--backend cpu" in said[0]


@without_a_card
def test_without_a_driver_auto_says_so_and_serves_on_the_cpu(stories):
    server = Server("--backend", "auto", model=stories, program=BY_NVCC)
    try:
        assert any("no CUDA device can be used" in line and "running on the CPU" in line
                   for line in server.log)
        assert complete(server).json()["usage"]["completion_tokens"] == 8
    finally:
        assert server.stop() == 0


@pytest.mark.skipif(not EMULATED.exists(), reason="no build/cuda-emulated/troupe")
def test_a_window_over_an_int8_cache_on_the_card(stories):
    server = Server("--backend", "cuda", "--max-context", "512", "--kv", "int8", "--window", "32",
                    "--sinks", "4", "--max-step-tokens", "64", model=stories, program=EMULATED)
    try:
        facts = httpx.get(server.url + "/v1/models").json()["data"][0]["meta"]
        assert facts["kv_type"] == "int8" and (facts["window"], facts["sinks"]) == (32, 4)
        asked = {"max_tokens": 80, "ignore_eos": True}
        alone = complete(server, **asked).json()
        assert alone["usage"]["completion_tokens"] == 80
        with concurrent.futures.ThreadPoolExecutor() as pool:
            together = list(pool.map(lambda _: complete(server, **asked).json(), range(2)))
        for answer in together:
            assert answer["choices"][0]["text"] == alone["choices"][0]["text"]
        # What left the window was given back while the answers went on.
        server.wait_idle()
        assert server.metrics()["troupe_kv_pages_leased"] == 0
    finally:
        assert server.stop() == 0


@pytest.mark.skipif(not EMULATED.exists(), reason="no build/cuda-emulated/troupe")
def test_two_cards_answer_as_one_does(stories):
    texts = []
    for flags in (["1"], ["2"], ["2", "--enforce-eager"]):
        server = Server("--backend", "cuda", "--gpus", *flags, "--max-context", "512",
                        model=stories, program=EMULATED, variables={"TROUPE_EMULATOR_DEVICES": "2"})
        try:
            texts.append(complete(server, max_tokens=24).json()["choices"][0]["text"])
        finally:
            assert server.stop() == 0
    assert texts[0] == texts[1] == texts[2]


@pytest.mark.skipif(not EMULATED.exists(), reason="no build/cuda-emulated/troupe")
def test_a_lost_card_is_told_to_every_client_and_the_next_is_served(stories):
    # Some thirty steps of seventy kernels.
    server = Server("--backend", "cuda", "--max-context", "512", model=stories, program=EMULATED,
                    variables={"TROUPE_EMULATOR_LOSE_AFTER": "2000"})
    try:
        before = complete(server).json()["choices"][0]["text"]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            lost = list(pool.map(lambda _: complete(server, max_tokens=300, ignore_eos=True),
                                 range(3)))
        assert [answer.status_code for answer in lost] == [500] * 3
        assert all("error" in answer.json() for answer in lost)
        assert complete(server).json()["choices"][0]["text"] == before
        assert any("the device was lost" in line for line in server.log)
    finally:
        assert server.stop() == 0
