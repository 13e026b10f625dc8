"""One streamed completion over HTTP, timed: what every server is measured with.

Prompts are token ids, so that every server gets the same ones and no template takes part."""

import http.client
import json
import socket
import threading
import time

TIMEOUT_S = 600


class Stream(threading.Thread):
    """Sends a greedy request and notes when text arrives. `seen` is set from the event number
    `after` on, or when the stream ends."""

    def __init__(self, port, prompt, tokens, after=1):
        super().__init__(daemon=True)
        self.body = json.dumps({"model": "default", "prompt": prompt, "max_tokens": tokens,
                                "temperature": 0, "ignore_eos": True, "stream": True})
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        self.arrivals, self.error, self.after = [], None, after
        self.sent = None
        self.seen = threading.Event()

    def run(self):
        try:
            self.connection.connect()
            self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sent = time.monotonic()
            self.connection.request("POST", "/v1/completions", self.body,
                                    {"Content-Type": "application/json"})
            reply = self.connection.getresponse()
            if reply.status != 200:
                self.error = f"status {reply.status}: {reply.read(300)}"
            else:
                self.read(reply)
        except (OSError, ValueError, AttributeError, http.client.HTTPException) as error:
            self.error = self.error or repr(error)  # also after drop(), where nobody asks
        self.seen.set()

    def read(self, reply):
        for line in reply:
            if line.startswith(b"data: {") and b'"text":""' not in line:
                self.arrivals.append(time.monotonic())
                if len(self.arrivals) >= self.after:
                    self.seen.set()

    def drop(self):
        """Ends the connection as a vanished client does."""
        if self.connection.sock:
            self.connection.sock.shutdown(socket.SHUT_RDWR)

    def ttft(self):
        if self.error or not self.arrivals:
            raise RuntimeError(f"a request failed: {self.error or 'no text'}")
        return self.arrivals[0] - self.sent


def together(streams):
    """Starts all, waits for all; returns them."""
    for stream in streams:
        stream.start()
    for stream in streams:
        stream.join()
    return streams


def answer(port, prompt, tokens=1):
    """One request by itself; its stream, which has ended."""
    return together([Stream(port, prompt, tokens)])[0]


def get(port, path, body=None):
    """The reply's bytes; a POST where there is a body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    connection.request("POST" if body else "GET", path, body, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    if reply.status != 200:
        raise RuntimeError(f"{path}: status {reply.status}: {text[:300]}")
    return text


def get_json(port, path, body=None):
    return json.loads(get(port, path, json.dumps(body) if body else None))
