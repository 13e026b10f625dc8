"""TLS of the server's own: the page, the official client, WebSockets, a new certificate, bad files."""

import json
import os
import signal
import socket
import ssl
import time

import httpx
import openai
import pytest

from certificates import Authority, openssl
from test_command_line import run
from wire import TERMINAL, TlsSocket, create, text_of

QUESTION = [{"role": "user", "content": "the cat"}]


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


def flags_of(files):
    return "--tls-cert", str(files[0]), "--tls-key", str(files[1])


@pytest.fixture
def secure(start_server, authority):
    server = start_server(*flags_of(authority.issue("first")), model="toy")
    assert server.url.startswith("https://")
    return server


def address_of(server):
    host, port = server.url.removeprefix("https://").split(":")
    return host, int(port)


def name_shown(server, authority):
    """The common name of the certificate that a new connection is shown."""
    with socket.create_connection(address_of(server)) as raw, \
            authority.context().wrap_socket(raw, server_hostname="127.0.0.1") as secured:
        return dict(pair[0] for pair in secured.getpeercert()["subject"])["commonName"]


def test_page_client_and_socket_over_tls(secure, authority):
    context = authority.context()
    page = httpx.get(secure.url + "/", verify=context)
    assert page.status_code == 200 and "Secure" in page.headers["Set-Cookie"]
    with httpx.Client(verify=context) as http, \
            openai.OpenAI(base_url=secure.url + "/v1", api_key="unused", max_retries=0,
                          http_client=http) as client:
        asked = {"model": "default", "messages": QUESTION, "max_tokens": 200, "temperature": 0,
                 "extra_body": {"ignore_eos": True}}
        whole = client.chat.completions.create(**asked).choices[0].message.content
        chunks = client.chat.completions.create(stream=True, **asked)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole != ""
    with TlsSocket(secure.ws_url, context) as client:
        client.send(json.dumps(create("the cat", max_output_tokens=200, temperature=0,
                                      ignore_eos=True)))
        while (event := json.loads(client.recv()))["type"] not in TERMINAL:
            pass
        assert text_of(event["response"]) == whole
        # A message in many records, and one that is refused for its size.
        client.send(json.dumps({"type": "troupe:ping", "t": "x", "filler": "y" * 900_000}))
        assert json.loads(client.recv())["t"] == "x"


def test_what_tls_does_not_protect_is_refused(secure, authority):
    with pytest.raises(httpx.ConnectError):
        httpx.get(secure.url + "/health")  # an authority that this client does not know
    old = authority.context()
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with socket.create_connection(address_of(secure)) as raw, pytest.raises(ssl.SSLError):
        old.wrap_socket(raw, server_hostname="127.0.0.1")
    plain = httpx.get(secure.url.replace("https", "http") + "/health")
    assert plain.status_code == 400 and "https://" in plain.text
    with socket.create_connection(address_of(secure), timeout=30) as silent:
        assert silent.recv(1) == b"", "who begins no handshake is let go"


def test_a_vanished_client_frees_its_slot_over_tls(secure, authority):
    with TlsSocket(secure.ws_url, authority.context()) as client:
        client.send(json.dumps(create("the cat", max_output_tokens=100_000, ignore_eos=True)))
        client.recv()
        client.vanish()
    with httpx.Client(verify=authority.context()) as http, \
            http.stream("POST", secure.url + "/v1/completions", json={
                "prompt": "the cat", "max_tokens": 100_000, "ignore_eos": True,
                "stream": True}) as stream:
        next(stream.iter_lines())
    deadline = time.monotonic() + 20
    while "troupe_requests_running 0" not in httpx.get(secure.url + "/metrics",
                                                       verify=authority.context()).text:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_new_certificate_is_shown_to_new_connections_alone(start_server, authority, tmp_path):
    files = tmp_path / "cert.pem", tmp_path / "key.pem"

    def install(name):
        for new, path in zip(authority.issue(name), files):
            (tmp_path / "new").write_bytes(new.read_bytes())
            os.replace(tmp_path / "new", path)

    def wait_for_name(name):
        deadline = time.monotonic() + 30
        while name_shown(server, authority) != name:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def wait_for_log(words):
        deadline = time.monotonic() + 30
        while not any(words in line for line in server.log):
            assert time.monotonic() < deadline
            time.sleep(0.1)

    install("before")
    server = start_server(*flags_of(files), model="toy")
    with TlsSocket(server.ws_url, authority.context()) as client:
        assert name_shown(server, authority) == "before"
        install("on-change")  # noticed by itself
        wait_for_name("on-change")
        install("on-signal")
        server.process.send_signal(signal.SIGHUP)
        wait_for_name("on-signal")
        files[0].write_text("no certificate\n")
        wait_for_log("the certificate stays as it was")
        assert name_shown(server, authority) == "on-signal"
        client.send(json.dumps({"type": "troupe:ping", "t": 1}))
        assert json.loads(client.recv())["t"] == 1, "the old connection lives"


def test_what_is_wrong_with_the_files_is_said(authority, tmp_path):
    certificate, key = authority.issue("right")
    other = authority.issue("other")[1]
    locked, garbage, empty = tmp_path / "locked", tmp_path / "garbage", tmp_path / "empty"
    openssl("ec", "-in", key, "-aes256", "-passout", "pass:secret", "-out", locked)
    garbage.write_text("-----BEGIN NONSENSE-----\n")
    empty.touch()
    for cert, private, code, words in [
            (tmp_path / "none", key, 1, "cannot read the certificate"),
            (certificate, tmp_path / "none", 1, "cannot read the private key"),
            (empty, key, 1, "it is empty"), (garbage, key, 2, "holds no certificate in PEM form"),
            (certificate, garbage, 2, "holds no private key in PEM form"),
            (certificate, other, 2, "does not belong to the certificate"),
            (certificate, locked, 2, "has a passphrase")]:
        done = run("serve", "--model", "toy", "--port", "0", *flags_of((cert, private)))
        assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    for flag in (["--tls-cert", str(certificate)], ["--tls-key", str(key)]):
        done = run("serve", "--model", "toy", "--port", "0", *flag)
        assert done.returncode == 2 and "--tls-" in done.stderr
