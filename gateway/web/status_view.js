// What the page says about itself: the connection's state, passing notices with an Undo, and the
// polite live region through which a screen reader hears that an answer began or ended.

import {el} from "./dom.js";

const noticeMs = 8000;

export class StatusView {
    constructor({pill, retry, notices, announcer}) {
        Object.assign(this, {pill, retry, notices, announcer});
        this.countdown = null;
    }

    // state: that of Connection
    renderConnection(state) {
        clearInterval(this.countdown);
        this.state = state;
        this.retry.hidden = !["waiting", "unauthorized"].includes(state.phase);
        this.retry.textContent = state.phase === "unauthorized" ? "Enter key" : "Retry now";
        this.pill.dataset.phase = state.phase;
        this.pill.title = state.reason;
        this.renderText();
        if (state.phase === "waiting") this.countdown = setInterval(() => this.renderText(), 500);
    }

    renderText() {
        const {phase, retryAt, loaded} = this.state;
        const seconds = Math.max(0, Math.ceil((retryAt - Date.now()) / 1000));
        const texts = {
            connecting: "Connecting",
            open: "Connected",
            waiting: `Offline, retry in ${seconds} s`,
            loading: `Loading the model, ${Math.floor(loaded * 100)} %`,
            unauthorized: "Access key needed",
        };
        this.pill.querySelector(".label").textContent = texts[phase];
    }

    announce(text) {
        this.announcer.textContent = text;
    }

    // action: {label, run}, optional. Notices stand in a role=status region.
    notice(text, action) {
        const close = () => notice.remove();
        const button = action && el("button", {
            type: "button", class: "button small", onclick: () => {
                close();
                action.run();
            },
        }, action.label);
        const notice = el("div", {class: "notice"}, el("p", {}, text), button ?? null);
        this.notices.append(notice);
        setTimeout(close, noticeMs);
    }
}
