// Conversations in the browser's IndexedDB; the server keeps an answer only until the page has all
// of it. Saves are at most one a second per conversation, unless asked for at once. Other tabs of
// the same page are told about every change.

const databaseName = "troupe";
const tableName = "conversations";
const saveEveryMs = 1000;
// What a page could not save before it went away, by id, in localStorage.
const rescuePrefix = "troupe.rescue.";

function request(operation) {
    return new Promise((resolve, reject) => {
        operation.onsuccess = () => resolve(operation.result);
        operation.onerror = () => reject(operation.error);
    });
}

async function openDatabase() {
    const opening = indexedDB.open(databaseName, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(tableName, {keyPath: "id"});
    return request(opening);
}

function rescued() {
    try {
        return Object.keys(localStorage).filter((key) => key.startsWith(rescuePrefix))
            .map((key) => JSON.parse(localStorage.getItem(key)));
    } catch {
        return [];
    }
}

function forgetRescued(id) {
    try {
        localStorage.removeItem(rescuePrefix + id);
    } catch {
        // Without storage nothing was rescued.
    }
}

export class Store {
    // onFailure(): the browser refuses to keep conversations. onForeign(id, conversation or null):
    // another tab saved or deleted one.
    constructor({onFailure, onForeign}) {
        Object.assign(this, {onFailure, onForeign});
        this.database = null;
        this.pending = new Map();  // id -> {conversation, timer}
        this.channel = new BroadcastChannel("troupe");
        this.channel.onmessage = ({data}) => this.onForeign(data.id, data.conversation);
    }

    // Every conversation kept, in no order.
    async load() {
        try {
            this.database = await openDatabase();
            await this.salvage();
            return await request(this.table("readonly").getAll());
        } catch {
            this.onFailure();
            return [];
        }
    }

    table(mode) {
        return this.database.transaction(tableName, mode).objectStore(tableName);
    }

    save(conversation, atOnce) {
        const waiting = this.pending.get(conversation.id);
        const timer = waiting?.timer ?? setTimeout(() => this.write(conversation.id), saveEveryMs);
        this.pending.set(conversation.id, {conversation, timer});
        if (atOnce) this.write(conversation.id);
    }

    // For the moment before the page goes away: a database write begun then may never happen, but
    // localStorage is written before the call returns.
    rescue() {
        for (const [id, {conversation}] of this.pending) {
            try {
                localStorage.setItem(rescuePrefix + id, JSON.stringify(conversation));
            } catch {
                // Full or forbidden: what was saved in the last second must do.
            }
        }
    }

    // Moves what an earlier page rescued into the database.
    async salvage() {
        for (const conversation of rescued()) {
            await request(this.table("readwrite").put(conversation));
            forgetRescued(conversation.id);
        }
    }

    write(id) {
        const {conversation, timer} = this.pending.get(id);
        clearTimeout(timer);
        this.pending.delete(id);
        forgetRescued(id);
        this.change((table) => table.put(conversation), {id, conversation});
    }

    remove(id) {
        clearTimeout(this.pending.get(id)?.timer);
        this.pending.delete(id);
        forgetRescued(id);
        this.change((table) => table.delete(id), {id, conversation: null});
    }

    async change(operation, news) {
        if (!this.database) return;
        try {
            await request(operation(this.table("readwrite")));
            this.channel.postMessage(news);
        } catch {
            this.onFailure();
        }
    }
}
