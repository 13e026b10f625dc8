"""Beam search, best_of and n through the whole program."""

import concurrent.futures
import json
import time

import httpx
import pytest

from serving import ROOT, STORIES
from test_command_line import run
from wire import Client, check_order, create, deltas_of, text_of

CASES = json.loads((ROOT / "tests" / "data" / "beam_search" / "stories260k.json").read_text())["cases"]
needs_stories = pytest.mark.skipif(not STORIES.exists(),
                                   reason="no ../shared/data/1-model/stories260K")
QUESTION = "Name three colours."


def post(server, route, **fields):
    return httpx.post(server.url + route, json=fields, timeout=120)


def chat(server, **fields):
    return post(server, "/v1/chat/completions",
                messages=[{"role": "user", "content": QUESTION}], **fields)


@needs_stories
def test_the_server_gives_the_answers_of_transformers_to_all_at_once(stories, start_server):
    server = start_server("--arithmetic", "float32", model=stories)

    def text_of_tokens(tokens):
        return post(server, "/detokenize", tokens=tokens).json()["content"]

    def ask(case):
        return post(server, "/v1/completions", prompt=case["prompt_ids"], n=case["beam_width"],
                    beam_width=case["beam_width"], length_penalty=case["length_penalty"],
                    max_tokens=case["max_tokens"], stop_token_ids=case["ends"], echo=True).json()

    with concurrent.futures.ThreadPoolExecutor(len(CASES)) as pool:
        answers = list(pool.map(ask, CASES))
    for case, answer in zip(CASES, answers):
        told = [choice["text"] for choice in answer["choices"]]
        right = [text_of_tokens(case["prompt_ids"] +
                                [t for t in found["tokens"] if t not in case["ends"]])
                 for found in case["answers"]]
        assert [text.strip() for text in told] == [text.strip() for text in right]
        assert answer["usage"]["completion_tokens"] == sum(len(a["tokens"]) for a in case["answers"])


@needs_stories
def test_the_command_line_searches_and_ranks(stories):
    common = ("complete", "--model", stories, "--arithmetic", "float32", "--prompt",
              "The dog", "--tokens", "20", "--json")
    greedy = json.loads(run(*common, "--temperature", "0").stdout)
    wide = json.loads(run(*common, "--beam-width", "4").stdout)
    assert greedy["text"] != wide["text"]
    assert json.loads(run(*common, "--beam-width", "4").stdout)["text"] == wide["text"]
    ranked = run(*common, "--best-of", "5", "--seed", "3", "--top-logprobs", "1")
    best = json.loads(ranked.stdout)
    alone = json.loads(run(*common, "--seed", "3", "--top-logprobs", "1").stdout)

    def mean(answer):
        return sum(t["logprob"] for t in answer["logprobs"]) / len(answer["logprobs"])

    assert mean(best) >= mean(alone)
    refused = run(*common, "--beam-width", "4", "--temperature", "0.5")
    assert refused.returncode == 2 and "temperature is 0.5" in refused.stderr
    assert run(*common, "--beam-width", "4", "--best-of", "2").returncode == 2


@needs_stories
def test_answers_to_one_prompt_share_its_pages(stories):
    done = run("bench", "sharing", "--model", stories, "--answers", "8", "--prompt-tokens", "160",
               "--answer-tokens", "32", "--json")
    assert done.returncode == 0, done.stderr
    pages = json.loads(done.stdout)["pages"]
    # Nine full pages of the prompt once; its last page is computed by each.
    assert pages["answers"] <= 9 + 8 * 3
    assert pages["beams"] <= 10 + 8 * 2
    assert pages["separate"] > 2 * pages["answers"]


def test_every_door_gives_the_same_beams(server):
    fields = {"beam_width": 3, "length_penalty": 0.8}
    whole = chat(server, max_tokens=24, **fields).json()
    text = whole["choices"][0]["message"]["content"]
    assert len(text) > 5
    echoed = whole["choices"][0]["troupe"]["parameters"]
    assert echoed["beam_width"] == 3 and echoed["length_penalty"] == 0.8
    with Client(server) as client:
        response, events = client.answer(create(QUESTION, max_output_tokens=24, **fields))
        check_order(events)
        assert text_of(response) == deltas_of(events) == text
    with httpx.stream("POST", server.url + "/v1/chat/completions", timeout=120, json={
            "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 24, "stream": True,
            **fields}) as reply:
        lines = [line[6:] for line in reply.iter_lines() if line.startswith("data: {")]
    streamed = "".join(json.loads(line)["choices"][0]["delta"].get("content", "") for line in lines)
    assert streamed == text


def test_beams_are_the_same_beside_eight_others(server):
    alone = chat(server, max_tokens=24, beam_width=4, n=4).json()["choices"]
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        others = [pool.submit(chat, server, max_tokens=40, seed=i) for i in range(8)]
        among = pool.submit(chat, server, max_tokens=24, beam_width=4, n=4)
        assert all(other.result().status_code == 200 for other in others)
    texts = [[choice["message"]["content"] for choice in choices]
             for choices in (alone, among.result().json()["choices"])]
    assert texts[0] == texts[1]
    assert len(set(texts[0])) == 4


def test_best_of_tells_the_best_and_counts_all(server):
    answer = chat(server, max_tokens=12, n=2, best_of=5, seed=1, ignore_eos=True).json()
    means = [choice["troupe"]["mean_logprob"] for choice in answer["choices"]]
    assert len(means) == 2 and means[0] >= means[1]
    assert answer["usage"]["completion_tokens"] == 5 * 12
    each = chat(server, max_tokens=12, n=5, seed=1, ignore_eos=True).json()["choices"]
    assert answer["choices"][0]["message"]["content"] in [c["message"]["content"] for c in each]


@pytest.mark.parametrize("fields, param", [
    ({"beam_width": 17}, "beam_width"), ({"beam_width": 4, "temperature": 0.7}, "temperature"),
    ({"beam_width": 2, "n": 3}, "n"), ({"best_of": 21}, "best_of"),
    ({"best_of": 2, "stream": True}, "stream"), ({"length_penalty": "1"}, "length_penalty")])
def test_what_makes_no_sense_is_refused_by_name(server, fields, param):
    reply = chat(server, max_tokens=4, **fields)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param
    assert param in reply.json()["error"]["message"]


@needs_stories
def test_more_beams_than_the_server_can_run_are_refused_with_numbers(stories, start_server):
    server = start_server("--max-running", "4", model=stories)
    reply = post(server, "/v1/completions", prompt="Once", max_tokens=4, beam_width=5)
    assert reply.status_code == 400
    assert reply.json()["error"]["message"] == \
        "beam_width is 5, but this server runs at most 4 sequences at once"
    assert post(server, "/v1/completions", prompt="Once", max_tokens=4,
                beam_width=4).status_code == 200


def test_a_beam_search_whose_client_leaves_gives_all_back(server):
    with Client(server) as client:
        client.send(create("Write a long story.", beam_width=4, max_output_tokens=400))
        client.until("response.in_progress")
        client.send({"type": "response.cancel"})
        last = client.until("response.incomplete", "response.completed")[-1]
        assert last["response"]["status"] == "cancelled"
    for _ in range(100):  # they come back within a step
        if "\ntroupe_kv_pages_leased 0\n" in httpx.get(server.url + "/metrics").text:
            return
        time.sleep(0.05)
    pytest.fail("pages are still leased")
