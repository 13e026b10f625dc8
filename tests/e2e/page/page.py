"""The chat page in a headless Chromium, as a person would use it."""

import pathlib
import time

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

WAIT_S = 60
LIVE = ("sending", "queued", "reading", "writing", "stopping", "resuming")


def make_driver():
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                     "--window-size=1280,860", "--lang=en"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    driver.set_script_timeout(WAIT_S)
    return driver


class Page:
    def __init__(self, driver, url, shots=None):
        self.driver = driver
        self.url = url
        self.shots = pathlib.Path(shots) if shots else None

    # Opening and looking

    def open(self, path="/"):
        self.driver.get(self.url + path)
        self.until_connected()

    def reload(self):
        self.driver.refresh()
        self.until_connected()

    def until(self, condition, what):
        return WebDriverWait(self.driver, WAIT_S, poll_frequency=0.05).until(
            lambda _: condition(), message=what)

    def until_connected(self):
        self.until(lambda: self.connection_phase() == "open", "the page connects")

    def connection_phase(self):
        return self.script("return document.getElementById('connection')?.dataset.phase")

    def script(self, source, *arguments):
        return self.driver.execute_script(source, *arguments)

    def find(self, selector):
        """The first match, once there is one."""
        return self.until(lambda: self.find_all(selector), f"an element {selector}")[0]

    def find_all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector):
        return self.script(
            "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText.trim())",
            selector)

    def console_errors(self):
        """Console lines of level SEVERE and every policy violation since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")
                if entry["level"] == "SEVERE" or "Content Security Policy" in entry["message"]]

    def import_module(self, name, body, *arguments):
        """Runs `body` (which may use `module`) with /assets/NAME imported; returns its value."""
        source = f"""
            const done = arguments[arguments.length - 1];
            import("/assets/{name}").then(async (module) => {{ {body} }})
                .then((value) => done({{value}}), (error) => done({{error: String(error)}}));
        """
        result = self.driver.execute_async_script(source, *arguments)
        if "error" in result:
            raise AssertionError(result["error"])
        return result.get("value")

    def shot(self, name):
        if self.shots:
            self.shots.mkdir(parents=True, exist_ok=True)
            self.driver.save_screenshot(str(self.shots / f"{name}.png"))

    def size(self, width, height, mobile=False):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile})

    def theme(self, name):
        self.script("window.troupeTheme.choose(arguments[0])", name)

    # Talking

    def send(self, text):
        box = self.find("#input")
        box.send_keys(text)
        box.send_keys(Keys.ENTER)

    def phase(self):
        """The phase of the last answer on the screen, or None."""
        phases = self.script(
            "return [...document.querySelectorAll('.answer')].map((e) => e.dataset.phase)")
        return phases[-1] if phases else None

    def answer_text(self):
        texts = self.texts(".answer .markdown")
        return texts[-1] if texts else ""

    def until_phase(self, *phases):
        self.until(lambda: self.phase() in phases, f"phase {phases}, is {self.phase()}")

    def until_ended(self):
        self.until(lambda: self.phase() not in (*LIVE, None), "the answer ends")
        return self.phase()

    def until_text_longer(self, length):
        self.until(lambda: len(self.answer_text()) > length, f"more than {length} characters")
        return self.answer_text()

    def until_footer(self, part):
        def last_footer():
            texts = self.texts(".answer .message-footer")
            return texts[-1] if texts else ""
        self.until(lambda: part in last_footer(), f"{part!r} under the answer")
        return last_footer()

    def stop(self):
        self.find("#send.stop").click()

    def stop_if_live(self):
        """For an answer that may have ended, or may end before the click."""
        for button in self.find_all("#send.stop"):
            button.click()

    def stop_answer(self, length=10):
        """Stops the last answer once it is longer than this. A real model may end its answer before
        the click; then it is asked again."""
        for _ in range(4):
            self.until_text_longer(length)
            self.stop_if_live()
            if self.until_ended() == "stopped":
                return
            self.find_all("[aria-label='Regenerate the answer']")[-1].click()
            self.until(lambda: self.phase() in LIVE, "a new answer begins")
        raise AssertionError("the model ended four answers before they could be stopped")

    def new_conversation(self):
        self.script("document.getElementById('new').click()")

    def forget_everything(self):
        """Empties the browser's storage, as on a first visit."""
        self.driver.execute_cdp_cmd("Storage.clearDataForOrigin", {
            "origin": self.url, "storageTypes": "indexeddb,local_storage"})
        time.sleep(0.1)
