"""`schemathesis` makes requests, sound and unsound ones, from what the server serves as its own
description, and compares the answers with it."""

import pathlib
import subprocess
import sys

import httpx

PROGRAM = pathlib.Path(sys.executable).parent / "schemathesis"


def test_the_server_does_what_its_description_says(start_server, stories, tmp_path):
    server = start_server(model=stories)
    done = subprocess.run(
        [PROGRAM, "run", server.url + "/openapi.json", "--phases", "coverage,fuzzing",
         "--max-examples", "20", "--generation-deterministic", "--request-timeout", "10",
         # A description cannot say that a prompt fits the context or a token is in the vocabulary.
         "--exclude-checks", "positive_data_acceptance", "--no-color"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
        cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-8000:]
    left = httpx.get(server.url + "/slots").json()
    assert left["running"] == 0 and left["waiting"] == 0
