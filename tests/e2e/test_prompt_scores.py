"""Completions with `echo` and `logprobs`: how likely the prompt's own tokens were."""

import math

import httpx
import pytest

from test_teaching_tools import result
from serving import FLAGS, MODEL

TEXT = ("The lighthouse keeper climbed the stairs every evening, lit the lamp, and wrote one line "
        "into the book. Nobody ever read the book.")


@pytest.fixture
def complete(server):
    def ask(**fields):
        reply = httpx.post(server.url + "/v1/completions", timeout=60,
                           json={"model": "default", "temperature": 0, "seed": 1} | fields)
        assert reply.status_code == 200, reply.text
        return reply.json()
    return ask


@pytest.fixture
def before(server):
    """What the model's tokenizer has before a text's first character: nothing, or a mark and a
    space. Neither is part of the text."""
    asked = {"content": TEXT, "add_special": True, "with_pieces": True}
    pieces = httpx.post(server.url + "/tokenize", json=asked).json()["token_strs"]
    assert "".join(pieces).endswith(TEXT)
    return "".join(pieces).removesuffix(TEXT)


def test_they_come_with_the_prompt_and_sum_to_its_perplexity(complete, before):
    body = complete(prompt=TEXT, echo=True, logprobs=2, max_tokens=0)
    choice = body["choices"][0]
    scores = choice["logprobs"]
    assert choice["text"] == TEXT and "".join(scores["tokens"]) == before + TEXT
    assert choice["finish_reason"] == "length"
    assert scores["token_logprobs"][0] is None and scores["top_logprobs"][0] is None
    assert body["usage"]["completion_tokens"] == 0
    begin = -len(before)
    for token, offset in zip(scores["tokens"], scores["text_offset"], strict=True):
        assert offset == max(begin, 0)
        begin += len(token)
    for chosen, top in zip(scores["token_logprobs"][1:], scores["top_logprobs"][1:]):
        assert len(top) == 2 and chosen <= max(top.values()) <= 0
    known = scores["token_logprobs"][1:]
    price = result("perplexity", "--model", MODEL, *FLAGS, "--text", TEXT)
    assert price["tokens"] == len(known)
    assert -sum(known) / len(known) == pytest.approx(price["loss"], rel=1e-6)


def test_they_are_those_with_which_the_answer_was_drawn(complete):
    drawn = complete(prompt=TEXT, max_tokens=24, logprobs=1)["choices"][0]
    whole = complete(prompt=TEXT + drawn["text"], echo=True, logprobs=1, max_tokens=0)
    scores = whole["choices"][0]["logprobs"]
    count = len(drawn["logprobs"]["tokens"])
    assert scores["tokens"][-count:] == drawn["logprobs"]["tokens"]
    assert scores["token_logprobs"][-count:] == drawn["logprobs"]["token_logprobs"]


def test_several_answers_behind_several_prompts(complete, before):
    body = complete(prompt=[TEXT, "One two three"], n=2, temperature=1, echo=True, logprobs=1,
                    max_tokens=5)
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    for choice in body["choices"]:
        scores = choice["logprobs"]
        assert "".join(scores["tokens"]) == before + choice["text"]
        assert scores["token_logprobs"].count(None) == 1
        assert all(math.isfinite(score) for score in scores["token_logprobs"][1:])
    a, b = body["choices"][2:]
    assert a["logprobs"]["token_logprobs"][:3] == b["logprobs"]["token_logprobs"][:3]


@pytest.mark.default_model
def test_a_long_prompt_is_scored_beside_others_at_work(complete):
    text = TEXT * 40
    alone = complete(prompt=text, echo=True, logprobs=0, max_tokens=1)
    again = complete(prompt=text, echo=True, logprobs=0, max_tokens=1)
    assert alone["choices"][0]["logprobs"] == again["choices"][0]["logprobs"]
    assert len(alone["choices"][0]["logprobs"]["tokens"]) > 1000
