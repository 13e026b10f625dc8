"""Runs test_page.py against the real server: python with_server.py [pytest arguments]"""

import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from serving import Server  # noqa: E402  (the path is set just above)


def main():
    server = Server("--sockets-per-client", "64")
    os.environ["TROUPE_URL"] = server.url
    try:
        return pytest.main([str(HERE / "test_page.py"), *sys.argv[1:]])
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
