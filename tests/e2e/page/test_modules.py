"""Unit tests of the page's pure modules, run inside the browser that will run them."""

import unittest

from cases import PageCase

HOSTILE = [
    '<img src=x onerror="window.pwned=1">',
    "<script>window.pwned=1</script>",
    "<svg onload=window.pwned=1>",
    "<svg><animate onbegin=window.pwned=1 attributeName=x dur=1s>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    "<style>*{display:none}</style>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.pwned=1>",
    "[a](javascript:window.pwned=1)",
    "[a](JaVaScRiPt:window.pwned=1)",
    "[a](&#106;avascript:window.pwned=1)",
    "[a](java\tscript:window.pwned=1)",
    "[a](vbscript:x) [b](data:text/html,x) [c](file:///etc/passwd) [d](//evil.example/x)",
    "<javascript:window.pwned=1>",
    "![a](https://evil.example/pixel.png)",
    "![a](javascript:window.pwned=1)",
    '![a](x"onerror="window.pwned=1)',
    '[a](https://ok.example "x\\" onmouseover=\\"window.pwned=1")',
    "[a]: javascript:window.pwned=1\n\n[a]",
    "```\"><img src=x onerror=window.pwned=1>\ncode\n```",
    "```html\n<img src=x onerror=window.pwned=1>\n```",
    "`<img src=x onerror=window.pwned=1>`",
    "$\\href{javascript:window.pwned=1}{x}$",
    "$\\htmlStyle{color:red}{x}$ $\\includegraphics{https://evil.example/x.png}$",
    "$$\\def\\a{\\a\\a}\\a$$",
    "| a |\n| - |\n| <img src=x onerror=window.pwned=1> |",
    "- [x] <input onfocus=window.pwned=1 autofocus>",
    "<form action=https://evil.example><button>x</button></form>",
    "<a href=https://ok.example style=position:fixed;inset:0>x</a>",
]

SAMPLE = """# Title

A paragraph with **bold**, `code` and [a link][ref].
Second line
---
not a heading by now

- one
- two

  still two

1. first

2. second

> quote
> more

```python
def f():
	return 1  # tab kept
```

| a | b |
| --- | ---: |
| 1 | 2 |

$$
\\vec{x} = \\frac{1}{2}
$$

3. third
4. fourth

[ref]: https://example.com/
"""


class Markdown(PageCase):
    def test_hostile_text_is_inert(self):
        found = self.page.import_module("markdown.js", """
            const allowed = new Set(["href", "target", "rel", "title", "class", "style", "type",
                "aria-label", "aria-hidden", "data-language", "width", "height", "viewBox", "d",
                "xmlns", "encoding", "preserveAspectRatio", "disabled", "checked"]);
            const bad = [];
            for (const text of arguments[0]) {
                const element = module.renderMarkdown(text);
                document.body.append(element);
                for (const node of element.querySelectorAll("*")) {
                    const math = node.closest(".katex");
                    if (node.matches("img, script, style, iframe, form, object, embed, base")) {
                        bad.push(`${text} made <${node.localName}>`);
                    }
                    for (const {name, value} of node.attributes) {
                        const styled = name === "style" && !math;
                        if (styled || (!math && !allowed.has(name) && !node.closest("svg"))) {
                            bad.push(`${text} made ${name}="${value}"`);
                        }
                        if (name === "href" && !/^(https?:|mailto:|#icon-)/.test(value)) {
                            bad.push(`${text} made href ${value}`);
                        }
                    }
                    if (node.matches("a") && node.rel.indexOf("noopener") < 0) bad.push(text);
                }
                await new Promise((resolve) => setTimeout(resolve, 5));
                element.remove();
            }
            if (window.pwned) bad.push("a script ran");
            return bad;
        """, HOSTILE)
        self.assertEqual(found, [])

    def test_raw_html_is_shown_as_text(self):
        for text in HOSTILE[:3]:
            self.assertEqual(self.render_text(text), text)

    def test_attributes_of_lists_and_tables_survive(self):
        html = self.page.import_module(
            "markdown.js", "return module.renderMarkdown(arguments[0]).innerHTML;",
            "3. c\n\n| a |\n| --: |\n| 1 |\n\n- [x] done")
        self.assertIn('<ol start="3">', html)
        self.assertIn('align="right"', html)
        self.assertIn('checked=""', html)

    def test_formulas_that_need_styles_break_no_policy(self):
        html = self.page.import_module("markdown.js", """
            const element = module.renderMarkdown(arguments[0]);
            document.body.append(element);
            const svg = element.querySelector(".katex svg");
            const result = [element.querySelectorAll(".katex").length, svg?.style.width];
            element.remove();
            return result;
        """, "$\\vec{x}$ $\\pmb{y}$ $\\fcolorbox{red}{blue}{z}$ $\\sqrt{2}$")
        self.assertEqual(html[0], 4)
        self.assertRegex(html[1], "em$")

    def test_money_is_no_formula(self):
        self.assertEqual(self.render_text("It costs $5 and then $10, or $7-$8."),
                         "It costs $5 and then $10, or $7-$8.")

    def test_code_keeps_its_tabs(self):
        text = self.page.import_module("markdown.js", """
            return module.renderMarkdown(arguments[0]).querySelector("code").textContent;
        """, "```make\nall:\n\tcc\ta.c\n```")
        self.assertEqual(text, "all:\n\tcc\ta.c")

    def test_growing_text_ends_as_the_whole_text(self):
        result = self.page.import_module("markdown_stream.js", """
            const {renderMarkdown} = await import("/assets/markdown.js");
            const text = arguments[0];
            const host = document.createElement("div");
            const stream = new module.MarkdownStream(host);
            for (let end = 1; end <= text.length; end += 1) {
                stream.update(text.slice(0, end), false);
            }
            const settled = stream.settledCount;
            stream.update(text, true);
            return [host.innerHTML, renderMarkdown(text).innerHTML, settled];
        """, SAMPLE)
        self.assertEqual(result[0], result[1])
        self.assertGreater(result[2], 5)

    def test_settled_blocks_were_right_before_the_end(self):
        result = self.page.import_module("markdown_stream.js", """
            const {renderMarkdown} = await import("/assets/markdown.js");
            const text = arguments[0];
            const host = document.createElement("div");
            const stream = new module.MarkdownStream(host);
            for (let end = 1; end <= text.length; end += 1) {
                stream.update(text.slice(0, end), false);
            }
            const count = stream.settledCount;
            const html = (root) => [...root.children].slice(0, count).map((b) => b.innerHTML);
            return [html(host), html(renderMarkdown(text))];
        """, SAMPLE.replace("[a link][ref]", "a link"))
        self.assertEqual(result[0], result[1])

    def render_text(self, text):
        return self.page.import_module(
            "markdown.js", "return module.renderMarkdown(arguments[0]).textContent.trim();", text)


class Conversation(PageCase):
    """conversation.js: events in, conversation out."""

    def play(self, *events):
        return self.page.import_module("conversation.js", """
            let state = module.newConversation("c", 0);
            state = module.reduce(state,
                {type: "send", text: "Hi there", userId: "u", answerId: "a", now: 1000});
            let now = 1000;
            for (const event of arguments[0]) {
                now += 100;
                if (typeof event === "string") {
                    state = module.reduce(state, {type: event, answerId: "a"});
                } else {
                    state = module.reduce(state, {type: "wire", answerId: "a", event, now});
                }
            }
            return {...state.messages[1], stats: module.answerStats(state.messages[1])};
        """, list(events))

    CREATED = {"type": "response.created", "response": {"id": "r1"}}

    @staticmethod
    def delta(text):
        return {"type": "response.output_text.delta", "delta": text}

    def test_an_answer_from_begin_to_end(self):
        answer = self.play(
            self.CREATED, {"type": "response.in_progress"}, self.delta("Hel"), self.delta("lo"),
            {"type": "response.completed", "response": {"usage": {"output_tokens": 3}}})
        self.assertEqual((answer["phase"], answer["text"]), ("done", "Hello"))
        self.assertEqual(answer["stats"]["firstTokenMs"], 300)
        self.assertEqual(answer["stats"]["tokensPerSecond"], 20)

    def test_the_servers_rate_is_preferred(self):
        answer = self.play(
            self.CREATED, self.delta("Hi"),
            {"type": "response.completed",
             "response": {"usage": {"output_tokens": 1}, "troupe": {"tokens_per_second": 12.5}}})
        self.assertEqual(answer["stats"]["tokensPerSecond"], 12.5)

    def test_tokens_are_kept_with_their_alternatives(self):
        entry = {"token": " a", "logprob": -0.5, "bytes": [32, 97], "top_logprobs": [
            {"token": " a", "logprob": -0.5}, {"token": " the", "logprob": -1.25},
            {"token": "never", "logprob": None}]}
        answer = self.play(
            self.CREATED, {**self.delta(" a"), "logprobs": [entry]}, self.delta(" b"),
            {**self.delta(" c"), "logprobs": [{**entry, "token": " c", "top_logprobs": []}]},
            {"type": "response.completed", "response": {}})
        self.assertEqual(answer["scores"], [
            [" a", -0.5, [[" a", -0.5], [" the", -1.25]]], [" c", -0.5, []]])

    def test_messages_that_did_not_fit_are_counted(self):
        answer = self.play(
            self.CREATED, self.delta("x"), {"type": "response.completed", "response": {
                "troupe": {"truncation": {"dropped_messages": 4}}}})
        self.assertEqual(answer["droppedMessages"], 4)

    def test_cancelled_is_stopped_and_late_events_change_nothing(self):
        answer = self.play(
            self.CREATED, self.delta("Hel"), "stopping", self.delta("lo"),
            {"type": "response.incomplete",
             "response": {"status": "cancelled", "incomplete_details": None}},
            self.delta("!"), "lost")
        self.assertEqual((answer["phase"], answer["text"]), ("stopped", "Hello"))
        self.assertIsNone(answer["reason"])

    def test_completion_that_wins_the_race_against_stop_is_done(self):
        answer = self.play(self.CREATED, self.delta("Hi"), "stopping",
                           {"type": "response.completed", "response": {}})
        self.assertEqual(answer["phase"], "done")

    def test_error_before_created_ends_and_after_created_waits_for_failed(self):
        error = {"type": "error", "error": {"code": "overloaded", "message": "m"}}
        self.assertEqual(self.play(error)["phase"], "failed")
        self.assertEqual(self.play(self.CREATED, self.delta("x"), error)["phase"], "writing")
        failed = self.play(self.CREATED, error, {"type": "response.failed", "response": {}})
        self.assertEqual((failed["phase"], failed["error"]["code"]), ("failed", "overloaded"))

    def test_disconnect_leaves_an_answer_to_resume_if_it_has_an_id(self):
        error = {"type": "error", "error": {"code": "response_not_found", "message": "m"}}
        so_far = {"type": "response.in_progress", "response": {"output": [
            {"content": [{"text": "xyz"}]}]}}
        end = {"type": "response.completed", "response": {}}
        cut = (self.CREATED, self.delta("x"), "lost")
        self.assertEqual(self.play("lost")["phase"], "lost")
        self.assertEqual(self.play(*cut)["phase"], "resuming")
        self.assertEqual(self.play(*cut, error)["phase"], "lost")
        self.assertEqual(self.play(*cut, so_far)["text"], "xyz")
        resumed = self.play(*cut, so_far, self.delta("!"), end)
        self.assertEqual((resumed["phase"], resumed["text"]), ("done", "xyz!"))
        self.assertEqual(self.play(*cut, end)["text"], "x")
        self.assertEqual(self.play(self.CREATED, "reopened")["phase"], "resuming")
        self.assertEqual(self.play("reopened")["phase"], "interrupted")
        self.assertEqual(self.play(self.CREATED, "restored")["phase"], "interrupted")

    def test_history_leaves_out_answers_of_which_nothing_came(self):
        items = self.page.import_module("conversation.js", """
            let state = module.newConversation("c", 0);
            const send = (text, n) => module.reduce(state,
                {type: "send", text, userId: `u${n}`, answerId: `a${n}`, now: n});
            state = send("one", 1);
            state = module.reduce(state, {type: "lost", answerId: "a1"});
            state = send("two", 2);
            state = module.reduce(state, {type: "wire", answerId: "a2", now: 3,
                event: {type: "response.output_text.delta", delta: "2"}});
            state = module.reduce(state, {type: "lost", answerId: "a2"});
            state = send("three", 4);
            return module.inputItems(state, "a4").map((item) =>
                [item.role, item.content[0].type, item.content[0].text]);
        """)
        self.assertEqual(items, [
            ["user", "input_text", "one"], ["user", "input_text", "two"],
            ["assistant", "output_text", "2"], ["user", "input_text", "three"]])

    def test_edit_and_regenerate_drop_what_followed(self):
        roles = self.page.import_module("conversation.js", """
            let state = module.newConversation("c", 0);
            for (const n of [1, 2]) {
                state = module.reduce(state,
                    {type: "send", text: `m${n}`, userId: `u${n}`, answerId: `a${n}`, now: n});
            }
            const ids = (s) => s.messages.map((message) => message.id);
            const edit = {type: "edit", messageId: "u1", text: "x", answerId: "b", now: 3};
            const regenerate = {type: "regenerate", messageId: "a2", answerId: "b", now: 3};
            return [ids(module.reduce(state, edit)), ids(module.reduce(state, regenerate))];
        """)
        self.assertEqual(roles, [["u1", "b"], ["u1", "a1", "u2", "b"]])


class SmallModules(PageCase):
    def test_backoff_doubles_up_to_a_bound(self):
        delays = self.page.import_module(
            "connection.js", "return [0, 1, 2, 9].map((n) => module.backoffMs(n, 0));")
        self.assertEqual(delays, [500, 1000, 2000, 15000])
        shortest = self.page.import_module("connection.js", "return module.backoffMs(9, 0.999);")
        self.assertGreaterEqual(shortest, 10000)

    def test_lanes_are_reused_only_after_release(self):
        result = self.page.import_module("lanes.js", """
            const lanes = new module.Lanes();
            const names = [];
            for (let n = 0; n < 9; n += 1) names.push(lanes.claim({answerId: n}));
            lanes.release(names[3]);
            return [new Set(names).size, names[8], lanes.claim({answerId: 9}) === names[3],
                    lanes.laneOf(9) === names[3], lanes.releaseAll().length];
        """)
        self.assertEqual(result, [9, None, True, True, 8])

    def test_request_fields_follow_the_settings(self):
        fields = self.page.import_module("settings.js", """
            const {defaultSettings, requestFields} = module;
            return [requestFields(defaultSettings), requestFields({...defaultSettings,
                temperature: "0,5", seed: " 7 ", alternatives: "off", maxTokens: "", systemPrompt: "Be brief."})];
        """)
        self.assertEqual(fields[0], {"temperature": 0.7, "top_p": 0.95, "top_logprobs": 5,
                                     "max_output_tokens": 1024})
        self.assertEqual(fields[1], {"temperature": 0.5, "top_p": 0.95, "top_logprobs": 0, "seed": 7,
                                     "instructions": "Be brief."})

    def test_alternatives_hold_the_chosen_token_once_and_in_order(self):
        rows = self.page.import_module("token_view.js", """
            const rows = (score) => module.alternatives(score)
                .map(({text, chosen}) => `${module.visibleText(text)}${chosen ? "*" : ""}`);
            return [rows([" b", -1, [[" a", -0.5], [" b", -1]]]),
                    rows(["\\n", -9, [[" a", -0.5], [" b", -1]]]),
                    [0, -0.2, -0.7, -1.5, -4].map(module.tintOf),
                    [0, -0.6931472, -6, -20].map(module.percent)];
        """)
        self.assertEqual(rows, [["␣a", "␣b*"], ["␣a", "␣b", "↵*"], [0, 1, 2, 3, 4],
                                ["100 %", "50.0 %", "0.25 %", "under 0.01 %"]])

    def test_errors_are_worded_for_people(self):
        texts = self.page.import_module("errors.js", """
            return [
                module.explainError({code: "rate_limit_exceeded", headers: {"Retry-After": "3"}}),
                module.explainError({code: "invalid_parameter", message: "top_p is 2"}),
                module.explainError(null),
            ].map(({text, detail}) => `${text}|${detail}`);
        """)
        self.assertEqual(texts, [
            "Too many requests at once. Please try again in a moment. The server suggests 3 s.|",
            "The server could not answer.|top_p is 2",
            "The server could not answer and did not say why.|"])


if __name__ == "__main__":
    unittest.main()
