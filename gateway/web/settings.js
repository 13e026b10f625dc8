// The reader's settings: defaults, what is valid and how to say so, storage, request fields.
// Values are kept as the text typed, so that a wrong one can be shown as it was.

const storageKey = "troupe.settings";
const systemPromptCharactersMax = 32_000;
const alternativesCount = 5;

export const defaultSettings = Object.freeze({
    temperature: "0.7",
    topP: "0.95",
    maxTokens: "1024",
    seed: "",
    alternatives: "on",
    systemPrompt: "",
});

function numberFrom(text) {
    const trimmed = text.trim().replace(",", ".");
    return trimmed === "" ? NaN : Number(trimmed);
}

function checkTemperature({temperature}) {
    const value = numberFrom(temperature);
    if (value >= 0 && value <= 2) return null;
    return "Temperature must be a number from 0 to 2, such as 0.7.";
}

function checkTopP({topP}) {
    const value = numberFrom(topP);
    if (value > 0 && value <= 1) return null;
    return "Top-p must be a number above 0 and at most 1, such as 0.95.";
}

function checkMaxTokens({maxTokens}, tokensMax) {
    if (maxTokens.trim() === "") return null;
    const value = numberFrom(maxTokens);
    if (Number.isInteger(value) && value >= 1 && value <= tokensMax) return null;
    if (!Number.isFinite(tokensMax)) return "Token limit must be a whole number of at least 1.";
    return `Token limit must be a whole number from 1 to ${tokensMax}, or empty.`;
}

function checkSeed({seed}) {
    if (seed.trim() === "") return null;
    const value = numberFrom(seed);
    if (Number.isSafeInteger(value) && value >= 0) return null;
    return "Seed must be a whole number of at least 0, or empty for a new one each time.";
}

function checkAlternatives({alternatives}) {
    return ["on", "off"].includes(alternatives) ? null : "Choose on or off.";
}

function checkSystemPrompt({systemPrompt}) {
    if (systemPrompt.length <= systemPromptCharactersMax) return null;
    return `System prompt must be at most ${systemPromptCharactersMax} characters long.`;
}

const checks = {
    temperature: checkTemperature,
    topP: checkTopP,
    maxTokens: checkMaxTokens,
    seed: checkSeed,
    alternatives: checkAlternatives,
    systemPrompt: checkSystemPrompt,
};

// Returns {field: message} for every field that is wrong; empty if all are right.
// tokensMax: the model's context, Infinity while it is not known.
export function validateSettings(settings, tokensMax) {
    const errors = {};
    for (const [field, check] of Object.entries(checks)) {
        const message = check(settings, tokensMax);
        if (message) errors[field] = message;
    }
    return errors;
}

// Valid settings as fields of response.create.
export function requestFields(settings) {
    const fields = {
        temperature: numberFrom(settings.temperature),
        top_p: numberFrom(settings.topP),
        top_logprobs: settings.alternatives === "on" ? alternativesCount : 0,
    };
    if (settings.maxTokens.trim()) fields.max_output_tokens = numberFrom(settings.maxTokens);
    if (settings.seed.trim()) fields.seed = numberFrom(settings.seed);
    if (settings.systemPrompt.trim()) fields.instructions = settings.systemPrompt;
    return fields;
}

// What was stored by an older page, or by hand, is used only field by field as far as it is valid.
export function loadSettings() {
    let stored = {};
    try {
        stored = JSON.parse(localStorage.getItem(storageKey)) ?? {};
    } catch {
        // Unreadable or forbidden: the defaults serve.
    }
    const settings = {...defaultSettings};
    for (const field of Object.keys(defaultSettings)) {
        if (typeof stored[field] !== "string") continue;
        if (!checks[field](stored, Infinity)) settings[field] = stored[field];
    }
    return settings;
}

// Returns false if the browser keeps nothing.
export function saveSettings(settings) {
    try {
        localStorage.setItem(storageKey, JSON.stringify(settings));
        return true;
    } catch {
        return false;
    }
}
