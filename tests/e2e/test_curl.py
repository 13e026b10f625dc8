"""The command line's own client: curl reads streams as they come, and speaks all of HTTP/1."""

import json
import pathlib
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")


def curl(*arguments, data=None):
    done = subprocess.run(["curl", "--silent", "--show-error", "--max-time", "60", *arguments],
                          input=data, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def chat(**fields):
    return json.dumps({"messages": [{"role": "user", "content": "Tell me a story."}],
                       "temperature": 0, "max_tokens": 48, **fields})


def events_of(text):
    return [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]


def text_of(events):
    return "".join(json.loads(event)["choices"][0]["delta"].get("content", "")
                   for event in events if event != "[DONE]")


def test_curl_sees_words_before_the_answer_ends(server):
    reading = subprocess.Popen(
        ["curl", "--silent", "--no-buffer", server.url + "/v1/chat/completions",
         "--json", chat(stream=True, max_tokens=2000, ignore_eos=True)],
        stdout=subprocess.PIPE, text=True)
    while '"content":"' not in (line := reading.stdout.readline()) or '"content":""' in line:
        assert line, "the stream ended without a word"
    assert server.metrics()["troupe_requests_running"] == 1
    reading.terminate()
    reading.wait()
    assert server.wait_idle(10)["troupe_requests_running"] == 0


def test_every_version_of_http_gives_the_same_stream(server):
    texts = set()
    for version in ("--http1.0", "--http1.1", "--http2"):  # the last asks for an upgrade: declined
        events = events_of(curl(version, "--no-buffer", server.url + "/v1/chat/completions",
                                "--json", chat(stream=True)))
        assert events[-1] == "[DONE]"
        texts.add(text_of(events))
    whole = json.loads(curl(server.url + "/v1/chat/completions", "--json", chat()))
    assert texts == {whole["choices"][0]["message"]["content"]}


def test_the_server_describes_its_routes(server):
    kept = pathlib.Path(__file__).resolve().parents[2] / "docs" / "openapi.json"
    assert curl(server.url + "/openapi.json") == kept.read_text()
    assert json.loads(curl(server.url + "/assets/openapi.json"))["error"]  # it has one address


def test_a_large_body_waits_for_100_continue(server):
    body = chat(messages=[{"role": "user", "content": "word " * 300_000}])
    out = curl("--verbose", "--stderr", "-", "-H", "Expect: 100-continue", "--json", "@-",
               server.url + "/v1/chat/completions", data=body)
    assert "HTTP/1.1 100 Continue" in out and "context_length_exceeded" in out


def test_a_slow_reader_gets_every_word(server):
    asked = chat(stream=True)
    quick = text_of(events_of(curl(server.url + "/v1/chat/completions", "--json", asked)))
    slow = text_of(events_of(curl("--limit-rate", "4k", server.url + "/v1/chat/completions",
                                  "--json", asked)))
    assert slow == quick


def test_one_connection_serves_request_after_request(server):
    out = curl("--verbose", "--stderr", "-", *[server.url + "/health"] * 3)
    assert out.count("Re-using existing connection") == 2


def test_curl_reads_headers_alone(server):
    head = curl("--head", server.url + "/health")
    assert head.startswith("HTTP/1.1 200") and "Content-Length:" in head
    assert "Allow: POST, OPTIONS" in curl("--include", "-X", "GET",
                                          server.url + "/v1/chat/completions")
