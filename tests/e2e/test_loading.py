"""The time before the model is there: what /ready, /health and the page's route say, and what a
terminal shows. In float32 the default model is expanded to half a gigabyte by one thread: not in an
instant, on any machine."""

import json
import os
import pty
import re
import socket
import subprocess
import time

import httpx
import pytest

from serving import MODEL, TROUPE

pytestmark = [pytest.mark.default_model,
              pytest.mark.skipif(not MODEL, reason="the default model is not here")]
SLOWLY = ("--model", MODEL, "--arithmetic", "float32", "--threads", "1")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def loading():
    """The address of a server that has just begun to load its model."""
    port = free_port()
    process = subprocess.Popen([TROUPE, "serve", "--port", str(port), *SLOWLY],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.communicate(timeout=30)


def answer(client, path):
    """None where nobody listens yet."""
    try:
        return client.get(path)
    except httpx.ConnectError:
        return None


def test_ready_tells_how_far_the_model_is_loaded(loading):
    seen = []
    deadline = time.monotonic() + 60
    with httpx.Client(base_url=loading) as client:
        while time.monotonic() < deadline:
            got = answer(client, "/ready")
            if got is None:
                time.sleep(0.002)
                continue
            if got.status_code == 200:
                break
            assert got.status_code == 503 and got.headers["Retry-After"] == "1"
            seen.append(json.loads(got.text))
            assert client.get("/health").status_code == 200
            assert "troupe" in client.get("/").text
        assert client.get("/ready").json()["status"] == "ready"
    shares = [one["loaded"] for one in seen]
    assert shares and shares == sorted(shares) and 0 <= shares[0] and shares[-1] <= 1
    for one in seen:
        assert one["status"] == "loading" and one["reason"] == "the model is loading"


def test_a_terminal_shows_a_percentage_that_is_gone_at_the_end():
    ours, its = pty.openpty()
    process = subprocess.Popen([TROUPE, "complete", "--prompt", "x", "--tokens", "1", *SLOWLY],
                               stdout=subprocess.DEVNULL, stderr=its)
    os.close(its)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # how Linux says that nobody writes any more
        pass
    os.close(ours)
    assert process.wait(60) == 0
    percents = [int(n) for n in re.findall(rb"\rloading \S+: (\d+) %", shown)]
    assert percents and percents == sorted(percents)
    assert shown.endswith(b"\r\x1b[K")
