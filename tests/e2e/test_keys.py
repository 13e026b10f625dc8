"""Keys with rates, and a file of keys that changes while the server runs."""

import signal
import time

import httpx
import openai
import pytest

from wire import Client

KEYS = "ada sk-ada-0123456789abcdef rpm=2 tpm=1000\nops sk-ops-0123456789abcdef admin\n"


def ask(server, key):
    return httpx.post(server.url + "/v1/chat/completions",
                      headers={"Authorization": f"Bearer {key}"},
                      json={"messages": [{"role": "user", "content": "the cat"}], "max_tokens": 2})


def test_a_rate_is_told_and_kept(start_server, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(KEYS)
    server = start_server("--api-keys", str(keys), model="toy")
    first = ask(server, "sk-ada-0123456789abcdef")
    assert first.status_code == 200
    assert first.headers["x-ratelimit-limit-requests"] == "2"
    assert first.headers["x-ratelimit-remaining-requests"] == "1"
    assert first.headers["x-ratelimit-limit-tokens"] == "1000"
    assert int(first.headers["x-ratelimit-remaining-tokens"]) < 1000
    assert first.headers["x-ratelimit-reset-requests"].endswith("ms")
    assert ask(server, "sk-ada-0123456789abcdef").status_code == 200
    refused = ask(server, "sk-ada-0123456789abcdef")
    assert refused.status_code == 429
    assert 0 < int(refused.headers["retry-after"]) <= 30
    api = openai.OpenAI(base_url=server.url + "/v1", api_key="sk-ada-0123456789abcdef",
                        max_retries=0)
    with pytest.raises(openai.RateLimitError):
        api.responses.create(model="default", input="the cat", max_output_tokens=2)
    others = ask(server, "sk-ops-0123456789abcdef")
    assert others.status_code == 200 and "x-ratelimit-limit-requests" not in others.headers


def test_a_short_lived_key_is_made_and_used(start_server, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(KEYS)
    server = start_server("--api-keys", str(keys), model="toy")

    def make(key, **body):
        return httpx.post(server.url + "/v1/realtime/client_secrets", json=body,
                          headers={"Authorization": f"Bearer {key}"})

    made = make("sk-ops-0123456789abcdef", expires_after={"seconds": 60}).json()
    assert 0 < made["expires_at"] - time.time() <= 61
    assert ask(server, made["value"]).status_code == 200
    with Client(server, subprotocols=["troupe.v1", "openai-insecure-api-key." + made["value"]]) as c:
        assert c.receive()["type"] == "troupe:session"
    assert make(made["value"]).status_code == 403
    assert make("sk-ops-0123456789abcdef", expires_after={"seconds": 9}).status_code == 400
    assert make("ek_wrong").status_code == 401


def test_keys_are_read_again_on_sighup(start_server, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(KEYS)
    server = start_server("--api-keys", str(keys), model="toy")

    def reload(text, wanted):
        keys.write_text(text)
        server.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 10
        while ask(server, "sk-new-0123456789abcdef").status_code != wanted:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    reload("new sk-new-0123456789abcdef\n", 200)
    assert ask(server, "sk-ada-0123456789abcdef").status_code == 401
    # A broken file changes nothing, and the log says so.
    keys.write_text("broken\n")
    server.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 10
    while not any("the keys stay as they were" in line for line in server.log):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert ask(server, "sk-new-0123456789abcdef").status_code == 200
