// The tokens of an answer one by one, darker where the model was less sure, and for the one under
// the pointer (or reached with the arrow keys) what else could have come. Owns its elements.

import {el} from "./dom.js";

// A probability below levels[i] tints a token one step more.
const levels = [0.9, 0.6, 0.3, 0.1];

export function tintOf(logprob) {
    const probability = Math.exp(logprob);
    return levels.filter((level) => probability < level).length;
}

// White space as something to look at.
export function visibleText(text) {
    return text.replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll(" ", "␣");
}

export function percent(logprob) {
    const value = 100 * Math.exp(logprob);
    if (value >= 99.95) return "100 %";
    if (value < 0.01) return "under 0.01 %";
    return `${value.toFixed(value < 1 ? 2 : 1)} %`;
}

// The rows of a token's table, likeliest first: {text, logprob, chosen}. The chosen one is always
// there, also where it is not among the likeliest.
export function alternatives([text, logprob, top]) {
    const rows = top.map(([other, value]) => ({text: other, logprob: value, chosen: false}));
    const own = rows.find((row) => row.text === text && row.logprob === logprob);
    if (own) own.chosen = true;
    else rows.push({text, logprob, chosen: true});
    return rows.sort((a, b) => b.logprob - a.logprob);
}

export class TokenView {
    constructor() {
        this.text = el("div", {
            class: "tokens", tabindex: "0", role: "group",
            "aria-label": "Tokens of the answer. Left and right arrow move between them.",
        });
        this.panel = el("div", {class: "token-panel", role: "status", hidden: true});
        this.element = el("div", {class: "token-view"}, this.text, this.panel);
        this.scores = [];
        this.at = -1;
        this.text.addEventListener("pointerover", ({target}) => this.pick(target));
        this.text.addEventListener("click", ({target}) => this.pick(target));
        this.text.addEventListener("keydown", (event) => this.keyPressed(event));
        this.element.addEventListener("pointerleave", () => this.select(-1));
        this.text.addEventListener("blur", () => this.select(-1));
    }

    // scores: [[text, logprob, [[text, logprob], ...]], ...] of all tokens in order.
    render(scores) {
        if (scores === this.scores) return;
        this.select(-1);
        this.scores = scores;
        this.text.replaceChildren(...scores.map(([text, logprob]) => {
            return el("span", {class: "token", "data-tint": String(tintOf(logprob))}, text);
        }));
    }

    pick(target) {
        const at = [...this.text.children].indexOf(target);
        if (at >= 0) this.select(at);
    }

    keyPressed(event) {
        const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
        if (event.key === "Escape" && this.at >= 0) this.select(-1);
        else if (step) this.select(Math.max(0, Math.min(this.scores.length - 1, this.at + step)));
        else return;
        event.preventDefault();
        event.stopPropagation();
    }

    select(at) {
        if (at === this.at) return;
        this.text.children[this.at]?.classList.remove("selected");
        this.at = at;
        const token = this.text.children[at];
        this.panel.hidden = !token;
        if (!token) return;
        token.classList.add("selected");
        this.panel.replaceChildren(this.table(this.scores[at]));
        this.place(token);
    }

    table(score) {
        return el("table", {}, el("caption", {}, `Token ${this.at + 1} of ${this.scores.length}`),
            ...alternatives(score).map((row) => {
                const bar = el("span", {class: "token-bar"});
                bar.style.width = `${100 * Math.exp(row.logprob)}%`;
                return el("tr", {class: row.chosen ? "chosen" : null},
                    el("th", {scope: "row"}, visibleText(row.text)),
                    el("td", {class: "token-share"}, bar),
                    el("td", {}, percent(row.logprob)));
            }));
    }

    // Below the token's last line, inside the column.
    place(token) {
        const boxes = token.getClientRects();
        const box = boxes[boxes.length - 1] ?? token.getBoundingClientRect();
        const host = this.element.getBoundingClientRect();
        const most = Math.max(0, host.width - this.panel.offsetWidth);
        this.panel.style.left = `${Math.max(0, Math.min(box.left - host.left, most))}px`;
        this.panel.style.top = `${box.bottom - host.top + 6}px`;
    }
}
