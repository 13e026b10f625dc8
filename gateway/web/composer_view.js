// The box one types into: grows with its text, sends on Enter, turns into Stop during an answer.

import {icon} from "./dom.js";

const heightMaxPixels = 240;

export class ComposerView {
    // actions: {send(text), stop()}
    constructor({form, input, button, hint, actions}) {
        Object.assign(this, {form, input, button, hint, actions});
        this.state = {live: false, stopping: false, connected: false, reason: ""};
        this.idleHint = hint.textContent;
        // With a touch keyboard there is no Shift+Enter, so Enter stays a newline there.
        this.enterSends = !matchMedia("(pointer: coarse)").matches;
        form.addEventListener("submit", (event) => this.submitted(event));
        input.addEventListener("keydown", (event) => this.keyDown(event));
        input.addEventListener("input", () => this.changed());
        this.changed();
    }

    keyDown(event) {
        if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
        if (!this.enterSends) return;
        event.preventDefault();
        if (!this.state.live) this.send();
    }

    submitted(event) {
        event.preventDefault();
        if (this.state.live) this.actions.stop();
        else this.send();
    }

    send() {
        const text = this.input.value.trim();
        if (!text || !this.state.connected) return;
        this.input.value = "";
        this.changed();
        this.actions.send(text);
    }

    // Puts text into the box, as if it had been typed.
    fill(text) {
        this.input.value = text;
        this.changed();
        this.input.focus();
    }

    changed() {
        this.input.style.height = "auto";
        this.input.style.height = `${Math.min(this.input.scrollHeight, heightMaxPixels)}px`;
        this.renderButton();
    }

    // state: {live, stopping, connected, reason}; reason says why there is no connection.
    render(state) {
        if (JSON.stringify(state) === JSON.stringify(this.state)) return;
        this.state = state;
        this.hint.classList.toggle("offline", !state.connected);
        this.hint.textContent = state.connected ? this.idleHint
            : `${state.reason} Sending works once the server is back.`.trim();
        this.renderButton();
    }

    renderButton() {
        const {live, stopping, connected} = this.state;
        const label = live ? "Stop the answer" : "Send";
        this.button.disabled = live ? stopping : !connected || this.input.value.trim() === "";
        if (this.button.getAttribute("aria-label") === label) return;
        this.button.setAttribute("aria-label", label);
        this.button.title = label;
        this.button.classList.toggle("stop", live);
        this.button.replaceChildren(icon(live ? "stop" : "send"));
    }
}
