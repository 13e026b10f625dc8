"""A small WebSocket client of the Responses protocol, for tests: sends, collects, checks the order."""

import asyncio
import json
import time

from websockets.asyncio.client import connect as connect_async
from websockets.sync.client import connect

TERMINAL = {"response.completed", "response.incomplete", "response.failed"}


def user(text):
    return {"type": "message", "role": "user",
            "content": [{"type": "input_text", "text": text}]}


def create(text, **fields):
    return {"type": "response.create", "input": [user(text)], "store": False, **fields}


class Client:
    def __init__(self, server, **options):
        self._connecting = connect(server.ws_url, max_size=None, **options)
        self.socket = self._connecting.__enter__()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, message):
        self.socket.send(json.dumps(message))

    def receive(self, timeout=60):
        return json.loads(self.socket.recv(timeout=timeout))

    def until(self, *types, timeout=60):
        """All events up to the first of one of these types."""
        events = []
        deadline = time.monotonic() + timeout
        while True:
            events.append(self.receive(max(0.01, deadline - time.monotonic())))
            if events[-1]["type"] in types:
                return events

    def answer(self, message, timeout=120):
        """Sends a create and returns (terminal response object, all its events)."""
        self.send(message)
        events = self.until(*TERMINAL, "error", timeout=timeout)
        assert events[-1]["type"] != "error", events[-1]
        return events[-1]["response"], events


class TlsSocket:
    """A WebSocket over TLS that is read and written on one thread. websockets.sync does it on two,
    which OpenSSL forbids and Python before 3.13 lets happen: some connections in a hundred lose
    their first request."""

    def __init__(self, url, context):
        self._loop = asyncio.new_event_loop()
        self._socket = self._run(connect_async(url, ssl=context, max_size=None))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._run(self._socket.close())
        self._loop.close()

    def _run(self, awaitable, timeout=30):
        async def wait():
            return await asyncio.wait_for(awaitable, timeout)

        return self._loop.run_until_complete(wait())

    def send(self, text):
        self._run(self._socket.send(text))

    def recv(self):
        return self._run(self._socket.recv())

    def vanish(self):
        self._socket.transport.abort()


def text_of(response):
    return "".join(part["text"] for item in response["output"] for part in item["content"])


def deltas_of(events):
    return "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")


def check_order(events):
    """Protocol: fixed order of events, contiguous sequence numbers, exactly one terminal event."""
    types = [e["type"] for e in events]
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    assert types[0] == "response.created"
    assert types[-1] in TERMINAL and sum(t in TERMINAL for t in types) == 1
    middle = [t for t in types[1:-1] if t not in ("response.queued", "response.in_progress",
                                                  "response.output_text.delta")]
    assert middle in ([], ["response.output_item.added", "response.content_part.added",
                           "response.output_text.done", "response.content_part.done",
                           "response.output_item.done"]), middle
    if middle:
        done = next(e for e in events if e["type"] == "response.output_text.done")
        assert done["text"] == deltas_of(events) == text_of(events[-1]["response"])
