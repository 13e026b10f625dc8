"""A tiny real model (stories260K) through the whole program: its documented texts, byte for byte."""

import json

import httpx
import pytest

from serving import FLAGS, STORIES
from test_command_line import run

pytestmark = pytest.mark.skipif(not STORIES.exists(),
                                reason="no ../shared/data/1-model/stories260K")
TEXTS = STORIES / "documented-expected-output.json"
CASES = [case for case in json.loads(TEXTS.read_text())["cases"]
         if case.get("temperature") == 0 and "steps" in case] if STORIES.exists() else []


def test_there_are_documented_texts():
    assert len(CASES) == 2


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['steps']} steps")
def test_the_command_line_gives_the_documented_text(stories, case):
    done = run("complete", "--model", stories, *FLAGS, "--arithmetic", "float32", "--prompt", "",
               "--temperature", "0", "--tokens", str(case["steps"]))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == case["expected"].strip()


def test_the_server_gives_it_too_to_several_at_once(stories, start_server):
    server = start_server("--arithmetic", "float32", model=stories)
    asked = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 60, "n": 4}
    answer = httpx.post(server.url + "/v1/completions", json=asked, timeout=60).json()
    texts = {"Once upon a time" + choice["text"] for choice in answer["choices"]}
    assert len(texts) == 1 and CASES[0]["expected"].startswith(texts.pop())
