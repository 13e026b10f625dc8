// A conversation as a value, and the pure function that turns it into the next one. No DOM, no
// clock, no randomness: times and identifiers come with the actions.
//
//   conversation {id, title, renamed, createdAt, updatedAt, messages}
//   user         {id, role: "user", text}
//   assistant    {id, role: "assistant", text, phase, ...}; further fields in newAnswer()
//
// Phases of an answer: sending -> queued -> reading -> writing -> one of the ended ones
//   done         the model ended it
//   limit        the token limit ended it
//   stopped      the reader stopped it, or the server did (reason says why)
//   failed       the server reported an error (error)
//   lost         the connection broke, and the server has the answer no more
//   interrupted  the page was closed or reloaded before the answer had a name to ask for
// Two more live phases: "stopping", the cancel was sent and its terminal event has not come yet;
// "resuming", the connection broke or the page was reloaded, and the server goes on writing for a
// while.

const livePhases = new Set(["sending", "queued", "reading", "writing", "stopping", "resuming"]);
const titleLength = 60;
export const newTitle = "New conversation";

export function isLive(message) {
    return message?.role === "assistant" && livePhases.has(message.phase);
}

export function liveMessage(conversation) {
    return conversation.messages.find(isLive);
}

export function newConversation(id, now) {
    return {id, title: newTitle, renamed: false, createdAt: now, updatedAt: now, messages: []};
}

function newAnswer(id, now) {
    return {
        id, role: "assistant", text: "", phase: "sending", responseId: null, sentAt: now,
        firstTextAt: null, lastTextAt: null, queuePosition: null, promptDone: null,
        promptTotal: null, usage: null, rate: null, error: null, reason: null,
        droppedMessages: 0, scores: [],
    };
}

export function titleFrom(text) {
    const line = text.trim().split("\n")[0].replace(/\s+/g, " ");
    if (line.length <= titleLength) return line || newTitle;
    return line.slice(0, titleLength).replace(/\s+\S*$/, "") + "…";
}

// The input items of response.create: every message up to the answer with this id. Answers of which
// nothing arrived are left out.
export function inputItems(conversation, answerId) {
    const end = conversation.messages.findIndex((message) => message.id === answerId);
    return conversation.messages.slice(0, end)
        .filter((message) => message.role === "user" || message.text !== "")
        .map((message) => ({
            type: "message",
            role: message.role,
            content: [{
                type: message.role === "user" ? "input_text" : "output_text",
                text: message.text,
            }],
        }));
}

// Tokens and rates for the line under an answer; null where unknown. The time to the first token
// and, unless the server says better, the rate are what this reader saw.
export function answerStats(message) {
    const tokens = message.usage?.output_tokens ?? null;
    const writingMs = message.lastTextAt - message.firstTextAt;
    const seen = tokens > 1 && writingMs > 0 ? (tokens - 1) * 1000 / writingMs : null;
    return {
        tokens,
        tokensPerSecond: message.rate ?? seen,
        firstTokenMs: message.firstTextAt === null ? null : message.firstTextAt - message.sentAt,
        promptTokens: message.usage?.input_tokens ?? null,
        cachedTokens: message.usage?.input_tokens_details?.cached_tokens ?? null,
    };
}

const wireHandlers = {
    "response.created": (answer, event) => ({responseId: event.response?.id ?? null}),

    "response.queued": (answer, event) => ({
        phase: unlessStopping(answer, "queued"),
        queuePosition: event.troupe?.queue_position ?? null,
    }),

    // After a resume it carries all of the text so far.
    "response.in_progress": (answer, event) => {
        const text = textSoFar(event) ?? answer.text;
        return {
            text,
            scores: scoresSoFar(event) ?? answer.scores ?? [],
            phase: unlessStopping(answer, text === "" ? "reading" : "writing"),
            promptDone: event.troupe?.prompt_done ?? answer.promptDone,
            promptTotal: event.troupe?.prompt_total ?? answer.promptTotal,
        };
    },

    "response.output_text.delta": (answer, event, now) => ({
        phase: unlessStopping(answer, "writing"),
        text: answer.text + event.delta,
        scores: withScores(answer.scores ?? [], event.logprobs),
        firstTextAt: answer.firstTextAt ?? now,
        lastTextAt: now,
    }),

    "response.output_text.done": (answer, event) => ({text: event.text ?? answer.text}),

    "response.completed": (answer, event) => ended(answer, event, "done"),

    "response.incomplete": (answer, event) => {
        const reason = event.response?.incomplete_details?.reason ?? null;
        if (reason === "max_output_tokens") return ended(answer, event, "limit");
        const cause = reason ?? terminalTroupe(event).finish_reason ?? null;
        return {
            ...ended(answer, event, "stopped"),
            reason: answer.phase === "stopping" ? null : cause,
        };
    },

    "response.failed": (answer, event) => ({
        ...ended(answer, event, "failed"),
        error: answer.error ?? event.response?.error ?? null,
    }),

    // Before response.created an error is all that comes; after it, response.failed follows. To a
    // resume it means that the answer is gone.
    "error": (answer, event) => {
        if (answer.phase === "resuming") return {phase: "lost"};
        return {
            error: event.error ?? event,
            phase: answer.responseId === null ? "failed" : answer.phase,
        };
    },
};

// Tokens with what else could have come, as [text, logprob, [[text, logprob], ...]].
function withScores(scores, logprobs) {
    if (!logprobs?.length) return scores;
    return scores.concat(logprobs.map((entry) => [
        entry.token, entry.logprob,
        entry.top_logprobs.filter((other) => other.logprob !== null)
            .map((other) => [other.token, other.logprob]),
    ]));
}

function unlessStopping(answer, phase) {
    return answer.phase === "stopping" ? "stopping" : phase;
}

// An answer without an id cannot be asked for again.
function disconnectedPhase(answer) {
    if (answer.phase === "stopping") return "stopped";
    return answer.responseId === null ? "lost" : "resuming";
}

function partsSoFar(event) {
    return (event.response?.output ?? []).flatMap((item) => item.content ?? []);
}

// The text of a response object that has any output, else null; and its scores.
function textSoFar(event) {
    const parts = partsSoFar(event);
    return parts.length === 0 ? null : parts.map((part) => part.text ?? "").join("");
}

function scoresSoFar(event) {
    const parts = partsSoFar(event);
    return parts.length === 0 ? null : withScores([], parts.flatMap((part) => part.logprobs ?? []));
}

function terminalTroupe(event) {
    return event.response?.troupe ?? {};
}

function ended(answer, event, phase) {
    return {
        phase,
        text: textSoFar(event) ?? answer.text,
        usage: event.response?.usage ?? null,
        rate: terminalTroupe(event).tokens_per_second ?? null,
        droppedMessages: terminalTroupe(event).truncation?.dropped_messages ?? 0,
        reason: null,
    };
}

function changeAnswer(conversation, id, change) {
    const messages = conversation.messages.map((message) => {
        return message.id === id ? {...message, ...change(message)} : message;
    });
    return {...conversation, messages};
}

function endLive(conversation, phaseOf) {
    const messages = conversation.messages.map((message) => {
        return isLive(message) ? {...message, phase: phaseOf(message)} : message;
    });
    return {...conversation, messages};
}

function truncateAt(conversation, messageId, ...appended) {
    const end = conversation.messages.findIndex((message) => message.id === messageId);
    const kept = end < 0 ? conversation.messages : conversation.messages.slice(0, end);
    return {...conversation, messages: [...kept, ...appended]};
}

const handlers = {
    // {text, userId, answerId, now}
    send(conversation, action) {
        const user = {id: action.userId, role: "user", text: action.text};
        return titled({
            ...conversation,
            messages: [...conversation.messages, user, newAnswer(action.answerId, action.now)],
        });
    },

    // {messageId, text, answerId, now}: what followed the edited message is dropped.
    edit(conversation, action) {
        const user = {id: action.messageId, role: "user", text: action.text};
        const answer = newAnswer(action.answerId, action.now);
        return titled(truncateAt(conversation, action.messageId, user, answer));
    },

    // {messageId, answerId, now}: a new answer in the place of this one, without what followed.
    regenerate(conversation, action) {
        return truncateAt(conversation, action.messageId, newAnswer(action.answerId, action.now));
    },

    // {answerId, event, now}
    wire(conversation, action) {
        const handler = wireHandlers[action.event.type];
        if (!handler) return conversation;
        return changeAnswer(conversation, action.answerId,
            (answer) => isLive(answer) ? handler(answer, action.event, action.now) : {});
    },

    // {answerId}
    stopping: (conversation, action) => changeAnswer(conversation, action.answerId,
        (answer) => isLive(answer) ? {phase: "stopping"} : {}),

    // {answerId}
    lost: (conversation, action) => changeAnswer(conversation, action.answerId,
        (answer) => isLive(answer) ? {phase: disconnectedPhase(answer)} : {}),

    // {answerId, error}: it could not even be sent.
    refused: (conversation, action) => changeAnswer(conversation, action.answerId,
        () => ({phase: "failed", error: action.error})),

    // Read back from the store by a page that was not the one writing.
    restored: (conversation) => endLive(conversation, () => "interrupted"),

    // Read back by a page that has just been opened: what was being written can be asked for.
    reopened: (conversation) => endLive(conversation, ({responseId}) => {
        return responseId === null ? "interrupted" : "resuming";
    }),

    // {title}
    rename: (conversation, action) => ({...conversation, title: action.title, renamed: true}),
};

function titled(conversation) {
    if (conversation.renamed) return conversation;
    return {...conversation, title: titleFrom(conversation.messages[0].text)};
}

// updatedAt is when the reader last did something here: answers must not reorder the list.
export function reduce(conversation, action) {
    const next = handlers[action.type](conversation, action);
    const byReader = ["send", "edit", "regenerate"].includes(action.type);
    return byReader ? {...next, updatedAt: action.now} : next;
}
