// What went wrong, in words for the person at the screen. Pure.

const explanations = {
    context_length_exceeded: "This conversation no longer fits into the model's memory. Start a " +
        "new one, or edit an earlier message to shorten it.",
    rate_limit_exceeded: "Too many requests at once. Please try again in a moment.",
    websocket_queue_full: "Too many answers are waiting already. Let one finish or stop it first.",
    overloaded: "The server has more work than it can take. Please try again in a moment.",
    server_error: "The server hit an internal error. Trying again may help.",
    model_not_found: "The server does not have this model.",
    invalid_api_key: "The server did not accept the access key.",
    forbidden: "The server does not allow this page to talk to it.",
    message_too_large: "This conversation is too long to send. Start a new one, or shorten it.",
    too_many_answers: "Eight answers are being written already. Let one finish or stop it first.",
    not_connected: "There is no connection to the server, so the message could not be sent.",
};

function retryHint(error) {
    const seconds = Number(error.headers?.["Retry-After"] ?? error.headers?.["retry-after"]);
    return seconds > 0 ? ` The server suggests ${seconds} s.` : "";
}

// error: the error object of an error event or of response.failed. Returns {text, detail}; detail
// is the server's own sentence where it adds to ours.
export function explainError(error) {
    const code = error?.code ?? "";
    const message = error?.message ?? "";
    if (explanations[code]) {
        return {text: explanations[code] + retryHint(error), detail: message};
    }
    if (message) return {text: "The server could not answer.", detail: message};
    return {text: "The server could not answer and did not say why.", detail: ""};
}

const closeReasons = {
    1001: "The server is shutting down or restarting.",
    1009: "The last message was too large for the server.",
    1011: "The server had an internal error and closed the connection.",
    1012: "The server is restarting.",
    1013: "The server is overloaded and closed the connection.",
    4400: "The server did not understand this page. Reloading it may help.",
    4401: "The server needs an access key.",
    4403: "The server does not allow this page to connect.",
    4408: "The access key was not sent in time.",
    4429: "Too many connections or messages from this browser.",
};

export function explainClose(code) {
    return closeReasons[code] ?? "The connection to the server was lost.";
}
