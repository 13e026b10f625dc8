"""nginx and HAProxy in front of the server, by the configurations that docs/proxies holds: only
ports and paths are the test's."""

import json
import re
import shutil
import socket
import subprocess
import time

import httpx
import pytest

from certificates import Authority
from serving import ROOT
from wire import TERMINAL, TlsSocket, check_order, create

CONFIGURATIONS = ROOT / "docs" / "proxies"
ENDLESS = {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 4000,
           "ignore_eos": True, "stream": True}


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def replaced(text, changes):
    for old, new in changes.items():
        assert old in text, f"the configuration does not say {old!r} any more"
        text = text.replace(old, str(new))
    return text


def nginx_command(folder, port, upstream, certificate, key):
    text = replaced((CONFIGURATIONS / "nginx.conf").read_text(), {
        "127.0.0.1:8080": upstream, "listen 443": f"listen 127.0.0.1:{port}",
        "/etc/ssl/chat.example.org.pem": certificate, "/etc/ssl/chat.example.org.key": key})
    (folder / "troupe.conf").write_text(text)
    paths = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in
                    ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/log; events {{}}\n"
        f"http {{ access_log off; {paths} include {folder}/troupe.conf; }}\n")
    return ["nginx", "-e", folder / "log", "-p", folder, "-c", folder / "nginx.conf"]


def haproxy_command(folder, port, upstream, certificate, key):
    both = folder / "both.pem"
    both.write_text(certificate.read_text() + key.read_text())
    text = replaced((CONFIGURATIONS / "haproxy.cfg").read_text(), {
        "127.0.0.1:8080": upstream, "bind :443": f"bind 127.0.0.1:{port}",
        "/etc/haproxy/chat.example.org.pem": both})
    (folder / "haproxy.cfg").write_text(text)
    return ["haproxy", "-db", "-f", folder / "haproxy.cfg"]


COMMANDS = {"nginx": nginx_command, "haproxy": haproxy_command}


class Proxy:
    def __init__(self, server, url, authority):
        self.server = server
        self.url = url
        self.context = authority.context()
        self.http = httpx.Client(base_url=url, verify=self.context, timeout=60)

    def socket(self):
        return TlsSocket(self.url.replace("https", "wss") + "/v1/responses", self.context)


@pytest.fixture(params=COMMANDS)
def proxy(request, start_server, tmp_path):
    name = request.param
    if not shutil.which(name):
        pytest.skip(f"{name} is not installed")
    server = start_server("--trusted-proxy", "127.0.0.1")
    authority, port = Authority(tmp_path), free_port()
    command = COMMANDS[name](tmp_path, port, server.url.removeprefix("http://"),
                             *authority.issue("proxy"))
    log = tmp_path / "output"
    running = subprocess.Popen(command, stdout=log.open("w"), stderr=subprocess.STDOUT)
    proxy = Proxy(server, f"https://127.0.0.1:{port}", authority)
    deadline = time.monotonic() + 20
    while True:
        try:
            if proxy.http.get("/health").status_code == 200:
                break
        except httpx.TransportError:
            pass
        assert running.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    yield proxy
    running.terminate()
    running.wait(20)


def test_everything_goes_through(proxy):
    assert "<title>" in proxy.http.get("/").text
    with proxy.socket() as client:
        client.send(json.dumps(create("Count to five.", max_output_tokens=16, temperature=0)))
        events = [json.loads(client.recv())]
        while events[-1]["type"] not in TERMINAL:
            events.append(json.loads(client.recv()))
        check_order(events)
    too_large = proxy.http.post("/v1/responses", content=b"x" * (9 << 20))
    assert too_large.status_code == 413

    # Words come before the answer ends, and a client that leaves ends it.
    with proxy.http.stream("POST", "/v1/chat/completions", json=ENDLESS) as stream:
        lines = stream.iter_lines()
        assert len([line for _, line in zip(range(12), lines) if line]) == 6
        assert proxy.server.metrics()["troupe_requests_running"] == 1
    assert proxy.server.wait_idle(10)["troupe_requests_running"] == 0
    with proxy.socket() as client:
        client.send(json.dumps(create("Tell me a story.", max_output_tokens=4000,
                                      ignore_eos=True)))
        client.recv()
        client.vanish()
    assert proxy.server.wait_idle(10)["troupe_requests_running"] == 0

    # Kept responses are their owner's, by address: nobody takes another's by writing it down.
    kept = httpx.post(proxy.server.url + "/v1/responses", timeout=60,
                      json={"input": "Hi", "max_output_tokens": 2},
                      headers={"X-Forwarded-For": "192.0.2.1"}).json()["id"]

    def read(client, address):
        return client("/v1/responses/" + kept,
                      headers={"X-Forwarded-For": address}).status_code
    direct = httpx.Client(base_url=proxy.server.url)
    assert (read(direct.get, "192.0.2.1"), read(direct.get, "192.0.2.2")) == (200, 404)
    assert read(proxy.http.get, "192.0.2.1") == 404
    mine = proxy.http.post("/v1/responses", json={"input": "Hi", "max_output_tokens": 2})
    assert proxy.http.get("/v1/responses/" + mine.json()["id"]).status_code == 200


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_a_stream_over_http_2(proxy, tmp_path):
    done = subprocess.run(
        ["curl", "--silent", "--show-error", "--http2", "--write-out", "%{http_version}",
         "--cacert", tmp_path / "authority.pem", proxy.url + "/v1/chat/completions", "--json",
         json.dumps({**ENDLESS, "max_tokens": 16})], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    *events, version = [part for part in re.split(r"\n+", done.stdout) if part]
    assert version == "2" and events[-1] == "data: [DONE]" and len(events) > 4
