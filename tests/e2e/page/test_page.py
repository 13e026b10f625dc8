"""End-to-end tests of the chat page in a headless Chromium.

    TROUPE_URL    base URL of a running server; without it fake_server.py is started here and the
                  scripted faults are played as well
    TROUPE_SHOTS  folder for screenshots (desktop light and dark, phone), optional

Run with: python -m unittest discover -v -s tests/e2e/page
Needs selenium (and aiohttp for the fake) from PyPI, chromium and chromium-driver from Debian.
"""

import time
import unittest

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from cases import SHOTS, PageCase, scripted
from page import LIVE, Page

LONG_PROMPT = "Slowly explain the history of Europe in great detail."
OTHER_PROMPT = "Slowly explain the history of all of Europe in great detail."


class Talking(PageCase):
    def test_answer_grows_and_ends_with_its_numbers(self):
        page = self.page
        page.send(LONG_PROMPT)
        first = page.until_text_longer(5)
        second = page.until_text_longer(len(first) + 20)
        self.assertEqual(second[:4], first[:4])
        page.stop()
        self.assertEqual(page.until_ended(), "stopped")
        stats = page.texts(".answer .stats")[-1]
        self.assertRegex(stats, r"(?s)\d tokens?.*tokens/s.*first token after")

    def test_the_tokens_show_their_alternatives(self):
        page = self.page
        page.send("Slowly count to ten.")
        page.stop_answer(20)
        toggle = page.find("[aria-label='Show the tokens']")
        toggle.click()
        self.assertEqual(toggle.get_attribute("aria-pressed"), "true")
        tokens = page.find_all(".token")
        self.assertGreater(len(tokens), 3)
        self.assertFalse(page.find(".answer .markdown").is_displayed())
        ActionChains(page.driver).move_to_element(tokens[1]).perform()
        page.until(lambda: page.find(".token-panel").is_displayed(), "the alternatives")
        self.assertIn(f"Token 2 of {len(tokens)}", page.find(".token-panel").text)
        self.assertEqual(len(page.find_all(".token-panel .chosen")), 1)
        self.assertGreaterEqual(len(page.find_all(".token-panel tr")), 3)
        self.assertRegex(page.find(".token-panel").text, r"\d %")
        page.find(".tokens").send_keys(Keys.ARROW_RIGHT)
        page.until(lambda: "Token 3 of" in page.find(".token-panel").text, "the next token")
        page.shot("tokens")
        toggle.click()
        self.assertTrue(page.find(".answer .markdown").is_displayed())
        self.assertFalse(page.find(".token-panel").is_displayed())

    def test_stop_keeps_the_text_and_says_so(self):
        page = self.page
        page.send(LONG_PROMPT)
        page.stop_answer(20)
        kept = page.answer_text()
        self.assertGreater(len(kept), 20)
        self.assertIn("Stopped", page.texts(".answer .note")[-1])
        time.sleep(0.5)
        self.assertEqual(page.answer_text(), kept)

    def test_escape_stops(self):
        page = self.page
        page.send(LONG_PROMPT)
        page.until_text_longer(10)
        page.find("#input").send_keys(Keys.ESCAPE)
        page.until_phase("stopped")

    def test_a_stopped_lane_takes_the_next_message(self):
        page = self.page
        page.send(LONG_PROMPT)
        page.stop_answer()
        page.send(LONG_PROMPT)
        page.until(lambda: len(page.find_all(".answer")) == 2, "a second answer")
        page.stop_answer()

    def test_shift_enter_is_a_newline(self):
        box = self.page.find("#input")
        box.send_keys("one")
        box.send_keys(Keys.SHIFT + Keys.ENTER)
        box.send_keys("two")
        self.assertEqual(box.get_property("value"), "one\ntwo")
        self.assertEqual(self.page.find_all(".message"), [])

    def test_conversation_survives_a_reload(self):
        page = self.page
        page.send(LONG_PROMPT)
        page.stop_answer(20)
        kept = page.answer_text()
        page.reload()
        page.until(lambda: page.answer_text() == kept, "the answer is back")
        self.assertEqual(page.texts(".bubble"), [LONG_PROMPT])
        self.assertEqual(page.phase(), "stopped")

    def test_reload_in_mid_answer_goes_on(self):
        page = self.page
        page.send(LONG_PROMPT)
        arrived = page.until_text_longer(40)
        page.reload()
        longer = page.until_text_longer(len(arrived) + 20)
        self.assertTrue(longer.startswith(arrived[:20]))
        page.stop_if_live()
        self.assertIn(page.until_ended(), ("done", "stopped"))

    def test_regenerate_replaces_the_answer(self):
        page = self.page
        page.send(LONG_PROMPT)
        page.stop_answer()
        page.find("[aria-label='Regenerate the answer']").click()
        page.until_phase("writing")
        self.assertEqual(len(page.find_all(".answer")), 1)
        page.stop()
        page.until_ended()

    def test_edit_truncates_and_sends_again(self):
        page = self.page
        for count in (1, 2):
            page.send(LONG_PROMPT)
            page.until(lambda: len(page.find_all(".answer")) == count, "an answer")
            page.stop_answer()
        page.script("document.querySelector('[aria-label=\"Edit and send again\"]').click()")
        area = page.find(".editing textarea")
        area.send_keys(" Now in words.")
        area.send_keys(Keys.ENTER)
        page.until(lambda: len(page.find_all(".answer")) == 1, "later messages are gone")
        self.assertEqual(page.texts(".bubble"), [LONG_PROMPT + " Now in words."])
        page.until_text_longer(5)
        page.stop()
        page.until_ended()

    def test_two_conversations_answer_side_by_side(self):
        page = self.page
        page.send(LONG_PROMPT)
        page.until_text_longer(10)
        page.new_conversation()
        page.until(lambda: page.phase() is None, "an empty conversation")
        page.send(OTHER_PROMPT)
        page.stop_answer()
        titles = page.texts(".conversation .title")
        self.assertEqual(titles, [OTHER_PROMPT, LONG_PROMPT])
        page.find_all(".open-button")[1].click()
        page.until(lambda: page.texts(".bubble") == [LONG_PROMPT], "the first conversation")
        page.stop_if_live()
        self.assertIn(page.until_ended(), ("stopped", "done", "limit"))

    def test_another_tab_follows_the_answer(self):
        page = self.page
        page.send(LONG_PROMPT)
        page.until_text_longer(10)
        address = page.script("return location.hash")
        first = page.driver.current_window_handle
        page.driver.switch_to.new_window("tab")
        page.open("/" + address)
        shown = page.until_text_longer(10)
        # A real model may have ended its answer before this tab was there.
        page.until(lambda: page.phase() != "writing" or len(page.answer_text()) > len(shown) + 40,
                   "the answer goes on")
        page.driver.close()
        page.driver.switch_to.window(first)
        page.stop_if_live()
        self.assertIn(page.until_ended(), ("stopped", "done", "limit"))
        self.assertTrue(page.answer_text().startswith(shown[:20]))

    def test_announcements_are_for_begin_and_end_only(self):
        page = self.page
        page.script("""
            window.heard = [];
            const region = document.getElementById("announcer");
            new MutationObserver(() => window.heard.push(region.textContent))
                .observe(region, {childList: true, characterData: true, subtree: true});
        """)
        page.send(LONG_PROMPT)
        page.stop_answer(60)
        heard = page.script("return window.heard")
        self.assertEqual(len(heard), 2, heard)
        self.assertIn("begins", heard[0])
        self.assertIn("stopped", heard[1])


class Managing(PageCase):
    def begin(self, text="Slowly say hello."):
        self.page.send(text)
        self.page.until_text_longer(5)
        self.page.stop()
        self.page.until_ended()

    def test_rename_and_delete_with_undo(self):
        page = self.page
        self.begin()
        page.find(".conversation .rename").click()
        page.find(".conversation input").send_keys(Keys.CONTROL + "a")
        page.find(".conversation input").send_keys("My <b>greeting</b>", Keys.ENTER)
        page.until(lambda: page.texts(".conversation .title") == ["My <b>greeting</b>"], "renamed")
        page.find(".conversation .delete").click()
        page.until(lambda: page.find_all(".conversation") == [], "deleted")
        page.find(".notice .button").click()
        page.until(lambda: page.texts(".conversation .title") == ["My <b>greeting</b>"], "undone")
        page.reload()
        page.until(lambda: page.texts(".conversation .title") == ["My <b>greeting</b>"], "kept")

    def test_settings_say_what_is_wrong_and_persist(self):
        page = self.page
        page.find("#open-settings").click()
        for field, wrong, right in (("temperature", "3", "0.5"), ("top-p", "0", "0.9"),
                                    ("max-tokens", "-1", "77"), ("seed", "1.5", "42")):
            box = page.find(f"#{field}")
            box.clear()
            box.send_keys(wrong)
            self.assertIn("must be", page.find(f"#{field}-error").text)
            self.assertEqual(box.get_attribute("aria-invalid"), "true")
            page.find("#settings [type=submit]").click()
            self.assertTrue(page.script("return document.getElementById('settings').open"))
            box.clear()
            box.send_keys(right)
            self.assertEqual(page.find(f"#{field}-error").text, "")
        page.find("#system-prompt").send_keys("Be brief.")
        page.find("#settings [type=submit]").click()
        page.until(lambda: not page.script("return document.getElementById('settings').open"),
                   "the dialog closes")
        page.reload()
        page.find("#open-settings").click()
        values = [page.find(f"#{field}").get_property("value")
                  for field in ("temperature", "top-p", "max-tokens", "seed", "system-prompt")]
        self.assertEqual(values, ["0.5", "0.9", "77", "42", "Be brief."])

    def test_theme_choice_persists(self):
        page = self.page
        before = page.script("return document.documentElement.dataset.theme")
        page.find("#toggle-theme").click()
        after = page.script("return document.documentElement.dataset.theme")
        self.assertNotEqual(before, after)
        page.reload()
        self.assertEqual(page.script("return document.documentElement.dataset.theme"), after)

    def test_keyboard_reaches_the_message_box_by_the_skip_link(self):
        page = self.page
        first = page.script("""
            document.activeElement.blur();
            const first = document.querySelector("a, button, input, textarea, [tabindex]");
            first.focus();
            return first.className;
        """)
        self.assertEqual(first, "skip-link")
        self.assertGreaterEqual(page.find(".skip-link").rect["y"], 0)
        page.driver.switch_to.active_element.send_keys(Keys.ENTER)
        self.assertEqual(page.driver.switch_to.active_element.get_attribute("id"), "input")

    def test_every_control_has_a_name(self):
        self.begin()
        nameless = self.page.script("""
            return [...document.querySelectorAll("button, input, textarea, select")]
                .filter((e) => !(e.getAttribute("aria-label") || e.textContent.trim() ||
                                 e.labels?.length))
                .map((e) => e.outerHTML);
        """)
        self.assertEqual(nameless, [])

    def test_phone_has_a_drawer_and_no_sideways_scrolling(self):
        page = self.page
        page.size(360, 740, mobile=True)
        self.begin("Slowly, with averyveryverylongwordthatdoesnotfitintothewidthofaphone" * 3)
        self.assertLessEqual(page.script("return document.documentElement.scrollWidth"), 360)
        self.assertLessEqual(page.script("return document.querySelector('main').scrollWidth"), 360)
        self.assertTrue(page.script("return document.getElementById('sidebar').inert"))
        page.find("#open-sidebar").click()
        page.until(lambda: page.find("#sidebar").is_displayed(), "the drawer opens")
        self.assertTrue(page.script("return document.getElementById('main').inert"))
        page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
        page.until(lambda: not page.find("#sidebar").is_displayed(), "the drawer closes")


@scripted
class Scripts(PageCase):
    expected_console = ("/v1/responses",)  # what Chromium says when the fake is down

    def test_queue_position_and_progress_are_shown(self):
        page = self.page
        page.send("queue")
        page.until_footer("Waiting in the queue, position 3")
        page.until_footer("position 1")
        page.until_footer("of 4,096 tokens")
        page.shot("reading")
        self.assertEqual(page.until_ended(), "done")

    def test_token_limit_offers_to_continue(self):
        page = self.page
        page.send("limit")
        page.until_footer("Stopped at the token limit")
        page.find(".note .button").click()
        page.until(lambda: len(page.find_all(".answer")) == 2, "a continuation")
        page.until_ended()

    def test_messages_left_out_are_mentioned(self):
        page = self.page
        page.send("full")
        page.until_ended()
        self.assertIn("the oldest 2 messages of it were left out", page.texts(".answer .note")[-1])

    def test_errors_are_explained(self):
        page = self.page
        page.send("refuse")
        footer = page.until_footer("no longer fits")
        self.assertIn("9001 tokens", footer)
        page.shot("error")
        page.send("fail")
        page.until(lambda: len(page.find_all(".answer")) == 2, "a second answer")
        self.assertEqual(page.until_ended(), "failed")
        self.assertIn("All went well until", page.answer_text())
        self.assertIn("internal error", page.texts(".answer .note")[-1])
        page.send("reject")
        page.until_footer("The server stopped this answer (shutdown)")

    def test_lost_connection_resumes_the_answer(self):
        page = self.page
        page.send("drop")
        page.until_phase("resuming")
        self.assertIn("The line goes", page.answer_text())
        self.assertIn("Waiting for the connection", page.texts(".answer .waiting")[-1])
        page.until_connected()
        page.until_phase("done")
        self.assertEqual(page.answer_text(),
                         "The line goes dead in the middle of a word, and is back.")

    def test_an_answer_that_the_server_has_lost_keeps_its_text(self):
        page = self.page
        page.send("forget")
        page.until_phase("lost")
        self.assertIn("The line goes", page.answer_text())
        self.assertIn("connection was lost", page.texts(".answer .note")[-1])

    def test_nothing_is_sent_while_the_connection_is_lost(self):
        page = self.page
        page.send("drop")
        page.until_phase("resuming")
        page.until(lambda: page.connection_phase() == "waiting", "it waits to retry")
        self.assertTrue(page.find("#retry").is_displayed())
        page.stop()
        page.until_phase("interrupted")
        page.find("#input").send_keys("typed while offline")
        self.assertFalse(page.find("#send").is_enabled())
        page.shot("offline")
        page.until_connected()
        self.assertTrue(page.find("#send").is_enabled())
        self.assertIn("The line goes", page.answer_text())

    def test_reader_who_scrolled_up_is_left_alone(self):
        page = self.page
        page.send("showcase")
        page.until_ended()
        page.send("slow")
        page.until_text_longer(10)
        page.script("document.getElementById('scroller').scrollTop = 40")
        page.until(lambda: page.find("#jump").is_displayed(), "a way back down")
        page.until_text_longer(len(page.answer_text()) + 200)
        self.assertEqual(page.script("return document.getElementById('scroller').scrollTop"), 40)
        page.find("#jump").click()
        page.until(lambda: not page.find("#jump").is_displayed(), "at the bottom")
        before = page.script("return document.getElementById('scroller').scrollTop")
        page.until(lambda: page.script(
            "return document.getElementById('scroller').scrollTop") > before, "it follows again")
        page.stop()
        page.until_ended()

    def test_finished_blocks_are_not_touched(self):
        page = self.page
        page.send("showcase")
        page.until(lambda: len(page.find_all(".markdown .block")) > 3, "some blocks")
        page.script("window.firstBlock = document.querySelector('.markdown .block')")
        page.until_ended()
        self.assertTrue(page.script(
            "return window.firstBlock === document.querySelector('.markdown .block')"))

    def test_hostile_answer_is_inert(self):
        page = self.page
        page.send("hostile")
        page.until_ended()
        self.assertIn("The end.", page.answer_text())
        self.assertIsNone(page.script("return window.pwned ?? null"))
        self.assertEqual(page.find_all(".markdown :is(img, iframe, style, script, object)"), [])

    def test_screens(self):
        page = self.page
        page.theme("light")
        page.shot("welcome-light")
        for earlier in ("Write a limerick about compilers", "Slow plan for a weekend in Lisbon"):
            page.send(earlier)
            page.until_text_longer(20)
            if "Slow" in earlier:
                page.stop_if_live()
            page.until_ended()
            page.new_conversation()
        page.send("Explain how a hash map works, with a small example in Python.")
        page.until_text_longer(60)
        page.shot("writing")
        page.until_ended()
        for name, top in (("top", 0), ("bottom", 100_000)):
            page.script("document.getElementById('scroller').scrollTop = arguments[0]", top)
            for theme in ("light", "dark"):
                page.theme(theme)
                time.sleep(0.3)
                page.shot(f"desktop-{theme}-{name}")
        page.find("#open-settings").click()
        page.shot("settings-dark")
        page.find("#settings [data-do=close]").click()
        page.theme("light")
        page.size(360, 740, mobile=True)
        time.sleep(0.4)
        page.shot("phone-light")
        self.assertLessEqual(page.script("return document.querySelector('main').scrollWidth"), 360)
        page.theme("dark")
        page.find("#open-sidebar").click()
        time.sleep(0.4)
        page.shot("phone-drawer-dark")
        page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
        page.new_conversation()
        page.theme("light")
        time.sleep(0.3)
        page.shot("phone-welcome")


@scripted
class AccessKey(PageCase):
    fake_arguments = ("--key", "sesame")
    expected_console = ("/v1/models",)

    def setUp(self):
        self.page = Page(self.driver, self.url, SHOTS)
        self.driver.get(self.url)

    def test_a_key_is_asked_for_and_kept_for_the_tab(self):
        page = self.page
        page.until(lambda: page.script("return document.getElementById('key').open"), "asks")
        page.find("#key-input").send_keys(Keys.ESCAPE)
        page.until(lambda: not page.script("return document.getElementById('key').open"), "shut")
        page.until(lambda: page.find("#retry").text == "Enter key", "offers to ask again")
        page.find("#retry").click()
        page.find("#key-input").send_keys("wrong", Keys.ENTER)
        page.until(lambda: "did not accept" in page.find("#key-error").text, "refuses")
        page.find("#key-input").clear()
        page.find("#key-input").send_keys("sesame", Keys.ENTER)
        page.until_connected()
        page.until(lambda: page.find("#model").text.startswith("SmolLM2"), "names the model")
        page.reload()
        self.assertFalse(page.script("return document.getElementById('key').open"))


@scripted
class Loading(PageCase):
    fake_arguments = ("--load", "4")
    expected_console = ("/ready", "/v1/responses")

    def setUp(self):
        self.page = Page(self.driver, self.url, SHOTS)
        self.driver.get(self.url)

    def test_the_page_says_how_far_the_model_is_and_then_connects(self):
        page = self.page
        percents = []

        def watched():
            phase, text, retry_hidden = page.script("""
                const pill = document.getElementById("connection");
                return [pill.dataset.phase, pill.innerText.trim(),
                        document.getElementById("retry").hidden];""")
            if phase == "loading":
                self.assertTrue(retry_hidden)
                self.assertRegex(text, r"^Loading the model, \d+ %$")
                percents.append(int(text.split()[-2]))
                page.shot("loading")
            return phase == "open"

        page.until(watched, "it connects by itself")
        self.assertTrue(percents)
        self.assertEqual(percents, sorted(percents))
        page.send("hello")
        page.until_phase("done")


if __name__ == "__main__":
    unittest.main()
