"""Speculative decoding through the whole program: faster answers, and the same ones."""

import json

import httpx
import pytest

from serving import MODEL, STORIES
from test_command_line import run

needs_model = pytest.mark.skipif(not MODEL, reason="the default model is not here")
COPY = ("Repeat this text word for word.\n\nThe harbour lies at the end of a narrow bay. In the "
        "morning the fishing boats come back one after another, and the gulls follow them.")


def chat(server, **more):
    body = {"messages": [{"role": "user", "content": COPY}], "max_tokens": 48, "temperature": 0,
            "ignore_eos": True, "seed": 1, **more}
    return httpx.post(server.url + "/v1/chat/completions", json=body, timeout=60).json()


def text_of(answer, index=0):
    return answer["choices"][index]["message"]["content"]


@pytest.mark.parametrize("params", [
    {}, {"temperature": 0.7, "top_p": 0.9}, {"frequency_penalty": 0.4, "temperature": 0.5},
    {"logprobs": True, "top_logprobs": 3}, {"stop": ["bay"]}, {"n": 3, "temperature": 0.8},
], ids=str)
def test_answers_are_the_same_with_and_without(server, params):
    plain = chat(server, speculation=False, **params)
    drafted = chat(server, **params)
    for one, other in zip(plain["choices"], drafted["choices"], strict=True):
        assert one["message"] == other["message"]
        assert one["logprobs"] == other["logprobs"]
        assert one["finish_reason"] == other["finish_reason"]
        assert one["troupe"]["draft_tokens"] == 0


def test_drafts_are_counted_wherever_answers_are(server):
    before = server.metrics()
    answer = chat(server)
    facts = answer["choices"][0]["troupe"]
    details = answer["usage"]["completion_tokens_details"]
    assert facts["draft_tokens"] >= facts["accepted_tokens"] > 0
    assert details["accepted_prediction_tokens"] == facts["accepted_tokens"]
    assert details["rejected_prediction_tokens"] == facts["draft_tokens"] - facts["accepted_tokens"]
    after = server.metrics()
    for name, count in (("draft", facts["draft_tokens"]), ("accepted", facts["accepted_tokens"])):
        metric = f"troupe_spec_decode_num_{name}_tokens_total"
        assert after[metric] - before[metric] == count
    done = httpx.post(server.url + "/v1/responses", timeout=60, json={
        "input": COPY, "max_output_tokens": 48, "temperature": 0, "ignore_eos": True}).json()
    assert done["troupe"]["accepted_tokens"] > 0


def test_the_server_can_be_told_not_to_draft(start_server):
    answer = chat(start_server("--speculation", "off"))
    assert answer["choices"][0]["troupe"]["draft_tokens"] == 0


@needs_model
def test_a_draft_model_changes_no_answer():
    flags = ("complete", "--model", MODEL, "--prompt", "Once upon a time", "--tokens", "24",
             "--seed", "5", "--json", "--kv-memory", "64MB")
    plain = json.loads(run(*flags, "--speculation", "off").stdout)
    drafted = json.loads(run(*flags, "--speculation", "model", "--draft-model", MODEL).stdout)
    assert drafted["text"] == plain["text"]
    assert plain["usage"]["draft_tokens"] == 0


@pytest.mark.skipif(not STORIES.exists(), reason="no ../shared/data/1-model/stories260K")
def test_a_draft_model_is_served(stories, start_server):  # noqa: F811
    plain = start_server("--speculation", "off", model=stories)
    drafted = start_server("--draft-model", stories, "--speculation", "model", model=stories)
    for seed in range(4):
        body = {"prompt": "Once upon a time", "max_tokens": 60, "seed": seed, "temperature": 0.9}
        one, other = (httpx.post(s.url + "/v1/completions", json=body, timeout=60).json()
                      for s in (plain, drafted))
        assert one["choices"][0]["text"] == other["choices"][0]["text"]
        assert one["system_fingerprint"] == other["system_fingerprint"]


def test_a_draft_model_that_does_not_fit_is_refused():
    done = run("complete", "--model", "toy", "--prompt", "the", "--speculation", "model")
    assert done.returncode == 2 and "--draft-model" in done.stderr
    if MODEL:
        done = run("complete", "--model", "toy", "--prompt", "the", "--draft-model", MODEL)
        assert done.returncode == 1 and "vocabularies differ" in done.stderr


def test_the_toy_drafts_for_itself():
    flags = ("complete", "--model", "toy", "--prompt", "the", "--tokens", "30", "--seed", "3",
             "--ignore-eos", "--json")
    plain = json.loads(run(*flags, "--speculation", "off").stdout)
    drafted = json.loads(run(*flags, "--draft-model", "toy").stdout)
    assert drafted["text"] == plain["text"]


@needs_model
def test_the_bench_finds_all_answers_equal():
    done = run("bench", "speculation", "--model", MODEL, "--tokens", "24", "--pairs", "1", "--json")
    texts = json.loads(done.stdout)["texts"]
    assert set(texts) == {"copy", "edit", "story"}
    assert all(text["equal"] for text in texts.values())
