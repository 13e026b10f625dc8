"""The WebSocket face over real sockets: order of events, lanes, cancel, prefixes, bad input."""

import json
import socket
import threading
import time

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from wire import Client, check_order, create, deltas_of, text_of, user


def greedy(text, tokens=16, **fields):
    return create(text, temperature=0, max_output_tokens=tokens, **fields)


def test_an_answer_streams_in_the_protocols_order(server):
    with Client(server) as client:
        response, events = client.answer(greedy("Count to five."))
        check_order(events)
        assert len([e for e in events if e["type"].endswith("delta")]) > 3
        assert response["usage"]["output_tokens"] > 3
        assert response["usage"]["total_tokens"] == \
            response["usage"]["input_tokens"] + response["usage"]["output_tokens"]


def test_the_token_limit_makes_the_response_incomplete(server):
    with Client(server) as client:
        response, events = client.answer(greedy("Tell me a story.", tokens=5))
        assert events[-1]["type"] == "response.incomplete"
        assert response["incomplete_details"] == {"reason": "max_output_tokens"}
        assert response["usage"]["output_tokens"] == 5


def test_type_may_come_last_and_unknown_fields_are_ignored(server):
    with Client(server) as client:
        client.socket.send('{"background":false,"stream":true,"client_metadata":{"a":[1]},'
                           '"input":"Hi","max_output_tokens":2,"tools":[{"type":"made_up"}],'
                           '"temperature":0,"type":"response.create"}')
        check_order(client.until("response.completed", "response.incomplete"))


def test_lanes_run_side_by_side_and_one_lane_in_order(server):
    with Client(server) as client:
        for lane in ("a", "b"):
            client.send(greedy("Tell me a long story.", tokens=40, stream_id=lane))
        client.send(greedy("Say hi.", tokens=4, stream_id="a"))
        events = {"a": [], "b": []}
        order = []
        while sum(e["type"] in ("response.completed", "response.incomplete")
                  for lane in events.values() for e in lane) < 3:
            event = client.receive()
            events[event["stream_id"]].append(event)
            order.append(event["stream_id"])
        first_end = next(i for i, e in enumerate(events["a"])
                         if e["type"] in ("response.completed", "response.incomplete"))
        check_order(events["a"][:first_end + 1])
        check_order(events["a"][first_end + 1:])
        check_order(events["b"])
        first_b, last_b = order.index("b"), len(order) - order[::-1].index("b")
        assert "a" in order[first_b:last_b], "the lanes did not interleave"


def test_cancel_ends_the_answer_and_keeps_what_was_said(server):
    with Client(server) as client:
        client.send(greedy("Tell me a very long story.", tokens=2000, ignore_eos=True))
        events = client.until("response.output_text.delta")
        client.send({"type": "response.cancel"})
        events += client.until("response.incomplete", "response.completed")
        check_order(events)
        assert events[-1]["response"]["status"] == "cancelled"
        assert deltas_of(events) == text_of(events[-1]["response"]) != ""
        client.send({"type": "response.cancel"})  # nothing runs any more: no harm
        client.answer(greedy("Hi", tokens=2))
    metrics = server.wait_idle()
    assert metrics["troupe_kv_pages_leased"] == 0


def test_cancel_of_an_unknown_id_is_a_404_event(server):
    with Client(server) as client:
        client.send({"type": "response.cancel", "response_id": "resp_none", "event_id": "e1"})
        error = client.receive()
        assert error["type"] == "error" and error["status"] == 404
        assert error["error"]["event_id"] == "e1"


def test_a_vanished_client_frees_its_slot(server):
    client = Client(server)
    client.send(greedy("Tell me a long story.", tokens=4000, ignore_eos=True))
    client.until("response.output_text.delta")
    raw = client.socket.socket
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    raw.close()  # no close frame, no FIN: a reset
    assert server.wait_idle(5)["troupe_requests_running"] == 0


@pytest.mark.default_model
def test_an_equal_prefix_is_computed_once(server):
    words = " ".join(f"item {i} costs {i * 7 % 90} coins," for i in range(110))
    with Client(server) as client, Client(server) as other:
        text = "Here is a list: " + words
        first, _ = client.answer(greedy(text + " What is first?", tokens=4))
        second, _ = other.answer(greedy(text + " What is last?", tokens=4))
        total = second["usage"]["input_tokens"]
        assert total > 1024
        assert second["usage"]["input_tokens_details"]["cached_tokens"] >= total - 48
        assert text_of(client.answer(greedy(text + " What is last?", tokens=4))[0]) == \
            text_of(second)


@pytest.mark.default_model
def test_a_prefix_is_shared_while_its_first_holder_still_runs(server):
    text = "Facts: " + " ".join(f"number {i} follows {i - 1}," for i in range(200))
    with Client(server) as holder, Client(server) as other:
        holder.send(greedy(text + " Go on.", tokens=600, ignore_eos=True))
        holder.until("response.output_text.delta")
        second, _ = other.answer(greedy(text + " Stop.", tokens=4))
        assert second["usage"]["input_tokens_details"]["cached_tokens"] >= 1024
        holder.send({"type": "response.cancel"})
        holder.until("response.incomplete", "response.completed")


@pytest.mark.default_model
def test_warming_a_prefix_gives_an_id_to_chain_from(server):
    with Client(server) as client:
        warm, events = client.answer(create("You are in a library. " * 40, generate=False))
        assert warm["output"] == [] and deltas_of(events) == ""
        response, _ = client.answer(greedy("Hi", tokens=3, previous_response_id=warm["id"]))
        assert response["usage"]["input_tokens_details"]["cached_tokens"] > 100


def test_a_failed_continuation_is_a_400_event(server):
    with Client(server) as client:
        client.send(greedy("Hi", previous_response_id="resp_unknown"))
        error = client.receive()
        assert (error["type"], error["status"], error["code"]) == \
            ("error", 400, "previous_response_not_found")


@pytest.mark.parametrize("text, code", [
    ("{", "invalid_json"),
    ('{"type":"response.create","input":"a\ud800b"}'.encode("utf-8", "surrogatepass"), None),
    ('{"type":"made.up"}', "unknown_event_type"),
    ('{"type":"response.create","input":"x","temperature":3}', "invalid_parameter"),
    ('{"type":"response.create","input":"x","top_p":"high"}', "invalid_parameter"),
    ('{"type":"response.create","input":"x","max_output_tokens":1.5}', "invalid_parameter"),
    ('{"type":"response.create","input":"x","stop":[""]}', "invalid_parameter"),
    ('{"type":"response.create","input":"x","stream_id":"no spaces"}', "invalid_stream_id"),
    ('{"type":"response.create","x":' + "[" * 100 + "]" * 100 + "}", "invalid_json"),
    ('{"type":"response.create","model":"gpt-9","input":"x"}', "model_not_found"),
])
def test_what_is_wrong_is_said_and_the_socket_lives(server, text, code):
    with Client(server) as client:
        if isinstance(text, bytes):  # not UTF-8: the protocol itself closes the socket
            client.socket.send(text.decode("utf-8", "surrogateescape").encode(
                "utf-8", "surrogateescape"), text=True)
            with pytest.raises(ConnectionClosed) as closed:
                client.receive()
            assert closed.value.rcvd.code == 1007
            return
        client.socket.send(text)
        error = client.receive()
        assert error["type"] == "error" and error["code"] == code, error
        response, _ = client.answer(greedy("Hi", tokens=2))
        assert response["usage"]["output_tokens"] == 2


def test_a_binary_frame_closes_1003_and_a_huge_one_1009(server):
    for message, code in ((b"\0\1", 1003), ("x" * (1 << 20) + "y", 1009)):
        with Client(server) as client:
            # The server closes as soon as it has read too much: this can end the send itself.
            with pytest.raises(ConnectionClosed) as closed:
                client.socket.send(message)
                client.receive()
            assert closed.value.rcvd.code == code


def test_user_text_never_becomes_a_control_token(server):
    plain = httpx.post(server.url + "/tokenize", json={"content": "<|im_end|>"}).json()["tokens"]
    assert 2 not in plain and len(plain) > 1


def test_hosts_and_origins_are_checked(server):
    assert httpx.get(server.url + "/health", headers={"Host": "evil.example"}).status_code == 403
    with pytest.raises(InvalidStatus) as refused:
        Client(server, origin="http://evil.example")
    assert refused.value.response.status_code == 403
    with Client(server, origin=server.url) as client:
        client.answer(greedy("Hi", tokens=1))


def test_a_troupe_client_is_greeted(server):
    with Client(server, subprotocols=["troupe.v1"]) as client:
        assert client.socket.subprotocol == "troupe.v1"
        hello = client.receive()
        assert hello["type"] == "troupe:session" and hello["connection_id"]
        client.send({"type": "troupe:ping", "t": 12})
        pong = client.receive()
        assert (pong["type"], pong["t"]) == ("troupe:pong", 12)


def test_http_reads_and_refuses(server):
    url = server.url
    assert httpx.get(url + "/health").status_code == 200
    assert httpx.get(url + "/ready").status_code == 200
    assert httpx.head(url + "/").status_code == 200
    assert httpx.get(url + "/nothing").status_code == 404
    wrong = httpx.get(url + "/v1/chat/completions")
    assert wrong.status_code == 405 and "POST" in wrong.headers["Allow"]
    assert httpx.options(url + "/v1/chat/completions").status_code == 204
    bad = httpx.post(url + "/v1/chat/completions", content="{}").json()["error"]
    assert set(bad) == {"message", "type", "param", "code"} and bad["param"] == "messages"
    assert httpx.post(url + "/v1/chat/completions", content="x",
                      headers={"Content-Encoding": "gzip"}).status_code == 415
    assert httpx.post(url + "/v1/responses", content=b"x" * (9 << 20)).status_code == 413
    page = httpx.get(url + "/")
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    assert "troupe_client" in page.cookies


def test_malformed_http_harms_nobody(server):
    host, port = server.url.removeprefix("http://").split(":")
    for raw in (b"\0\0\0\0\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 9000 +
                b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"POST /v1/responses HTTP/1.1\r\n"
                b"Host: localhost\r\nContent-Length: -5\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\n"
                b"X: " + b"b" * 20000 + b"\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=10) as s:
            s.sendall(raw)
            reply = s.recv(4096)
            assert reply == b"" or b" 4" in reply[:15] or b" 5" in reply[:15], reply
    assert httpx.get(server.url + "/health").status_code == 200


def test_a_client_that_never_reads_slows_nobody(server):
    silent = Client(server)
    for lane in range(8):
        silent.send(greedy("Tell me a long story.", tokens=300, stream_id=f"l{lane}",
                           ignore_eos=True))
    with Client(server) as other:
        started = time.monotonic()
        other.answer(greedy("Hi", tokens=16))
        assert time.monotonic() - started < 60
    silent.socket.socket.close()
    assert server.wait_idle(30)["troupe_requests_running"] == 0


def test_too_many_waiting_are_refused_with_a_time(start_server):
    server = start_server("--max-waiting", "2", "--max-running", "1")
    clients = [Client(server) for _ in range(8)]
    for client in clients:
        client.send(greedy("Tell me a story.", tokens=64, ignore_eos=True))
        if client is clients[0]:
            client.until("response.output_text.delta")
    outcomes = [client.until("response.completed", "response.incomplete", "response.failed",
                             "error", timeout=120) for client in clients]
    refused = [e for events in outcomes for e in events if e["type"] == "error"]
    assert refused and all(e["status"] == 429 and e["code"] == "rate_limit_exceeded"
                           for e in refused)
    finished = [events for events in outcomes if events[-1]["type"] == "response.incomplete"]
    assert len(finished) >= 3


def test_keys_guard_everything_but_the_page(start_server, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("ada sk-ada-0123456789abcdef admin\nbob sk-bob-0123456789abcdef\n")
    server = start_server("--api-keys", str(keys))
    assert httpx.get(server.url + "/").status_code == 200
    assert httpx.get(server.url + "/health").status_code == 200
    assert httpx.get(server.url + "/metrics").status_code == 401
    bob = {"Authorization": "Bearer sk-bob-0123456789abcdef"}
    assert httpx.get(server.url + "/v1/models", headers=bob).status_code == 200
    assert httpx.get(server.url + "/slots", headers=bob).status_code == 403
    assert httpx.get(server.url + "/debug/trace", headers=bob).status_code == 403
    assert "troupe_key_tokens_in_flight" not in httpx.get(server.url + "/metrics", headers=bob).text
    ada = {"Authorization": "Bearer sk-ada-0123456789abcdef"}
    assert 'troupe_key_tokens_in_flight{key="bob"} 0' in \
        httpx.get(server.url + "/metrics", headers=ada).text
    trace = httpx.get(server.url + "/debug/trace?seconds=60", headers=ada).json()
    assert isinstance(trace["traceEvents"], list)
    with Client(server, subprotocols=["troupe.v1",
                                      "openai-insecure-api-key.sk-bob-0123456789abcdef"]) as c:
        assert c.socket.subprotocol == "troupe.v1"
        c.until("troupe:session")
        c.answer(greedy("Hi", tokens=1))
    with Client(server, subprotocols=["troupe.v1", "openai-insecure-api-key.wrong"]) as c:
        assert c.receive()["status"] == 401
        with pytest.raises(ConnectionClosed) as closed:
            c.receive()
        assert closed.value.rcvd.code == 4401
    with Client(server) as c:
        c.send({"type": "troupe:auth", "token": "sk-ada-0123456789abcdef"})
        c.answer(greedy("Hi", tokens=1))


def test_sigterm_lets_running_answers_finish(start_server):
    server = start_server()
    with Client(server) as client:
        client.send(greedy("Tell me a story.", tokens=60, ignore_eos=True))
        client.until("response.output_text.delta")
        ended = []
        stopper = threading.Thread(target=lambda: ended.append(server.stop()))
        stopper.start()
        events = client.until("response.completed", "response.incomplete", "response.failed")
        assert events[-1]["response"]["usage"]["output_tokens"] == 60
        with pytest.raises(ConnectionClosed) as closed:
            client.receive(timeout=20)
        assert closed.value.rcvd.code in (1001, 1012)
        stopper.join()
    assert ended == [0]
