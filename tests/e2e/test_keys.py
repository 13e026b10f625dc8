"""Keys with rates, and a file of keys that changes while the server runs."""

import signal
import time

import httpx
import openai
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

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


def test_keys_are_read_again_when_their_file_changes(start_server, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(KEYS)
    server = start_server("--api-keys", str(keys), model="toy")
    with Client(server, additional_headers={"Authorization": "Bearer sk-ada-0123456789abcdef"}) as c:
        keys.write_text("new sk-new-0123456789abcdef\n")
        deadline = time.monotonic() + 20
        while ask(server, "sk-new-0123456789abcdef").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        with pytest.raises(ConnectionClosed) as closed:
            c.receive()
        assert closed.value.rcvd.code == 4401


def test_a_key_for_other_models_is_refused_and_told_what_to_do(start_server, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("ada sk-ada-0123456789abcdef models=llama,toy\n"
                    "bob sk-bob-0123456789abcdef models=llama\n")
    server = start_server("--api-keys", str(keys), model="toy")
    bob = {"Authorization": "Bearer sk-bob-0123456789abcdef"}
    assert ask(server, "sk-ada-0123456789abcdef").status_code == 200
    refused = ask(server, "sk-bob-0123456789abcdef")
    assert refused.status_code == 403
    error = refused.json()["error"]
    assert error["code"] == "forbidden" and 'models= of the key in the file' in error["message"]
    assert '"bob"' in error["message"] and '"toy"' in error["message"]
    assert httpx.get(server.url + "/v1/models", headers=bob).status_code == 403
    assert httpx.get(server.url + "/metrics", headers=bob).status_code == 200
    # What is kept needs no model: it is not found, rather than forbidden.
    assert httpx.get(server.url + "/v1/responses/resp_1", headers=bob).status_code == 404
    with pytest.raises(InvalidStatus) as handshake:
        Client(server, additional_headers=bob)
    assert handshake.value.response.status_code == 403
    with Client(server) as client:
        client.send({"type": "troupe:auth", "token": "sk-bob-0123456789abcdef"})
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                client.receive()
        assert closed.value.rcvd.code == 4403
    # A key that loses the model loses its sockets.
    with Client(server, additional_headers={"Authorization": "Bearer sk-ada-0123456789abcdef"}) as c:
        keys.write_text("ada sk-ada-0123456789abcdef models=llama\n")
        server.process.send_signal(signal.SIGHUP)
        with pytest.raises(ConnectionClosed) as closed:
            c.receive()
        assert closed.value.rcvd.code == 4403
