// The page: makes the parts, connects them, and draws at most once per animation frame.

import {Chat} from "./chat.js";
import {ComposerView} from "./composer_view.js";
import {Connection} from "./connection.js";
import {isLive, liveMessage} from "./conversation.js";
import {explainError} from "./errors.js";
import {statsText} from "./message_view.js";
import {loadSettings, saveSettings} from "./settings.js";
import {SettingsDialog} from "./settings_dialog.js";
import {SidebarView} from "./sidebar_view.js";
import {StatusView} from "./status_view.js";
import {Store} from "./store.js";
import {ThreadView} from "./thread_view.js";

const keyStorage = "troupe.key";
const continueText = "Please continue where you stopped.";
const $ = (id) => document.getElementById(id);

let settings = loadSettings();
const context = {tokensMax: Infinity};
let current;  // the conversation shown; not in chat.conversations until it has a message
let drawing = false;
let online;  // unknown until the first attempt has ended
let loading = false;

const status = new StatusView({
    pill: $("connection"), retry: $("retry"), notices: $("notices"), announcer: $("announcer"),
});

const store = new Store({
    onFailure: () => status.notice("This browser does not keep conversations. They are lost when " +
        "the page is closed."),
    onForeign: (id, conversation) => chat.foreign(id, conversation),
});

const connection = new Connection({
    url: `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/responses`,
    key: sessionStorage.getItem(keyStorage),
    onState: connectionChanged,
    onEvent: eventReceived,
    findLoaded,
});

const chat = new Chat({
    store, connection, settings: () => settings, onChange: chatChanged, onAnswered: forgetOnServer,
});

const thread = new ThreadView({
    scroller: $("scroller"), list: $("messages"), welcome: $("welcome"), jump: $("jump"),
    actions: {
        edit: (id, text) => chat.edit(current.id, id, text),
        regenerate: (id) => chat.regenerate(current.id, id),
        continue: () => chat.send(current, continueText),
    },
});

const sidebar = new SidebarView({
    sidebar: $("sidebar"), list: $("conversations"), backdrop: $("backdrop"),
    openButton: $("open-sidebar"), closeButton: $("close-sidebar"), main: $("main"),
    actions: {
        open: openConversation,
        changed: draw,
        rename: (id, title) => chat.rename(id, title),
        remove: removeConversation,
    },
});

const composer = new ComposerView({
    form: $("composer"), input: $("input"), button: $("send"), hint: $("hint"),
    actions: {
        send(text) {
            thread.following = true;
            chat.send(current, text);
        },
        stop: () => chat.stop(current.id),
    },
});

const settingsDialog = new SettingsDialog({
    dialog: $("settings"), context,
    onSave(next) {
        settings = next;
        if (saveSettings(next)) status.notice("Settings saved. They apply from the next message.");
        else status.notice("Settings apply until the page is closed; this browser keeps none.");
    },
});

function draw() {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => {
        drawing = false;
        drawNow();
    });
}

function drawNow() {
    if (!current) return;
    current = chat.get(current.id) ?? current;
    const live = liveMessage(current);
    $("title").textContent = current.title;
    const hash = current.messages.length ? `#${current.id}` : "";
    if (hash !== location.hash) history.replaceState(null, "", hash || location.pathname);
    document.title = current.messages.length ? `${current.title} · troupe` : "troupe";
    thread.render(current, connection.isOpen && !live);
    sidebar.render(chat.list(), current.id);
    composer.render({
        live: Boolean(live), stopping: live?.phase === "stopping",
        connected: connection.isOpen, reason: connection.state.reason,
    });
}

function chatChanged(conversation, before, after) {
    if (conversation.id === current?.id) announceChange(before, after);
    if (!chat.get(conversation.id) && conversation.id === current?.id) startNew();
    draw();
}

const endings = {
    done: "The answer is complete",
    limit: "The answer stopped at the token limit",
    stopped: "The answer was stopped",
    lost: "The connection was lost during the answer",
};

function announceChange(before, after) {
    if (!after || before?.phase === after.phase) return;
    if (after.phase === "writing") status.announce("The answer begins.");
    if (isLive(after)) return;
    if (after.phase === "failed") status.announce(explainError(after.error).text);
    else status.announce([endings[after.phase], statsText(after)[0]].filter(Boolean).join(", "));
}

// The pill counts every second, so it is no live region; a change is announced once.
function announceConnection(phase) {
    if (phase === "loading" && !loading) status.announce("The server loads its model.");
    loading = phase === "loading";
    if (phase === "waiting" && online !== false) status.announce("The connection was lost.");
    if (phase === "open" && online === false) status.announce("Connected again.");
    if (phase === "waiting") online = false;
    if (phase === "open") online = true;
}

function connectionChanged(state) {
    status.renderConnection(state);
    announceConnection(state.phase);
    if (state.phase === "open") {
        loadModel();
        chat.connected();
    } else {
        chat.disconnected();
    }
    if (state.phase === "unauthorized") askForKey();
    draw();
}

function eventReceived(event) {
    if (event.stream_id !== undefined) chat.received(event);
    else if (event.type === "error") serverError(event.error ?? event);
}

// An error that belongs to no answer. A refused key is told by the close code that follows.
function serverError(error) {
    if (["invalid_api_key", "unknown_event_type"].includes(error.code)) return;
    const {text, detail} = explainError(error);
    status.notice(detail ? `${text} ${detail}` : text);
}

function withKey() {
    return connection.key ? {Authorization: `Bearer ${connection.key}`} : {};
}

// The server kept the answer for the case that the connection broke; now the browser has it.
function forgetOnServer(responseId) {
    fetch(`/v1/responses/${responseId}`, {method: "DELETE", headers: withKey()}).catch(() => {
        // Then the server forgets it when its time comes.
    });
}

async function findLoaded() {
    try {
        const answer = await (await fetch("/ready", {headers: withKey()})).json();
        return answer.status === "loading" ? answer.loaded : null;
    } catch {
        return null;
    }
}

async function loadModel() {
    try {
        const answer = await fetch("/v1/models", {headers: withKey()});
        const [model] = (await answer.json()).data;
        $("model").textContent = model.id;
        $("model").hidden = false;
        context.tokensMax = model.max_model_len ?? Infinity;
    } catch {
        // The name is an ornament; the connection itself says if the server is in trouble.
    }
}

function askForKey() {
    $("key-error").textContent = connection.key ? "The server did not accept this key." : "";
    if (!$("key").open) $("key").showModal();
}

function keyEntered(event) {
    event.preventDefault();
    const key = $("key-input").value.trim();
    if (!key) return;
    sessionStorage.setItem(keyStorage, key);
    $("key").close();
    connection.setKey(key);
}

function startNew() {
    show(chat.create());
}

function openConversation(id) {
    show(chat.get(id));
}

function show(conversation) {
    current = conversation;
    sidebar.setDrawer(false);
    drawNow();
    thread.toBottom();
    if (!sidebar.narrow.matches) $("input").focus();
}

function removeConversation(id) {
    const conversation = chat.remove(id);
    if (id === current.id) startNew();
    draw();
    status.notice(`Deleted “${conversation.title}”.`, {
        label: "Undo",
        run: () => {
            chat.restore(conversation);
            openConversation(id);
        },
    });
}

function escapePressed(event) {
    if (event.key !== "Escape" || event.defaultPrevented) return;
    if (document.querySelector("dialog[open]")) return;
    if (sidebar.isDrawerOpen) sidebar.setDrawer(false);
    else chat.stop(current.id);
}

function connectControls() {
    $("new").addEventListener("click", startNew);
    $("new-narrow").addEventListener("click", startNew);
    $("open-settings").addEventListener("click", () => settingsDialog.open(settings));
    $("toggle-theme").addEventListener("click", () => window.troupeTheme.toggle());
    $("retry").addEventListener("click", () => {
        if (connection.state.phase === "unauthorized") askForKey();
        else connection.retryNow();
    });
    $("key").querySelector("form").addEventListener("submit", keyEntered);
    for (const suggestion of document.querySelectorAll(".suggestion")) {
        suggestion.addEventListener("click", () => composer.fill(suggestion.dataset.text));
    }
    document.addEventListener("keydown", escapePressed);
    window.addEventListener("pagehide", () => store.rescue());
}

async function start() {
    connectControls();
    chat.load(await store.load());
    show(chat.get(location.hash.slice(1)) ?? chat.create());
    connection.open();
}

start();
