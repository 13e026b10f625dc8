"""The proxy of litellm between the clients and the server."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time

import httpx
import openai
import pytest

BIN = pathlib.Path(sys.executable).parent
KEY = "sk-of-the-proxy-0123456789abcdef"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture
def proxy(server, tmp_path):
    """The proxy of litellm in front of the server, under the model name `troupe`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"model_list": [
        {"model_name": "troupe", "litellm_params": {
            "model": "openai/default", "api_base": server.url + "/v1", "api_key": "unused"}}]}))
    log = (tmp_path / "log").open("w+")
    running = subprocess.Popen(
        [BIN / "litellm", "--config", config, "--host", "127.0.0.1", "--port", str(port)],
        stdout=log, stderr=log, env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                                       "LITELLM_MASTER_KEY": KEY})
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 120
    while True:
        try:
            if httpx.get(url + "/health/liveliness").status_code == 200:
                break
        except httpx.TransportError:
            pass
        assert running.poll() is None and time.monotonic() < deadline, \
            pathlib.Path(log.name).read_text()[-3000:]
        time.sleep(0.5)
    yield openai.OpenAI(base_url=url, api_key=KEY, max_retries=0)
    running.terminate()
    running.wait(20)


def test_litellms_proxy_passes_everything_on(proxy):
    asked = {"model": "troupe", "messages": QUESTION, "temperature": 0, "max_tokens": 24}
    whole = proxy.chat.completions.create(**asked)
    assert "Paris" in whole.choices[0].message.content
    chunks = proxy.chat.completions.create(stream=True, **asked)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == \
        whole.choices[0].message.content
    assert proxy.responses.create(model="troupe", input="Say hello.", max_output_tokens=16,
                                  temperature=0).output_text
    with pytest.raises(openai.BadRequestError):
        proxy.chat.completions.create(**{**asked, "top_p": 7})
