"""The unchanged `llm` command with its file of OpenAI-compatible models."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

LLM = pathlib.Path(sys.executable).parent / "llm"
QUESTION = "What is the capital of France?"


@pytest.fixture
def llm(server, tmp_path):
    """Runs `llm` with a home of its own that knows the server as `troupe` and `troupe-text`."""
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- model_id: troupe\n  model_name: default\n  api_base: {server.url}/v1\n"
        f"- model_id: troupe-text\n  model_name: default\n  api_base: {server.url}/v1\n"
        "  completion: true\n")

    def run(*arguments):
        return subprocess.run([LLM, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60, env={**os.environ,
                                                          "LLM_USER_PATH": str(tmp_path)})
    return run


def ask(llm, model, question, *more):
    done = llm("-m", model, question, "-o", "temperature", "0", "-o", "max_tokens", "24", *more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_llm_streams_what_it_gets_whole_too(llm):
    answer = ask(llm, "troupe", QUESTION)
    assert "Paris" in answer
    assert ask(llm, "troupe", QUESTION, "--no-stream") == answer


def test_llm_continues_a_conversation_and_logs_its_tokens(llm):
    ask(llm, "troupe", QUESTION)
    assert "Spain" in ask(llm, "troupe", "And of Spain?", "-c")
    last = json.loads(llm("logs", "-n", "1", "--json").stdout)[0]
    assert last["input_tokens"] > 20 and last["output_tokens"] > 2


def test_llm_completes_a_text(llm):
    assert len(ask(llm, "troupe-text", "Once upon a time").split()) > 5


def test_llm_says_what_the_server_says(llm):
    done = llm("-m", "troupe", "word " * 9000)
    assert done.returncode == 1 and "maximum context length is 8192" in done.stderr
