// The conversations of this browser and the answers in flight: turns what the reader does into wire
// events and what the server sends into new conversation values. No DOM.

import {
    inputItems, isLive, liveMessage, newConversation, reduce,
} from "./conversation.js";
import {randomId} from "./dom.js";
import {Lanes} from "./lanes.js";
import {requestFields} from "./settings.js";

// The server refuses larger WebSocket messages.
const messageBytesMax = 1024 * 1024;

const terminalEvents = new Set(["response.completed", "response.incomplete", "response.failed"]);

// After response.created an error is followed by response.failed; before it, and in answer to a
// resume, it is the end.
function endsResponse(event, owner) {
    return terminalEvents.has(event.type) || (event.type === "error" && !owner.created);
}

export class Chat {
    // settings() gives the current settings; onChange(conversation, answer before, answer after)
    // follows every change, with answers only where one changed; onAnswered(responseId) tells that
    // the page has all of an answer.
    constructor({store, connection, settings, onChange, onAnswered}) {
        Object.assign(this, {store, connection, settings, onChange, onAnswered});
        this.conversations = new Map();
        this.lanes = new Lanes();
        this.resuming = [];  // {conversationId, answerId} of answers to ask for once connected
    }

    load(conversations) {
        for (const stored of conversations) {
            const conversation = reduce(stored, {type: "reopened"});
            this.conversations.set(stored.id, conversation);
            this.resumeLater(conversation);
        }
    }

    // Newest first.
    list() {
        return [...this.conversations.values()].sort((a, b) => b.updatedAt - a.updatedAt);
    }

    get(id) {
        return this.conversations.get(id);
    }

    // Kept only once it has a message: empty conversations are not worth a line in the list.
    create() {
        return newConversation(randomId(), Date.now());
    }

    send(conversation, text) {
        this.conversations.set(conversation.id, conversation);
        this.start(conversation.id, {type: "send", text, userId: randomId()});
    }

    edit(id, messageId, text) {
        this.start(id, {type: "edit", messageId, text});
    }

    regenerate(id, messageId) {
        this.start(id, {type: "regenerate", messageId});
    }

    rename(id, title) {
        this.apply(id, {type: "rename", title});
    }

    remove(id) {
        const conversation = this.conversations.get(id);
        this.stop(id);
        this.conversations.delete(id);
        this.store.remove(id);
        return conversation;
    }

    restore(conversation) {
        this.conversations.set(conversation.id, conversation);
        this.apply(conversation.id, {type: "restored"});
    }

    stop(id) {
        const conversation = this.conversations.get(id);
        const answer = conversation && liveMessage(conversation);
        if (!answer || answer.phase === "stopping") return;
        const lane = this.lanes.laneOf(answer.id);
        if (lane) {
            this.apply(id, {type: "stopping", answerId: answer.id});
            this.connection.send({type: "response.cancel", stream_id: lane});
        } else {
            // Another tab is writing it, or was when it was closed; if it still is, its next save
            // shows here again.
            this.conversations.set(id, reduce(conversation, {type: "restored"}));
            this.onChange(this.conversations.get(id));
        }
    }

    // action lacks answerId and now; sends the response.create of the answer it begins.
    start(id, action) {
        const answerId = randomId();
        this.apply(id, {...action, answerId, now: Date.now()});
        const error = this.submit(id, answerId);
        if (error) this.apply(id, {type: "refused", answerId, error});
    }

    // Returns null, or the error that kept the request from being sent.
    submit(id, answerId) {
        if (!this.connection.isOpen) return {code: "not_connected"};
        const create = {
            type: "response.create",
            input: inputItems(this.conversations.get(id), answerId),
            ...requestFields(this.settings()),
            truncation: "auto",
            store: true,  // so that it outlives a lost connection
        };
        const bytes = new TextEncoder().encode(JSON.stringify(create)).length + 64;
        if (bytes > messageBytesMax) return {code: "message_too_large"};
        const lane = this.lanes.claim({conversationId: id, answerId});
        if (lane === null) return {code: "too_many_answers"};
        this.connection.send({...create, stream_id: lane});
        return null;
    }

    // An event of the server that names a lane.
    received(event) {
        const owner = this.lanes.owner(event.stream_id);
        if (!owner) return;
        if (event.type !== "error") owner.created = true;
        const {conversationId, answerId} = owner;
        this.apply(conversationId, {type: "wire", answerId, event, now: Date.now()});
        if (!endsResponse(event, owner)) return;
        this.lanes.release(event.stream_id);
        if (event.response?.id) this.onAnswered(event.response.id);
    }

    disconnected() {
        for (const {conversationId, answerId} of this.lanes.releaseAll()) {
            this.apply(conversationId, {type: "lost", answerId});
            this.resumeLater(this.conversations.get(conversationId));
        }
    }

    resumeLater(conversation) {
        const answer = conversation && liveMessage(conversation);
        if (answer?.phase !== "resuming") return;
        this.resuming.push({conversationId: conversation.id, answerId: answer.id});
    }

    // Asks for the answers that a lost connection or a reload cut off: the text so far, then what
    // follows. Those beyond the lanes wait for the next time.
    connected() {
        for (const owner of this.resuming.splice(0)) {
            const conversation = this.conversations.get(owner.conversationId);
            const answer = conversation && liveMessage(conversation);
            if (answer?.id !== owner.answerId) continue;
            const lane = this.lanes.claim(owner);
            if (lane === null) {
                this.resuming.push(owner);
                continue;
            }
            this.connection.send({
                type: "troupe:response.resume", response_id: answer.responseId, mode: "snapshot",
                stream_id: lane,
            });
        }
    }

    // Another tab saved (or, with null, deleted) a conversation.
    foreign(id, conversation) {
        const mine = this.conversations.get(id);
        if (mine && this.lanes.laneOf(liveMessage(mine)?.id)) return;
        if (conversation) this.conversations.set(id, conversation);
        else this.conversations.delete(id);
        this.onChange(conversation ?? mine);
    }

    // A conversation deleted while its answer's last events are on their way is simply gone.
    apply(id, action) {
        const before = this.conversations.get(id);
        if (!before) return;
        const after = reduce(before, action);
        this.conversations.set(id, after);
        const find = ({messages}) => messages.find((message) => message.id === action.answerId);
        const answer = find(after);
        this.store.save(after, !isLive(answer) || action.type !== "wire");
        this.onChange(after, find(before), answer);
    }
}
