"""Starts real troupe processes for the tests: one that all share, others for tests that break it."""

import pathlib
import subprocess

import pytest

from serving import MODEL, ROOT, STORIES, TROUPE, Server


def pytest_addoption(parser):
    parser.addoption("--operations", type=int, default=10_000,
                     help="how many operations test_abuse.py does")
    parser.addoption("--requests", type=int, default=1024,
                     help="how many requests test_load.py makes")


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes a minute or more")
    config.addinivalue_line("markers", "default_model: needs its words, or a context like its")


@pytest.fixture(scope="session")
def server():
    if not MODEL:
        pytest.skip("the default model is not here (tools/test fetches it)")
    running = Server()
    yield running
    assert running.process.poll() is None, "the server died:\n" + "".join(running.log[-50:])
    assert running.stop() == 0


@pytest.fixture
def start_server():
    """Starts servers with flags of the test's own; all are stopped at its end."""
    running = []

    def start(*flags, model=None):
        if model is None and not MODEL:
            pytest.skip("the default model is not here (tools/test fetches it)")
        running.append(Server(*flags, model=model))
        return running[-1]

    yield start
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


@pytest.fixture(scope="session")
def stories(tmp_path_factory):
    """The tiny model's GGUF file."""
    if not STORIES.exists():
        pytest.skip("no ../shared/data/1-model/stories260K")
    path = tmp_path_factory.mktemp("stories") / "stories260K.gguf"
    converter = pathlib.Path(TROUPE).parent / "tests" / "stories260k_to_gguf"
    subprocess.run([converter, path], check=True, cwd=ROOT)
    return str(path)
