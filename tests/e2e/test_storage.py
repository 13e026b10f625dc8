"""Kept responses: what a client has seen completed is there after a kill, for its owner alone."""

import signal
import threading

import httpx
import openai
from websockets.exceptions import ConnectionClosed

from serving import Server
from wire import Client, create, text_of


def kill(server):
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()


def test_killed_at_any_moment_nothing_acknowledged_is_lost(start_server, tmp_path):
    flags = ("--data-dir", str(tmp_path / "data"))
    acknowledged = {}
    for round_number in range(4):
        server = start_server(*flags, model="toy")
        for response_id, text in acknowledged.items():
            kept = httpx.get(f"{server.url}/v1/responses/{response_id}")
            assert kept.status_code == 200, kept.text
            assert text_of(kept.json()) == text
        timer = threading.Timer(0.4 + 0.17 * round_number, kill, (server,))
        timer.start()
        try:
            with Client(server) as client:
                for _ in range(1000):
                    response, _ = client.answer(create("the cat", store=True, max_output_tokens=3))
                    acknowledged[response["id"]] = text_of(response)
        except (ConnectionClosed, OSError):  # the kill, wherever it finds the client
            pass
        timer.join()
    assert len(acknowledged) > 4


def test_a_chain_goes_on_after_a_restart(start_server, tmp_path):
    flags = ("--data-dir", str(tmp_path / "data"))
    server = start_server(*flags)
    with Client(server) as client:
        # Only the second is kept; its chain needs the first all the same.
        first, _ = client.answer(create("Name a colour.", temperature=0, max_output_tokens=8))
        second, _ = client.answer(create("Another?", temperature=0, max_output_tokens=8,
                                         store=True, previous_response_id=first["id"]))
        third, _ = client.answer(create("And?", temperature=0, max_output_tokens=8,
                                        previous_response_id=second["id"]))
    kill(server)
    server = start_server(*flags)
    with Client(server) as client:
        again, _ = client.answer(create("And?", temperature=0, max_output_tokens=8,
                                        previous_response_id=second["id"]))
        assert text_of(again) == text_of(third)
        assert again["usage"]["input_tokens"] == third["usage"]["input_tokens"]
        client.send(create("And?", previous_response_id=first["id"]))
        assert client.receive()["code"] == "previous_response_not_found"
    api = openai.OpenAI(base_url=server.url + "/v1", api_key="unused")
    assert api.responses.retrieve(second["id"]).output_text == text_of(second)
    items = api.responses.input_items.list(second["id"])
    assert items.data[0].content[0].text == "Another?"
    api.responses.delete(second["id"])
    assert httpx.get(f"{server.url}/v1/responses/{second['id']}").status_code == 404


def test_a_data_folder_has_one_server(start_server, tmp_path):
    flags = ("--data-dir", str(tmp_path / "data"))
    start_server(*flags, model="toy")
    try:
        Server(*flags, model="toy")
    except RuntimeError as refused:
        assert "in use by another program" in str(refused)
    else:
        raise AssertionError("two servers share a data folder")
