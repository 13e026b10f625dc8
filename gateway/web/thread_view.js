// The messages of the conversation on the screen, and its scrolling: it follows the answer only
// while the reader is at the bottom.

import {el} from "./dom.js";
import {AnswerView, UserView} from "./message_view.js";

const nearBottomPixels = 60;

export class ThreadView {
    constructor({scroller, list, welcome, jump, actions}) {
        Object.assign(this, {scroller, list, welcome, jump, actions});
        this.views = new Map();  // message id -> view
        this.conversationId = null;
        this.following = true;
        scroller.addEventListener("scroll", () => this.scrolled(), {passive: true});
        jump.addEventListener("click", () => this.toBottom());
        const resized = new ResizeObserver(() => this.settle());
        resized.observe(scroller);
        resized.observe(list);
    }

    settle() {
        if (this.following) this.toBottom();
        else this.scrolled();
    }

    scrolled() {
        const {scrollHeight, scrollTop, clientHeight} = this.scroller;
        this.following = scrollHeight - scrollTop - clientHeight < nearBottomPixels;
        this.jump.hidden = this.following;
    }

    toBottom() {
        this.scroller.scrollTop = this.scroller.scrollHeight;
        this.scrolled();
    }

    // canAct: there is a connection and no answer of this conversation is being written.
    render(conversation, canAct) {
        if (conversation.id !== this.conversationId) this.clear(conversation.id);
        const {messages} = conversation;
        this.welcome.hidden = messages.length > 0;
        this.dropOthers(new Set(messages.map((message) => message.id)));
        messages.forEach((message, index) => {
            const can = {act: canAct, isLast: index === messages.length - 1};
            this.viewOf(message).render(message, can);
        });
        this.settle();
    }

    clear(conversationId) {
        this.conversationId = conversationId;
        this.views.clear();
        this.list.replaceChildren();
        this.following = true;
    }

    dropOthers(ids) {
        for (const [id, view] of this.views) {
            if (ids.has(id)) continue;
            view.element.parentElement.remove();
            this.views.delete(id);
        }
    }

    // Messages are only ever appended or cut off at the end, so a new view goes last.
    viewOf(message) {
        let view = this.views.get(message.id);
        if (!view) {
            const View = message.role === "user" ? UserView : AnswerView;
            view = new View(message, this.actions);
            this.views.set(message.id, view);
            this.list.append(el("li", {}, view.element));
        }
        return view;
    }
}
