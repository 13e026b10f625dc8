"""HTTP/1.1 byte by byte: where a request begins and ends is never in doubt (RFC 9112), so nobody
smuggles one past a proxy; methods, half-closed sockets, CORS."""

import json
import re
import socket

import pytest

from raw_websocket import connect
from serving import Server

BODY = json.dumps({"prompt": "the", "max_tokens": 2, "temperature": 0}).encode()
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked"


@pytest.fixture(scope="module")
def toy():
    running = Server("--allow-origin", "https://page.example", model="toy")
    yield running
    assert running.stop() == 0


def request(*lines, method=b"POST", target=b"/v1/completions", host=b"Host: localhost\r\n",
            version=b"HTTP/1.1", body=b""):
    return method + b" " + target + b" " + version + b"\r\n" + host + \
        b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body


def length(body=BODY):
    return b"Content-Length: %d" % len(body)


LAST = request(b"Connection: close", method=b"GET", target=b"/version")


def chunks(*pieces, last=b"0\r\n\r\n"):
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + last


def exchange(server, *sent, half_close=False):
    """All that comes back until the server closes; LAST makes it."""
    with connect(server) as raw:
        for data in sent:
            raw.sendall(data)
        if half_close:
            raw.shutdown(socket.SHUT_WR)
        got = b""
        try:
            while data := raw.recv(65536):
                got += data
        except ConnectionResetError:
            pass
        return got


def statuses(got):
    return [int(code) for code in re.findall(rb"HTTP/1\.[01] (\d{3})", got)]


# Each of these is read differently by different programs. The hidden request behind it must not be
# answered: one reply, and the connection is over.
AMBIGUOUS = {
    "a length and chunks": request(length(), CHUNKED, body=b"0\r\n\r\n" + HIDDEN),
    "chunks and a length": request(CHUNKED, length(), body=b"0\r\n\r\n" + HIDDEN),
    "two lengths": request(length(), b"Content-Length: 0", body=BODY + HIDDEN),
    "two equal lengths": request(length(), length(), body=BODY + HIDDEN),
    "a list of lengths": request(b"Content-Length: 5, 5", body=b"hello" + HIDDEN),
    "a signed length": request(b"Content-Length: +5", body=b"hello" + HIDDEN),
    "a negative length": request(b"Content-Length: -5", body=HIDDEN),
    "a hexadecimal length": request(b"Content-Length: 0x5", body=b"hello" + HIDDEN),
    "an endless length": request(b"Content-Length: 99999999999999999999", body=HIDDEN),
    "an empty length": request(b"Content-Length:", body=HIDDEN),
    "a length within blanks": request(b"Content-Length: 5 5", body=b"hello" + HIDDEN),
    "chunks in HTTP/1.0": request(CHUNKED, version=b"HTTP/1.0", body=chunks(BODY) + HIDDEN),
    "a coding that is not chunked": request(b"Transfer-Encoding: gzip", length(),
                                            body=BODY + HIDDEN),
    "a coding before chunked": request(b"Transfer-Encoding: gzip, chunked",
                                       body=chunks(BODY) + HIDDEN),
    "chunked not last": request(b"Transfer-Encoding: chunked, identity", length(),
                                body=BODY + HIDDEN),
    "chunked twice": request(CHUNKED, CHUNKED, body=chunks(BODY) + HIDDEN),
    "nearly chunked": request(b"Transfer-Encoding: xchunked", length(), body=BODY + HIDDEN),
    "a blank before the colon": request(b"Transfer-Encoding : chunked", length(),
                                        body=BODY + HIDDEN),
    "a bare LF ends a line": request(b"X: y\nContent-Length: 0", length(), body=BODY + HIDDEN),
    "a bare CR in a line": request(b"X: y\rContent-Length: 0", length(), body=BODY + HIDDEN),
    "NUL in a field": request(b"X: a\0b", length(), body=BODY + HIDDEN),
    "a field without a name": request(b": x", length(), body=BODY + HIDDEN),
    "a field without a colon": request(b"nonsense", length(), body=BODY + HIDDEN),
    "a first line that goes on": request(b" X: y", length(), host=b"", body=BODY + HIDDEN),
    "a chunk's size that is none": request(CHUNKED, body=b"zz\r\nab\r\n0\r\n\r\n" + HIDDEN),
    "a chunk's size with a sign": request(CHUNKED, body=b"-1\r\n\r\n0\r\n\r\n" + HIDDEN),
    "a chunk's size that wraps": request(CHUNKED, body=b"10000000000000001\r\na\r\n0\r\n\r\n" +
                                         HIDDEN),
    "a chunk longer than it says": request(CHUNKED, body=b"2\r\nabc\r\n0\r\n\r\n" + HIDDEN),
    "a chunk's line with a bare LF": request(CHUNKED, body=b"3\nabc\r\n0\r\n\r\n" + HIDDEN),
    "two hosts": request(b"Host: example.org", length(), body=BODY + HIDDEN),
    "no host": request(length(), host=b"", body=BODY + HIDDEN),
    "a blank in the target": request(length(), target=b"/v1/completions x", body=BODY + HIDDEN),
    "HTTP/0.9": b"GET /health\r\n\r\n" + HIDDEN,
    "HTTP/2 without asking": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN,
}


@pytest.mark.parametrize("data", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_what_could_be_read_in_two_ways_ends_the_connection(toy, data):
    got = exchange(toy, data)
    assert len(statuses(got)) == 1, got
    assert 400 <= statuses(got)[0] < 600 and b"/hidden" not in got


def test_a_body_in_chunks_is_a_body(toy):
    for head, body in ((length(), BODY), (CHUNKED, chunks(BODY)),
                       (CHUNKED, chunks(*[BODY[i:i + 1] for i in range(len(BODY))])),
                       (CHUNKED, b"%x;ext=1\r\n%b\r\n0\r\nTrailer: x\r\n\r\n" %
                        (len(BODY), BODY))):
        got = exchange(toy, request(head, b"Connection: close", body=body))
        assert statuses(got) == [200]
        assert json.loads(got.split(b"\r\n\r\n", 1)[1])["choices"][0]["text"] == " cat sat"


def test_pipelined_requests_are_answered_in_order(toy):
    several = b"".join(request(length(), body=BODY) + HIDDEN for _ in range(8))
    assert statuses(exchange(toy, several + LAST)) == [200, 404] * 8 + [200]
    byte_by_byte = [bytes([byte]) for byte in request(length(), body=BODY) + HIDDEN]
    assert statuses(exchange(toy, *byte_by_byte, LAST)) == [200, 404, 200]


def test_a_request_behind_a_stream_waits_for_its_end(toy):
    stream = json.dumps({"prompt": "the", "max_tokens": 200, "stream": True,
                         "ignore_eos": True}).encode()
    got = exchange(toy, request(length(stream), body=stream) + HIDDEN + LAST)
    assert statuses(got) == [200, 404, 200]
    assert got.index(b"[DONE]") < got.index(b"HTTP/1.1 404")


def test_a_line_folded_the_old_way_is_one_line_or_refused(toy):
    got = exchange(toy, request(b"X: a\r\n\tContent-Length: 0", length(), body=BODY) + LAST)
    assert statuses(got) in ([200, 200], [400])


def test_an_address_that_is_not_utf_8_is_refused_in_utf_8(toy):
    for target in (b"/v1/responses/\xff", b"/v1/responses/%ff", b"/v1/models/%e2%82"):
        got = exchange(toy, request(b"Connection: close", method=b"GET", target=target))
        assert statuses(got) == [400]
        json.loads(got.decode().split("\r\n\r\n", 1)[1])


def test_headers_have_a_limit_and_so_has_their_number(toy):
    assert statuses(exchange(toy, request(b"X: " + b"y" * 17_000, length(), body=BODY))) == [431]
    many = request(*[b"X: y"] * 5000, length(), body=BODY)
    assert statuses(exchange(toy, many)) == [431]
    long = request(method=b"GET", target=b"/" + b"a" * 9000)
    assert statuses(exchange(toy, long)) == [414]


@pytest.mark.parametrize("begin, goes_on", [
    (b"1;", b"x"), (b"1\r\na\r\n1;", b"x"), (b"0\r\nX: ", b"y"), (b"0\r\n", b"X: y\r\n")],
    ids=["a chunk's line", "a later one", "a trailer", "trailers"])
def test_what_stands_between_chunks_has_a_limit(toy, begin, goes_on):
    assert statuses(exchange(toy, request(CHUNKED), begin, goes_on * 100_000)) == [431]


def test_what_expects_100_continue_gets_it_or_the_refusal(toy):
    expect = b"Expect: 100-continue"
    with connect(toy) as raw:
        raw.sendall(request(expect, length()))
        assert raw.recv(4096).startswith(b"HTTP/1.1 100 ")
        raw.sendall(BODY)
        assert raw.recv(4096).startswith(b"HTTP/1.1 200 ")
    assert statuses(exchange(toy, request(expect, b"Content-Length: 99999999"))) == [413]
    assert statuses(exchange(toy, request(b"Expect: x", length(), body=BODY))) == [417]


def test_a_large_body_that_is_refused_still_gets_its_reply(toy):
    body = b"x" * (9 << 20)
    with connect(toy) as raw:
        try:
            raw.sendall(request(length(body), body=body))
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert statuses(raw.recv(4096)) == [413]


def test_a_half_closed_socket_gets_what_is_answered_at_once(toy):
    got = exchange(toy, request(method=b"GET", target=b"/health"), half_close=True)
    assert statuses(got) == [200]
    got = exchange(toy, request(length(), body=BODY[:-1]), half_close=True)
    assert statuses(got) in ([], [400])
    # For what takes a while, a client that has closed its side is a client that is gone.
    body = json.dumps({"prompt": "the", "max_tokens": 100_000_000, "ignore_eos": True}).encode()
    exchange(toy, request(length(body), body=body), half_close=True)
    assert toy.wait_idle(10)["troupe_requests_running"] == 0


def test_who_does_not_go_on_is_let_go(toy):
    with connect(toy) as headless, connect(toy) as silent:
        headless.sendall(b"GET /health HTTP/1.1\r\nHost: loc")
        assert headless.recv(1) == b"" and silent.recv(1) == b""


@pytest.mark.parametrize("target, allow", [
    ("/health", "GET, HEAD, OPTIONS"), ("/v1/completions", "POST, OPTIONS"),
    ("/v1/responses", "GET, HEAD, POST, OPTIONS"), ("/v1/responses/x", "GET, HEAD, DELETE, OPTIONS")])
def test_methods_are_known_told_and_refused(toy, target, allow):
    for method in ("PUT", "PATCH", "TRACE", "BREW", "CONNECT"):
        got = exchange(toy, request(b"Content-Length: 0", method=method.encode(),
                                    target=target.encode()) + LAST)
        assert statuses(got) == [405, 200] and f"Allow: {allow}\r\n".encode() in got
    got = exchange(toy, request(method=b"OPTIONS", target=target.encode()) + LAST)
    assert statuses(got) == [204, 200] and f"Allow: {allow}\r\n".encode() in got


def test_head_says_what_get_would_and_nothing_more(toy):
    for target in (b"/health", b"/", b"/v1/models", b"/v1/responses/none", b"/nothing"):
        head = exchange(toy, request(method=b"HEAD", target=target) + LAST)
        get = exchange(toy, request(method=b"GET", target=target) + LAST)
        assert statuses(head) == statuses(get)
        sizes = [re.search(rb"Content-Length: (\d+)", text).group(1) for text in (head, get)]
        assert sizes[0] == sizes[1]
        assert head.split(b"\r\n\r\n", 1)[1].startswith(b"HTTP/1.1 200")


def test_only_pages_that_are_allowed_may_read(toy):
    def ask(origin, method=b"OPTIONS"):
        return exchange(toy, request(b"Origin: " + origin, b"Connection: close", method=method,
                                     target=b"/v1/models"))

    allowed = ask(b"https://page.example")
    assert b"Access-Control-Allow-Origin: https://page.example\r\n" in allowed
    assert b"Access-Control-Allow-Headers: authorization, content-type" in allowed
    assert b"Vary: Origin" in allowed
    for origin in (b"https://evil.example", b"null", b"https://page.example.evil.example",
                   b"http://page.example"):
        refused = ask(origin, b"GET")
        assert statuses(refused) == [403] and b"Allow-Origin" not in refused
