// One message on the screen: text, the note that says how it ended, statistics, buttons. Owns the
// elements of its message and the half-typed edit of a user's message.

import {copyButton, el, icon, iconButton} from "./dom.js";
import {explainError} from "./errors.js";
import {answerStats, isLive} from "./conversation.js";
import {MarkdownStream} from "./markdown_stream.js";
import {TokenView} from "./token_view.js";

const numbers = new Intl.NumberFormat("en");

function countOf(count, noun) {
    return `${numbers.format(count)} ${noun}${count === 1 ? "" : "s"}`;
}

function waitingText(message) {
    if (message.phase === "queued" && message.queuePosition !== null) {
        return `Waiting in the queue, position ${message.queuePosition}`;
    }
    if (message.phase === "queued") return "Waiting in the queue";
    if (message.phase === "reading" && message.promptTotal) {
        const done = numbers.format(message.promptDone ?? 0);
        return `Reading the conversation, ${done} of ${countOf(message.promptTotal, "token")}`;
    }
    if (message.phase === "reading") return "Reading the conversation";
    if (message.phase === "stopping") return "Stopping";
    if (message.phase === "resuming") return "Waiting for the connection to go on";
    return "Sending";
}

// How an answer ended, if there is something to say: {kind, text, detail?, action?}.
function endNote(message) {
    switch (message.phase) {
    case "limit":
        return {kind: "info", text: "Stopped at the token limit.", action: "continue"};
    case "stopped":
        return {
            kind: "info",
            text: message.reason ? `The server stopped this answer (${message.reason}).`
                                 : "Stopped. What had been written is kept.",
            action: "regenerate",
        };
    case "lost":
        return {
            kind: "warning", action: "regenerate",
            text: "The connection was lost, and the server has this answer no more. What had " +
                "arrived is kept.",
        };
    case "interrupted":
        return {
            kind: "warning", action: "regenerate",
            text: "The page was closed or reloaded while this answer was being written. " +
                "What had arrived is kept.",
        };
    case "failed":
        return {kind: "error", action: "regenerate", ...explainError(message.error)};
    default:
        return null;
    }
}

// What of the conversation the model did not see, because its context was full.
function droppedNote({droppedMessages}) {
    if (!droppedMessages) return null;
    return {
        kind: "info",
        text: "The conversation is longer than the model's context: the oldest " +
            `${countOf(droppedMessages, "message")} of it were left out.`,
    };
}

export function statsText(message) {
    const stats = answerStats(message);
    const parts = [];
    if (stats.tokens !== null) parts.push(countOf(stats.tokens, "token"));
    if (stats.tokensPerSecond !== null) {
        parts.push(`${stats.tokensPerSecond.toFixed(1)} tokens/s`);
    }
    if (stats.firstTokenMs !== null) {
        parts.push(`first token after ${(stats.firstTokenMs / 1000).toFixed(2)} s`);
    }
    if (stats.promptTokens) {
        const cached = stats.cachedTokens ? ` (${numbers.format(stats.cachedTokens)} cached)` : "";
        parts.push(`${countOf(stats.promptTokens, "prompt token")}${cached}`);
    }
    return parts;
}

// actions: {edit(id, text), regenerate(id), continue()}
export class AnswerView {
    constructor(message, actions) {
        this.actions = actions;
        this.message = message;
        this.body = el("div", {class: "markdown"});
        this.markdown = new MarkdownStream(this.body);
        this.tokens = new TokenView();
        this.tokens.element.hidden = true;
        this.footer = el("div", {class: "message-footer"});
        this.element = el("article", {class: "message answer", "aria-label": "Answer"},
            el("span", {class: "avatar"}, icon("troupe")),
            el("div", {class: "message-main"}, this.body, this.tokens.element, this.footer));
    }

    // can.act: no answer is being written and there is a connection; can.isLast: nothing follows.
    render(message, can) {
        this.message = message;
        const live = isLive(message);
        this.element.dataset.phase = message.phase;
        this.element.setAttribute("aria-busy", String(live));
        if (message.text !== this.shownText || live !== this.shownLive) {
            this.markdown.update(message.text, !live);
            this.shownText = message.text;
            this.shownLive = live;
        }
        if (live && !this.tokens.element.hidden) {
            this.tokens.element.hidden = true;
            this.body.hidden = false;
        }
        this.renderFooter(message, live, can);
    }

    renderFooter(message, live, can) {
        if (live) {
            const writing = message.phase === "writing" && message.text !== "";
            this.footer.replaceChildren(...(writing ? [] : [this.waiting(message)]));
            this.footerKey = null;
            return;
        }
        const key = JSON.stringify([message.phase, can]);
        if (key === this.footerKey) return;
        this.footerKey = key;
        this.footer.replaceChildren(...[
            this.note(endNote(message), can), this.note(droppedNote(message), can),
            this.tools(message, can),
        ].filter(Boolean));
    }

    // Between the answer as it reads and the tokens that it is made of.
    toggleTokens(button) {
        const shown = this.tokens.element.hidden;
        if (shown) this.tokens.render(this.message.scores);
        this.tokens.element.hidden = !shown;
        this.body.hidden = shown;
        button.setAttribute("aria-pressed", String(shown));
    }

    waiting(message) {
        const status = el("p", {class: "waiting"},
            el("span", {class: "dot"}), waitingText(message));
        if (message.phase !== "reading" || !message.promptTotal) return status;
        const bar = el("progress", {
            max: message.promptTotal, value: message.promptDone ?? 0, "aria-label": "Prompt read",
        });
        return el("div", {}, status, bar);
    }

    note(note, can) {
        if (!note) return null;
        const icons = {info: "info", warning: "alert", error: "alert"};
        const button = can.isLast && note.action && this.noteButton(note.action, can);
        const detail = note.detail ? el("span", {class: "note-detail"}, note.detail) : null;
        return el("div", {class: `note note-${note.kind}`}, icon(icons[note.kind]),
            el("p", {}, note.text, detail), button || null);
    }

    noteButton(action, can) {
        const label = action === "continue" ? "Continue" : "Try again";
        const onclick = () => {
            if (action === "continue") this.actions.continue();
            else this.actions.regenerate(this.message.id);
        };
        return el("button", {type: "button", class: "button small", disabled: !can.act, onclick},
            label);
    }

    tools(message, can) {
        const stats = statsText(message);
        const regenerate = can.isLast ? iconButton("refresh", "Regenerate the answer",
            () => this.actions.regenerate(message.id), {disabled: !can.act}) : null;
        const tokens = message.scores?.length ? iconButton("tokens", "Show the tokens",
            ({currentTarget}) => this.toggleTokens(currentTarget),
            {"aria-pressed": String(!this.tokens.element.hidden)}) : null;
        const copy = message.text ? copyButton("Copy the answer", () => this.message.text) : null;
        return el("div", {class: "tools"}, copy, tokens, regenerate,
            el("p", {class: "stats"}, ...stats.map((part) => el("span", {}, part))));
    }
}

export class UserView {
    constructor(message, actions) {
        this.actions = actions;
        this.main = el("div", {class: "message-main"});
        this.element = el("article", {class: "message user", "aria-label": "You"}, this.main);
        this.can = {};
    }

    render(message, can) {
        const changed = message !== this.message || can.act !== this.can.act;
        this.message = message;
        this.can = can;
        if (changed && !this.editing) this.show();
    }

    show() {
        this.editing = false;
        this.element.classList.remove("editing");
        this.main.replaceChildren(
            el("div", {class: "bubble"}, this.message.text),
            el("div", {class: "tools"},
                copyButton("Copy the message", () => this.message.text),
                iconButton("edit", "Edit and send again", () => this.edit(),
                    {disabled: !this.can.act, class: "icon-button edit"})));
    }

    edit() {
        this.editing = true;
        this.element.classList.add("editing");
        const area = el("textarea", {"aria-label": "Edit the message", rows: 3});
        area.value = this.message.text;
        const done = () => {
            this.show();
            this.main.querySelector(".edit").focus();
        };
        const submit = () => {
            if (area.value.trim() === "" || !this.can.act) return;
            this.show();
            this.actions.edit(this.message.id, area.value);
        };
        area.addEventListener("keydown", (event) => {
            if (event.key === "Escape") done();
            else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit();
            else return;
            event.preventDefault();
            event.stopPropagation();
        });
        this.main.replaceChildren(area,
            el("p", {class: "hint"}, "Sending replaces everything after this message."),
            el("div", {class: "row"},
                el("button", {type: "button", class: "button small", onclick: done}, "Cancel"),
                el("button", {type: "button", class: "button small primary", onclick: submit},
                    "Send")));
        area.focus();
        area.setSelectionRange(area.value.length, area.value.length);
    }
}
