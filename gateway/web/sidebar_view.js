// The list of conversations: open, rename in place, delete. On narrow screens it is a drawer.

import {el, iconButton} from "./dom.js";
import {liveMessage} from "./conversation.js";

const titleCharactersMax = 120;

export class SidebarView {
    // actions: {open(id), rename(id, title), remove(id)}
    constructor({sidebar, list, backdrop, openButton, closeButton, main, actions}) {
        Object.assign(this, {sidebar, list, backdrop, openButton, main, actions});
        this.narrow = matchMedia("(max-width: 860px)");
        this.renaming = null;
        openButton.addEventListener("click", () => this.setDrawer(true));
        closeButton.addEventListener("click", () => this.setDrawer(false));
        backdrop.addEventListener("click", () => this.setDrawer(false));
        this.narrow.addEventListener("change", () => this.setDrawer(false));
        this.setDrawer(false);
    }

    get isDrawerOpen() {
        return this.sidebar.classList.contains("open");
    }

    // A closed drawer cannot be reached by keyboard; behind an open one nothing can.
    setDrawer(open) {
        const wasOpen = this.isDrawerOpen;
        this.sidebar.classList.toggle("open", open);
        this.sidebar.inert = this.narrow.matches && !open;
        this.main.inert = this.narrow.matches && open;
        this.backdrop.hidden = !open;
        this.openButton.setAttribute("aria-expanded", String(open));
        if (open) this.sidebar.querySelector("button").focus();
        else if (wasOpen) this.openButton.focus();
    }

    render(conversations, currentId) {
        const state = conversations.map((item) => [item.id, item.title, !!liveMessage(item)]);
        const key = JSON.stringify([state, currentId, this.renaming]);
        if (key === this.key) return;
        this.key = key;
        const focused = document.activeElement?.closest(".conversation")?.dataset.id;
        this.list.replaceChildren(...conversations.map((item) => this.item(item, currentId)));
        if (!conversations.length) {
            this.list.append(el("li", {class: "empty"}, "Conversations appear here."));
        }
        if (this.renaming) this.list.querySelector("input")?.select();
        else if (focused) this.list.querySelector(`[data-id="${focused}"] .open-button`)?.focus();
    }

    item(conversation, currentId) {
        const {id, title} = conversation;
        const content = id === this.renaming
            ? [this.renameInput(conversation)]
            : this.buttons(conversation, id === currentId);
        const item = el("li", {class: "conversation"}, ...content);
        item.dataset.id = id;
        item.title = title;
        return item;
    }

    buttons(conversation, current) {
        const {id, title} = conversation;
        const live = liveMessage(conversation);
        return [
            el("button", {
                type: "button", class: "open-button", "aria-current": current ? "page" : null,
                onclick: () => this.actions.open(id),
            }, el("span", {class: "title"}, title),
            live ? el("span", {class: "live-dot", role: "img", "aria-label": "answering"}) : null),
            iconButton("edit", `Rename “${title}”`, () => this.rename(id),
                {class: "icon-button rename"}),
            iconButton("trash", `Delete “${title}”`, () => this.actions.remove(id),
                {class: "icon-button delete"}),
        ];
    }

    rename(id) {
        this.renaming = id;
        this.actions.changed();
    }

    renameInput({id, title}) {
        const input = el("input", {
            type: "text", "aria-label": "Name of the conversation", maxlength: titleCharactersMax,
        });
        input.value = title;
        let finished = false;
        const finish = (keep) => {
            if (finished) return;
            finished = true;
            this.renaming = null;
            const name = input.value.trim();
            if (keep && name && name !== title) this.actions.rename(id, name);
            this.actions.changed();
        };
        input.addEventListener("blur", () => finish(true));
        input.addEventListener("keydown", (event) => {
            if (event.key !== "Enter" && event.key !== "Escape") return;
            event.stopPropagation();
            finish(event.key === "Enter");
        });
        return input;
    }
}
