"""A running `troupe serve`, for tests and for whoever drives the page against the real server."""

import os
import pathlib
import re
import signal
import subprocess
import threading
import time

import httpx

ROOT = pathlib.Path(__file__).resolve().parents[2]
TROUPE = os.environ.get("TROUPE", str(ROOT / "build" / "release" / "troupe"))
STORIES = ROOT.parent / "shared" / "data" / "1-model" / "stories260K"
MODEL = os.environ.get("TROUPE_TEST_MODEL", "")
# Flags of every server, before a test's own: the same tests on another backend.
FLAGS = os.environ.get("TROUPE_TEST_FLAGS", "").split()


class Server:
    """A running `troupe serve`. Its log is kept and shown where a test fails."""

    def __init__(self, *flags, model=None, program=TROUPE, variables=None):
        model = model or MODEL
        port = () if "--port" in flags else ("--port", "0")
        self.process = subprocess.Popen(
            [program, "serve", "--model", model, *port, *FLAGS, *flags],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            env=dict(os.environ, **(variables or {})))
        self.log = []
        self.url = None
        self._ready = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        if not self._ready.wait(60) or self.url is None:
            self.process.kill()
            raise RuntimeError("troupe did not start:\n" + "".join(self.log))

    def _read(self):
        for line in self.process.stdout:
            self.log.append(line)
            found = re.search(r"(https?://\S+:\d+)", line)
            if found and "ready" in line:
                self.url = found.group(1)
                self._ready.set()
        self._ready.set()

    @property
    def ws_url(self):
        return self.url.replace("http", "ws", 1) + "/v1/responses"

    def metrics(self):
        """/metrics as a dictionary from sample name (with labels) to number."""
        samples = {}
        for line in httpx.get(self.url + "/metrics").text.splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                samples[name] = float(value)
        return samples

    def wait_idle(self, seconds=10):
        """Until no request runs or waits and no page is leased; gives the last metrics."""
        deadline = time.monotonic() + seconds
        while True:
            m = self.metrics()
            busy = (m["troupe_requests_running"] + m["troupe_requests_waiting"] +
                    m["troupe_kv_pages_leased"])
            if busy == 0 or time.monotonic() > deadline:
                return m
            time.sleep(0.05)

    def rss_bytes(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text).group(1)) * 1024

    def stop(self, seconds=20):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
