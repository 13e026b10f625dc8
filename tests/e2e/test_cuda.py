"""The build with the CUDA backend, by nvcc, on a machine that has no card."""

import os
import pathlib
import subprocess

import httpx
import pytest

from serving import ROOT, Server

CUDA_TROUPE = pathlib.Path(os.environ.get("TROUPE_CUDA", ROOT / "build" / "cuda" / "troupe"))
pytestmark = [
    pytest.mark.skipif(not CUDA_TROUPE.exists(),
                       reason="no build/cuda/troupe (tools/test makes it where nvcc is)"),
    pytest.mark.skipif(pathlib.Path("/dev/nvidiactl").exists(),
                       reason="there is a card here: tools/gpu-check tries it"),
]


def test_without_a_driver_cuda_ends_with_one_line_that_says_what_to_do(stories):
    done = subprocess.run([CUDA_TROUPE, "serve", "--port", "0", "--backend", "cuda", "--model",
                           stories], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stdout == ""
    said = [line for line in done.stderr.splitlines() if line.startswith("troupe: ")]
    assert len(said) == 1
    assert "no CUDA device can be used" in said[0]
    assert "driver" in said[0] and "--backend cpu" in said[0]


def test_without_a_driver_auto_says_so_and_serves_on_the_cpu(stories):
    server = Server("--backend", "auto", model=stories, program=CUDA_TROUPE)
    try:
        assert any("no CUDA device can be used" in line and "running on the CPU" in line
                   for line in server.log)
        asked = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 8}
        answer = httpx.post(server.url + "/v1/completions", json=asked, timeout=60).json()
        assert answer["usage"]["completion_tokens"] == 8
    finally:
        assert server.stop() == 0
