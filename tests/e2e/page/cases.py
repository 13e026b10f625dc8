"""What every browser test of the page starts from: a server, a Chromium, a clean first visit."""

import os
import pathlib
import socket
import subprocess
import sys
import time
import unittest
import urllib.request

from page import Page, make_driver

HERE = pathlib.Path(__file__).resolve().parent
URL = os.environ.get("TROUPE_URL", "").rstrip("/")
SHOTS = os.environ.get("TROUPE_SHOTS")
scripted = unittest.skipIf(URL, "plays a script of fake_server.py; TROUPE_URL is set")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_fake(*arguments):
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, str(HERE / "fake_server.py"), "--port", str(port), *arguments])
    url = f"http://127.0.0.1:{port}"
    for _ in range(200):
        try:
            urllib.request.urlopen(url, timeout=1).close()
            return process, url
        except OSError:
            time.sleep(0.05)
    process.kill()
    raise RuntimeError("fake_server.py did not start")


class PageCase(unittest.TestCase):
    """One browser and server a class, a first visit a test, no console error in any."""

    fake_arguments = ("--down", "2")
    expected_console = ()

    @classmethod
    def setUpClass(cls):
        cls.url = URL
        if not URL:
            process, cls.url = start_fake(*cls.fake_arguments)
            cls.addClassCleanup(process.wait)
            cls.addClassCleanup(process.terminate)
        cls.driver = make_driver()
        cls.addClassCleanup(cls.driver.quit)

    def setUp(self):
        self.page = Page(self.driver, self.url, SHOTS)
        self.driver.get(self.url + "/assets/icon.svg")
        self.page.forget_everything()
        self.page.size(1280, 860)
        self.page.console_errors()
        self.page.open()

    def tearDown(self):
        errors = [line for line in self.page.console_errors()
                  if not any(part in line for part in self.expected_console)]
        self.assertEqual(errors, [])
