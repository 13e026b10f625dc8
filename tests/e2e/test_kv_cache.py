"""Forms of the KV cache and windows, on the real server and the command line."""

import concurrent.futures
import time

import httpx
import pytest

from serving import MODEL
from test_command_line import needs_model, run
from test_teaching_tools import ALICE, needs_alice, result

QUESTION = {"model": "default", "max_tokens": 24, "temperature": 0, "messages": [
    {"role": "user", "content": "What is the capital of France? Answer in one sentence."}]}
# Keys and values of SmolLM2 135M's 30 layers of 3 heads of 64: with scales (int8: 4 bytes for each
# key and value; int4: 4 for each 32 numbers, keys in 6 bits).
BYTES_PER_TOKEN = {"f16": 90 * 256, "f32": 90 * 512, "int8": 90 * 136, "int4": 90 * 96}


def ask(server, question, timeout=120):
    answer = httpx.post(server.url + "/v1/chat/completions", json=question, timeout=timeout)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.default_model
def test_a_server_with_an_int8_cache_answers(server, start_server):
    small = start_server("--kv", "int8")
    answer = ask(small, QUESTION)
    assert "Paris" in answer["choices"][0]["message"]["content"]
    assert answer["system_fingerprint"] != ask(server, QUESTION)["system_fingerprint"]
    assert small.metrics()["troupe_kv_bytes_per_token"] == BYTES_PER_TOKEN["int8"]
    assert server.metrics()["troupe_kv_bytes_per_token"] == BYTES_PER_TOKEN["f16"]
    facts = httpx.get(small.url + "/v1/models").json()["data"][0]
    assert "int8" in str(facts)


@pytest.mark.default_model
def test_an_answer_far_longer_than_its_window_needs_a_window_of_pages(start_server):
    server = start_server("--window", "64", "--sinks", "4", "--max-step-tokens", "64")
    question = {"model": "default", "prompt": "Once upon a time " * 40, "max_tokens": 600,
                "temperature": 0, "ignore_eos": True}
    most = 0
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(httpx.post, server.url + "/v1/completions", json=question, timeout=120)
        while not answer.done():
            most = max(most, server.metrics()["troupe_kv_pages_leased"])
            time.sleep(0.02)
    body = answer.result().json()
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 600
    assert 0 < most <= 1 + (64 + 64) // 16 + 2
    server.wait_idle()
    # The same again, from what is left of it in the cache.
    again = httpx.post(server.url + "/v1/completions", json=question, timeout=120).json()
    assert again["choices"][0]["text"] == body["choices"][0]["text"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


@pytest.mark.default_model
@needs_model
def test_kv_reckons_every_form():
    for form, expected in BYTES_PER_TOKEN.items():
        size = result("kv", "--model", MODEL, "--tokens", "8192", "--kv", form)
        assert size == {"kv_bytes": 8192 * expected, "kv_bytes_per_token": expected}
    said = run("kv", "--model", MODEL, "--tokens", "1", "--kv", "int8").stdout
    assert "30 layers x 3 KV heads x 136 bytes (int8, key and value) = 12240 bytes" in said


@pytest.mark.default_model
@needs_model
@needs_alice
def test_perplexity_tells_the_price_of_every_form(tmp_path):
    text = tmp_path / "alice.txt"
    text.write_text(ALICE.read_text()[:4000])
    measured = result("perplexity", "--model", MODEL, "--file", str(text), "--kv-forms")
    forms = {entry["kv"]: entry for entry in measured["forms"]}
    assert {name: f["kv_bytes_per_token"] for name, f in forms.items()} == BYTES_PER_TOKEN
    assert forms["f16"]["percent"] == 0
    # A thousand tokens are few: rounding alone moves them by half a percent.
    assert abs(forms["int8"]["percent"]) < 1 and abs(forms["int4"]["percent"]) < 4
    assert forms["int8"]["perplexity"] != forms["f16"]["perplexity"]


def test_wrong_windows_are_said():
    assert run("complete", "--model", "toy", "--prompt", "the", "--window", "4").returncode == 2
    assert run("complete", "--model", "toy", "--prompt", "the", "--sinks", "4").returncode == 2
    assert run("perplexity", "--model", "toy", "--text", "the cat", "--kv-forms").returncode == 2


@needs_model
def test_a_window_wider_than_the_model_is_said():
    wide = run("complete", "--model", MODEL, "--prompt", "Hi", "--window", "8192", "--sinks", "1")
    assert wide.returncode == 2 and "--window" in wide.stderr
