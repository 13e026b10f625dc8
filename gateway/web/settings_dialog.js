// The settings dialog: shows the settings, says what is wrong with one while it is typed, and hands
// them over only when all are right.

import {defaultSettings, validateSettings} from "./settings.js";

const fields = Object.keys(defaultSettings);

export class SettingsDialog {
    // onSave(settings); context: {tokensMax} with the model's context, Infinity while unknown.
    constructor({dialog, context, onSave}) {
        Object.assign(this, {dialog, context, onSave});
        this.form = dialog.querySelector("form");
        this.theme = this.form.elements.theme;
        this.form.addEventListener("submit", (event) => this.submitted(event));
        this.form.addEventListener("input", () => this.showErrors());
        this.theme.addEventListener("change", () => window.troupeTheme.choose(this.theme.value));
        dialog.querySelector("[data-do=reset]").addEventListener("click", () => {
            this.fill(defaultSettings);
        });
        for (const button of dialog.querySelectorAll("[data-do=close]")) {
            button.addEventListener("click", () => dialog.close());
        }
    }

    open(settings) {
        this.fill(settings);
        this.theme.value = window.troupeTheme.choice();
        this.dialog.showModal();
    }

    fill(settings) {
        for (const field of fields) this.form.elements[field].value = settings[field];
        this.showErrors();
    }

    values() {
        return Object.fromEntries(fields.map((field) => [field, this.form.elements[field].value]));
    }

    // Returns the first wrong field's element, or null.
    showErrors() {
        const errors = validateSettings(this.values(), this.context.tokensMax);
        let first = null;
        for (const field of fields) {
            const input = this.form.elements[field];
            const message = errors[field] ?? "";
            const line = this.dialog.querySelector(`#${input.id}-error`);
            if (line.textContent !== message) line.textContent = message;
            input.setAttribute("aria-invalid", String(message !== ""));
            if (message) first ??= input;
        }
        return first;
    }

    submitted(event) {
        event.preventDefault();
        const wrong = this.showErrors();
        if (wrong) {
            wrong.focus();
            return;
        }
        this.onSave(this.values());
        this.dialog.close();
    }
}
