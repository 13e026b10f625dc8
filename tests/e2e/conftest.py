"""Starts real troupe processes for the tests: one that all share, others for tests that break it."""

import pytest

from serving import MODEL, Server


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes a minute or more")


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
