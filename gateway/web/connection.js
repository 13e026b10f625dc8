// The WebSocket to /v1/responses: opens it, keeps it alive, reconnects with backoff, parses events.
// Knows nothing of conversations. Owns one socket and its timers.
//
// state: {phase, reason, retryAt, loaded}
//   connecting    a socket is being opened
//   open          events flow
//   waiting       closed (reason); the next attempt is at retryAt
//   loading       the server loads its model, of which `loaded` (0 to 1) is there; then it connects
//   unauthorized  closed with 4401; waits for setKey()

import {explainClose} from "./errors.js";

const backoffFirstMs = 500;
const backoffMaxMs = 15_000;
const pingEveryMs = 20_000;
const silenceMaxMs = 50_000;
const loadingPollMs = 500;
const authenticationFailed = 4401;

// Milliseconds to wait before attempt number `attempt` (from 0): doubling, with up to a third off
// so that many pages do not come back in the same instant. random is in [0, 1).
export function backoffMs(attempt, random) {
    const full = Math.min(backoffMaxMs, backoffFirstMs * 2 ** attempt);
    return Math.round(full * (1 - random / 3));
}

export class Connection {
    // onState(state) and onEvent(event) are called for every change and every parsed event;
    // findLoaded() gives what share of the model is loaded, null of a server that is not loading.
    constructor({url, key, onState, onEvent, findLoaded}) {
        Object.assign(this, {url, key, onState, onEvent, findLoaded});
        this.socket = null;
        this.attempt = 0;
        this.retryTimer = null;
        this.pingTimer = null;
        this.heardAt = 0;
        this.state = {phase: "connecting", reason: "", retryAt: null, loaded: null};
        window.addEventListener("online", () => this.retryNow());
        document.addEventListener("visibilitychange", () => {
            if (!document.hidden) this.retryNow();
        });
    }

    get isOpen() {
        return this.state.phase === "open";
    }

    setKey(key) {
        this.key = key;
        this.attempt = 0;
        this.drop();
        this.open();
    }

    retryNow() {
        if (this.state.phase !== "waiting") return;
        clearTimeout(this.retryTimer);
        this.open();
    }

    open() {
        this.setState("connecting", this.state.reason);
        const protocols = ["troupe.v1"];
        if (this.key) protocols.push(`openai-insecure-api-key.${this.key}`);
        let socket;
        try {
            socket = new WebSocket(this.url, protocols);
        } catch {
            // The only way here: a key with characters that cannot stand in a header.
            this.closed(authenticationFailed);
            return;
        }
        this.socket = socket;
        socket.onopen = () => this.opened();
        socket.onmessage = (frame) => this.received(frame.data);
        socket.onclose = (event) => this.closed(event.code);
    }

    opened() {
        this.heardAt = performance.now();
        this.pingTimer = setInterval(() => this.ping(), pingEveryMs);
        this.setState("open", "");
    }

    received(data) {
        this.heardAt = performance.now();
        const event = JSON.parse(data);
        // Not at opened(): a server that accepts and refuses at once must meet the full backoff.
        if (event.type === "troupe:session") this.attempt = 0;
        this.onEvent(event);
    }

    // A dead network gives no close event for minutes; silence after pings tells sooner.
    ping() {
        if (performance.now() - this.heardAt > silenceMaxMs) {
            this.drop();
            this.closed(1006);
        } else {
            this.send({type: "troupe:ping", t: Date.now()});
        }
    }

    send(event) {
        this.socket.send(JSON.stringify(event));
    }

    drop() {
        clearTimeout(this.retryTimer);
        clearInterval(this.pingTimer);
        if (!this.socket) return;
        this.socket.onopen = this.socket.onmessage = this.socket.onclose = null;
        this.socket.close();
        this.socket = null;
    }

    closed(code) {
        this.drop();
        if (code === authenticationFailed) {
            this.setState("unauthorized", explainClose(code));
            return;
        }
        const delay = backoffMs(this.attempt, Math.random());
        this.attempt += 1;
        this.retryTimer = setTimeout(() => this.open(), delay);
        this.setState("waiting", explainClose(code), {retryAt: Date.now() + delay});
        this.watchLoading();
    }

    // A server that loads its model refuses sockets without saying why, but tells who asks.
    async watchLoading() {
        const before = this.state;
        const loaded = await this.findLoaded();
        if (this.state !== before) return;
        if (loaded !== null) {
            clearTimeout(this.retryTimer);
            this.attempt = 0;
            this.retryTimer = setTimeout(() => this.watchLoading(), loadingPollMs);
            this.setState("loading", "The server loads its model.", {loaded});
        } else if (before.phase === "loading") {
            this.open();
        }
    }

    setState(phase, reason, {retryAt = null, loaded = null} = {}) {
        this.state = {phase, reason, retryAt, loaded};
        this.onState(this.state);
    }
}
