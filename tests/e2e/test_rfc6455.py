"""The WebSocket protocol itself, by a client that may do everything wrong (RFC 6455)."""

import json
import struct
import time

import pytest

from raw_websocket import (BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, RawWebSocket, close,
                           connect, frame, text)
from serving import Server


@pytest.fixture(scope="module")
def toy():
    running = Server(model="toy")
    yield running
    assert running.stop() == 0


def ping_event(t):
    return json.dumps({"type": "troupe:ping", "t": t}, ensure_ascii=False)


def pong_of(client):
    opcode, payload = client.receive()
    assert opcode == TEXT
    event = json.loads(payload)
    assert event["type"] == "troupe:pong", event
    return event["t"]


def cut(data, *places):
    return [data[a:b] for a, b in zip((0, *places), (*places, len(data)))]


def fragments(pieces, opcode=TEXT):
    """One message in as many frames as pieces."""
    return [frame(opcode if i == 0 else CONTINUATION, piece, fin=i == len(pieces) - 1)
            for i, piece in enumerate(pieces)]


# Sections of the RFC stand beside what they rule.
@pytest.mark.parametrize("what", [
    pytest.param(text("{}", masked=False), id="a client's frame that is not masked (5.1)"),
    *[pytest.param(text("{}", reserved=bits), id=f"reserved bits {bits:03b} (5.2)")
      for bits in (1, 2, 4)],
    *[pytest.param(frame(opcode, b"x"), id=f"opcode {opcode:#x} (5.2)")
      for opcode in (0x3, 0x7, 0xB, 0xF)],
    pytest.param(frame(PING, b"x" * 126), id="a control frame above 125 bytes (5.5)"),
    pytest.param(frame(PING, b"x", fin=False), id="a control frame in fragments (5.5)"),
    pytest.param(frame(CLOSE, b"\x03\xe8", fin=False), id="a close frame in fragments (5.5)"),
    pytest.param(frame(CONTINUATION, b"x"), id="a continuation of nothing (5.4)"),
    pytest.param(text("a", fin=False) + text("b"), id="a message within a message (5.4)"),
    pytest.param(text("x" * 4, length=struct.pack(">H", 4)), id="a length in too many bytes (5.2)"),
    pytest.param(text("x" * 4, length=struct.pack(">Q", 4)), id="a length in 64 bits (5.2)"),
    pytest.param(frame(CLOSE, b"\x03"), id="a close code of one byte (5.5.1)"),
    *[pytest.param(close(code), id=f"close code {code} (7.4)")
      for code in (0, 999, 1004, 1005, 1006, 1015, 2999)],
])
def test_what_breaks_the_protocol_closes_1002(toy, what):
    with RawWebSocket(toy) as client:
        client.send(what)
        assert client.closed_with() == 1002


@pytest.mark.parametrize("what", [
    pytest.param([text(b"\xff")], id="no start of a character"),
    pytest.param([text(b"\xc0\xaf")], id="an overlong slash"),
    pytest.param([text(b"\xed\xa0\x80")], id="a surrogate"),
    pytest.param([text(b"\xf4\x90\x80\x80")], id="beyond U+10FFFF"),
    pytest.param([text(b"\xe2\x82")], id="a character that does not end"),
    pytest.param(fragments([b"\xe2", b"\x82", b"x"]), id="a fragment that does not go on"),
    pytest.param([text(b"\xff", fin=False)], id="seen before the message has ended"),
])
def test_what_is_not_utf_8_closes_1007(toy, what):
    with RawWebSocket(toy) as client:
        client.send(b"".join(what))
        assert client.closed_with() == 1007


def test_what_is_too_long_closes_1009(toy):
    half = b"x" * (1 << 19)
    for what in (text(b"", length=struct.pack(">Q", 1 << 40)),
                 b"".join(fragments([half, half, b"x"]))):
        with RawWebSocket(toy) as client:
            client.send(what)
            assert client.closed_with() == 1009


def test_a_binary_message_closes_1003(toy):
    for what in (frame(BINARY, b"\0"), b"".join(fragments([b"\0", b"\1"], BINARY))):
        with RawWebSocket(toy) as client:
            client.send(what)
            assert client.closed_with() == 1003


def test_a_malformed_frame_behind_one_that_is_refused_leaves_nothing_behind(toy):
    before = toy.metrics()["troupe_connections"]
    for _ in range(3):
        with RawWebSocket(toy) as client:
            client.send(frame(BINARY, b"a") + frame(0xB, b"b", reserved=2) + b"more")
            assert client.receive()[0] == CLOSE
    deadline = time.monotonic() + 30
    while toy.metrics()["troupe_connections"] > before:
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.parametrize("code", [1000, 1001, 1003, 1007, 1011, 3000, 4000, 4999])
def test_a_close_frame_is_answered_by_its_own_code(toy, code):
    with RawWebSocket(toy) as client:
        client.send(close(code, "näher".encode()))
        assert client.closed_with() == code


def test_a_close_reason_that_is_not_utf_8_is_an_error_too(toy):
    with RawWebSocket(toy) as client:
        client.send(close(1000, b"\xff"))
        assert client.closed_with() in (1002, 1007)


def test_a_close_frame_without_a_code_is_answered(toy):
    with RawWebSocket(toy) as client:
        client.send(frame(CLOSE))
        assert client.closed_with() in (None, 1000)


def test_what_follows_a_close_frame_is_not_read(toy):
    with RawWebSocket(toy) as client:
        client.send(close(1000) + text(ping_event("late")))
        assert client.receive()[0] == CLOSE


def test_a_ping_is_answered_at_once_even_within_a_message(toy):
    message = ping_event("whole").encode()
    with RawWebSocket(toy) as client:
        for payload in (b"", b"x", bytes(range(125))):
            client.send(frame(PING, payload))
            assert client.receive() == (PONG, payload)
        first, second, last = fragments(cut(message, 5, 9))
        client.send(first + frame(PING, b"1") + second)
        assert client.receive() == (PONG, b"1")
        client.send(frame(PONG, b"nobody asked") + last)
        assert pong_of(client) == "whole"


def frames_within(client, seconds, answers):
    """The opcodes that come, and whether the server has closed the connection by then."""
    deadline, came = time.monotonic() + seconds, []
    client.socket.settimeout(0.1)
    while time.monotonic() < deadline:
        try:
            opcode, payload = client.receive()
        except TimeoutError:
            continue
        except ConnectionError:
            return came, True
        came.append(opcode)
        if answers:
            client.send(frame(PONG, payload))
    return came, False


def test_a_silent_client_is_pinged_and_given_up_where_nothing_comes_of_it():
    server = Server("--heartbeat-seconds", "1", model="toy")
    with RawWebSocket(server) as client:
        assert frames_within(client, 30, answers=False) == ([PING], True)
    with RawWebSocket(server) as client:
        came, closed = frames_within(client, 6, answers=True)
        assert set(came) == {PING} and len(came) >= 2 and not closed
    assert server.stop() == 0


def test_a_message_may_come_in_any_pieces(toy):
    message = ping_event("Grüße, 世界 🌍").encode()
    with RawWebSocket(toy) as client:
        for size in (1, 2, 3, 7):  # also in the middle of characters
            client.send(b"".join(fragments(cut(message, *range(size, len(message), size)))))
            assert pong_of(client) == "Grüße, 世界 🌍"
        client.send(b"".join(fragments([b"", message, b"", b""])))
        assert pong_of(client) == "Grüße, 世界 🌍"
        for byte in text(message) + text(ping_event("next")):
            client.send(bytes([byte]))
        assert [pong_of(client), pong_of(client)] == ["Grüße, 世界 🌍", "next"]


@pytest.mark.parametrize("size", [125, 126, 127, 65535, 65536, 65537])
def test_every_form_of_length_is_read(toy, size):
    empty = json.dumps({"type": "troupe:ping", "t": 1, "filler": ""})
    message = empty.replace('""', f'"{"x" * (size - len(empty))}"')
    with RawWebSocket(toy) as client:
        client.send(text(message))
        assert pong_of(client) == 1


def test_many_messages_in_one_packet_are_answered_in_order(toy):
    with RawWebSocket(toy) as client:
        client.send(b"".join(text(ping_event(i)) for i in range(50)))
        assert [pong_of(client) for _ in range(50)] == list(range(50))


def test_a_close_frame_ends_what_streams(toy):
    with RawWebSocket(toy) as client:
        client.send(text(json.dumps({"type": "response.create", "input": "the cat", "store": False,
                                     "max_output_tokens": 1_000_000, "ignore_eos": True})))
        client.receive()
        client.send(close(1000))
        assert client.closed_with() == 1000
    assert toy.wait_idle(10)["troupe_requests_running"] == 0


@pytest.mark.parametrize("lines, status", [
    ("Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n", 400),
    ("Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 12\r\n"
     "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", 426),
    ("Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
     "Sec-WebSocket-Key: c2hvcnQ=\r\n", 400),
    ("Upgrade: h2c\r\nConnection: Upgrade\r\n", 426),
    ("Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
     "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", 426),
])
def test_a_handshake_that_lacks_something_is_refused(toy, lines, status):
    with connect(toy) as raw:
        raw.sendall(f"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode())
        assert raw.recv(4096).startswith(f"HTTP/1.1 {status}".encode())


def test_what_comes_in_one_packet_with_the_handshake_is_read(toy):
    with connect(toy) as raw:
        raw.sendall(b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
                    b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
                    + text(ping_event("early")))
        answer = b""
        while b'"t":"early"' not in answer:
            piece = raw.recv(4096)
            assert piece, answer
            answer += piece
    assert b"\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in answer
