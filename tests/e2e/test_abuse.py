"""Random abuse by 64 people at once: creates, cancels, drops, resumes, garbage, slow readers. What
survives says what it says undisturbed, and nothing is left behind."""

import asyncio
import collections
import itertools
import json
import random
import socket
import time

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from serving import STORIES
from wire import TERMINAL, text_of

PEOPLE = 64
TEXTS = 90
PATIENCE_SECONDS = 600  # longer than any machine, or any backend, needs
GARBAGE = ["", "{", "[]", "null", '{"type":1}', '{"type":"made.up"}', '{"type":"response.create"}',
           '{"type":"response.create","input":7}', "\0", "[" * 500, '{"type":"response.cancel"}',
           '{"type":"response.create","input":"x","temperature":9,"stream_id":"bad"}',
           '{"type":"troupe:response.resume","response_id":"resp_0"}', "x" * 100_000]


def request_of(number):
    """The fields of this request: always the same, greedy and drawn, short and long."""
    rng = random.Random(number)
    words = ["Once", "upon", "a", "time", "there", "was", "the", "cat", "Lily", "and", "dog"]
    return {"input": " ".join(rng.choice(words) for _ in range(rng.randrange(1, 60))),
            "max_output_tokens": rng.randrange(1, 60), "seed": number, "ignore_eos": True,
            "temperature": rng.choice([0, 0.8]), "top_p": 0.95}


class Lane:
    """One response as one reader gets it."""

    def __init__(self, number, after=-1):
        self.number = number
        self.after = after
        self.last = after
        self.text = ""
        self.id = None


class Person:
    def __init__(self, index, crowd):
        self.crowd = crowd
        self.rng = random.Random(1000 + index)
        self.lanes = {}
        self.names = itertools.count()
        self.changed = asyncio.Event()

    async def live(self):
        while self.crowd.operations_left > 0:
            async with connect(self.crowd.server.ws_url, max_size=None, compression=None,
                               ping_interval=None) as self.socket:
                self.lanes = {}
                reading = asyncio.create_task(self.read())
                try:
                    await self.misbehave()
                except ConnectionClosed:
                    self.crowd.closed += 1
                self.socket.transport.abort()
                await reading

    async def misbehave(self):
        """Until this connection is to go: without a word, or with one."""
        kinds = [self.create] * 10 + [self.cancel] * 3 + [self.resume] * 2 + [self.garbage] * 2 + \
            [self.over_http, self.rest, self.vanish]
        while self.crowd.operations_left > 0:
            self.crowd.operations_left -= 1
            if await self.rng.choice(kinds)():
                return
        await self.rest()

    async def create(self):
        while len(self.lanes) >= 6:
            await self.next_change()
        number = self.rng.randrange(len(self.crowd.undisturbed))
        await self.begin(Lane(number), {"type": "response.create", **request_of(number),
                                        "store": self.rng.random() < 0.3})

    async def resume(self):
        if self.crowd.kept and len(self.lanes) < 6:
            number, identity, last = self.rng.choice(self.crowd.kept)
            after = self.rng.randrange(-1, last + 1)
            await self.begin(Lane(number, after), {
                "type": "troupe:response.resume", "response_id": identity,
                **({"starting_after": after} if after >= 0 else {})})

    async def begin(self, lane, message):
        name = f"lane-{next(self.names)}"
        self.lanes[name] = lane
        await self.socket.send(json.dumps({**message, "stream_id": name}))

    async def cancel(self):
        what = {"stream_id": self.rng.choice(list(self.lanes))} if self.lanes and \
            self.rng.random() < 0.9 else {"response_id": "resp_nobody"}
        await self.socket.send(json.dumps({"type": "response.cancel", **what}))

    async def garbage(self):
        await self.socket.send(self.rng.choice(GARBAGE))

    async def over_http(self):
        asked = {"prompt": "Once", "max_tokens": 200, "ignore_eos": True, "stream": True}
        async with self.crowd.http.stream("POST", "/v1/completions", json=asked) as stream:
            async for _ in stream.aiter_lines():
                if self.rng.random() < 0.2:
                    return

    async def rest(self):
        while self.lanes:
            await self.next_change()

    async def vanish(self):
        return True

    async def next_change(self):
        self.changed.clear()
        await asyncio.wait_for(self.changed.wait(), PATIENCE_SECONDS)

    async def read(self):
        try:
            async for message in self.socket:
                event = json.loads(message)
                name = event.get("stream_id")
                if name in self.lanes:
                    self.hear(name, event)
        except ConnectionClosed:
            pass
        self.lanes.clear()
        self.changed.set()

    def hear(self, name, event):
        lane, kind = self.lanes[name], event["type"]
        if kind == "error":
            if lane.id is None and lane.last == lane.after:  # refused: nothing will follow
                del self.lanes[name]
                self.changed.set()
            elif event["sequence_number"] == lane.last + 1:  # why the response fails, which follows
                lane.last += 1
            return
        number = event["sequence_number"]
        if lane.after < 0 or lane.last > lane.after:
            self.crowd.check(number == lane.last + 1 or kind in TERMINAL and lane.last == lane.after,
                             f"{kind} {number} after {lane.last}")
        lane.last = number
        if kind == "response.created":
            lane.id = event["response"]["id"]
            if event["response"]["store"]:
                self.crowd.kept.append((lane.number, lane.id, 0))
        elif kind == "response.output_text.delta":
            lane.text += event["delta"]
        elif kind in TERMINAL:
            self.judge(lane, event["response"])
            del self.lanes[name]
            self.changed.set()

    def judge(self, lane, response):
        said, expected = text_of(response), self.crowd.undisturbed[lane.number]
        if lane.id is not None:
            self.crowd.check(lane.text == said, f"the deltas of {lane.number} are not its text")
        status = response["status"]
        self.crowd.ends[status] += 1
        if status == "cancelled":
            self.crowd.check(expected.startswith(said), f"cancelled {lane.number}: {said!r}")
        elif status != "failed":
            self.crowd.check(said == expected, f"{lane.number}: {said!r} is not {expected!r}")


class Crowd:
    def __init__(self, server, operations, undisturbed):
        self.server = server
        self.operations_left = operations
        self.undisturbed = undisturbed
        self.kept = collections.deque(maxlen=200)
        self.ends = collections.Counter()
        self.faults = []
        self.closed = 0

    def check(self, holds, what):
        if not holds:
            self.faults.append(what)

    async def live(self):
        limits = httpx.Limits(max_connections=PEOPLE)
        async with httpx.AsyncClient(base_url=self.server.url, timeout=PATIENCE_SECONDS,
                                     limits=limits) as self.http:
            await asyncio.gather(*(Person(i, self).live() for i in range(PEOPLE)))


def slow_reader(server):
    """A client that asks for a long stream and reads as little as the test lets it."""
    host, port = server.url.removeprefix("http://").split(":")
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.connect((host, int(port)))
    body = json.dumps({"prompt": "Once", "max_tokens": 100_000, "ignore_eos": True, "n": 2,
                       "stream": True}).encode()
    raw.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" %
                (len(body), body))
    raw.setblocking(False)
    return raw


async def read_a_kilobyte_a_second(raw):
    while True:
        await asyncio.sleep(1)
        try:
            raw.recv(1024)
        except BlockingIOError:
            pass
        except ConnectionResetError:
            return


@pytest.fixture
def abused(start_server, request):
    model = request.getfixturevalue("stories") if STORIES.exists() else "toy"
    return start_server("--max-waiting", "400", "--kv-memory", "8MB", model=model)


@pytest.mark.long
def test_random_abuse_leaves_nothing_behind(abused, pytestconfig):
    operations = pytestconfig.getoption("operations")
    texts = min(TEXTS, operations // 20)
    undisturbed = []
    for number in range(texts):
        answer = httpx.post(abused.url + "/v1/responses", timeout=PATIENCE_SECONDS,
                            json={**request_of(number), "store": False})
        undisturbed.append(text_of(answer.json()))
    assert len(set(undisturbed)) > texts // 3

    def abuse(count):
        async def run():
            lazy, slow = slow_reader(abused), slow_reader(abused)
            reading = asyncio.create_task(read_a_kilobyte_a_second(slow))
            crowd = Crowd(abused, count, undisturbed)
            await crowd.live()
            reading.cancel()
            lazy.close()
            slow.close()
            return crowd
        crowd = asyncio.run(run())
        assert not crowd.faults, crowd.faults[:5]
        metrics = abused.wait_idle(60)
        assert metrics["troupe_requests_running"] == metrics["troupe_requests_waiting"] == 0
        assert metrics["troupe_kv_pages_leased"] == 0
        assert metrics["troupe_engine_restarts_total"] == 0
        deadline = time.monotonic() + 30
        while abused.metrics()["troupe_connections"] > 2:
            assert time.monotonic() < deadline, "connections are left"
            time.sleep(0.1)
        return crowd

    abuse(operations // 3)
    before = abused.rss_bytes()
    crowd = abuse(operations - operations // 3)
    grown = abused.rss_bytes() - before
    print(dict(crowd.ends), f"{crowd.closed} closed, {grown / 1e6:.1f} MB grown")
    assert crowd.ends["incomplete"] > operations // 8 and crowd.ends["cancelled"] > 0
    assert grown < 64 << 20, f"memory grew by {grown} bytes"
