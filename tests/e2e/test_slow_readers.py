"""Clients that read slowly, or not at all, among others that read as fast as they can."""

import json
import socket
import threading
import time

import pytest

from raw_websocket import PING, TEXT, RawWebSocket, text
from serving import Server
from wire import TERMINAL, Client, create, deltas_of, text_of

SLOW_BYTES_A_SECOND = 1000


def request(number, tokens):
    return create("the cat", temperature=1, seed=number, ignore_eos=True,
                  max_output_tokens=tokens)


@pytest.fixture(scope="module")
def toy():
    running = Server("--max-context", "40000", "--slow-client-seconds", "2", model="toy")
    yield running
    running.stop()


class SlowReader(RawWebSocket):
    """Reads only what it is told to, and asks its kernel to take little ahead."""

    def __init__(self, server, ahead_bytes=16384):
        super().__init__(server, ahead_bytes)

    def ask(self, message):
        self.send(text(json.dumps(message)))

    def read_slowly(self, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.buffer += self.socket.recv(SLOW_BYTES_A_SECOND // 10)
            time.sleep(0.1)

    def events(self):
        """All that comes from now on, up to the terminal event."""
        events = []
        while not events or events[-1]["type"] not in TERMINAL:
            opcode, payload = self.receive()
            assert opcode in (TEXT, PING), (opcode, payload)
            if opcode == TEXT:
                events.append(json.loads(payload))
        return events


def wait_for_slow_clients(server, count):
    deadline = time.monotonic() + 30
    while server.metrics()["troupe_slow_clients_closed_total"] < count:
        assert time.monotonic() < deadline, server.metrics()
        time.sleep(0.05)


def test_slow_readers_disturb_nobody_and_end_as_they_should(toy):
    undisturbed = {}
    with Client(toy) as client:
        for number in range(4):
            undisturbed[number] = text_of(client.answer(request(number, 1000))[0])
        long_text = text_of(client.answer(request(9, 4000))[0])

    silent, slow = SlowReader(toy), SlowReader(toy, ahead_bytes=2304)
    slow.ask(request(9, 4000))
    silent.ask(request(7, 30000))  # some of it its kernel takes
    answers = {}

    def read_fast(number):
        with Client(toy) as client:
            response, events = client.answer(request(number, 1000))
            answers[number] = text_of(response), deltas_of(events)

    readers = [threading.Thread(target=read_fast, args=(number,)) for number in undisturbed]
    for reader in readers:
        reader.start()
    slow.read_slowly(3)  # longer than a client may take nothing
    for reader in readers:
        reader.join()
    assert answers == {number: (said, said) for number, said in undisturbed.items()}

    # One that goes on reading is not cut off, and gets all there is, in fewer and longer pieces.
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
    events = slow.events()
    assert deltas_of(events) == long_text and text_of(events[-1]["response"]) == long_text
    assert sum(e["type"] == "response.output_text.delta" for e in events) < 4000
    slow.socket.close()

    # One that takes nothing is cut off, and its answer ends.
    wait_for_slow_clients(toy, 1)
    silent.socket.close()
    metrics = toy.wait_idle()
    assert metrics["troupe_requests_running"] == metrics["troupe_kv_pages_leased"] == 0
    assert metrics["troupe_slow_clients_closed_total"] == 1


@pytest.mark.long
def test_a_client_with_a_megabyte_unread_is_told_why_it_is_closed(toy):
    before = toy.metrics()["troupe_slow_clients_closed_total"]
    reader = SlowReader(toy)
    for lane in range(16):
        reader.ask({**request(lane, 18000), "stream_id": f"lane-{lane}"})

    def read_on():  # enough not to be cut off for taking nothing
        while not closed.is_set():
            reader.buffer += reader.socket.recv(4096)
            time.sleep(0.1)

    closed = threading.Event()
    reading = threading.Thread(target=read_on)
    reading.start()
    wait_for_slow_clients(toy, before + 1)
    closed.set()
    reading.join()
    assert reader.closed_with() == 1013
