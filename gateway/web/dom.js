// Small helpers over the DOM: building elements, icons, identifiers, the clipboard. No state.

// el("button", {class: "x", onclick: f, "aria-label": "Close"}, children...): properties that start
// with "on" become listeners, true sets an empty attribute, null, undefined and false are left out.
export function el(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
        if (value === null || value === undefined || value === false) continue;
        if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
        else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
}

const svgNamespace = "http://www.w3.org/2000/svg";

// An icon is a <symbol id="icon-NAME"> of index.html.
export function icon(name) {
    const svg = document.createElementNS(svgNamespace, "svg");
    svg.setAttribute("class", "icon");
    svg.setAttribute("aria-hidden", "true");
    const use = document.createElementNS(svgNamespace, "use");
    use.setAttribute("href", `#icon-${name}`);
    svg.append(use);
    return svg;
}

export function iconButton(name, label, onclick, properties = {}) {
    return el("button", {
        type: "button", class: "icon-button", "aria-label": label, title: label, onclick,
        ...properties,
    }, icon(name));
}

// crypto.randomUUID() exists only in secure contexts, which plain HTTP in a LAN is not.
export function randomId() {
    const bytes = crypto.getRandomValues(new Uint8Array(12));
    return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export async function copyText(text) {
    if (navigator.clipboard && window.isSecureContext) {
        try {
            await navigator.clipboard.writeText(text);
            return true;
        } catch {
            // Denied by the browser: the old way below may still be allowed.
        }
    }
    const area = el("textarea", {class: "visually-hidden", readonly: true});
    area.value = text;
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
}

// A copy button says for two seconds whether it worked.
export function copyButton(label, text, properties = {}) {
    const button = iconButton("copy", label, async () => {
        const copied = await copyText(text());
        button.replaceChildren(icon(copied ? "check" : "alert"));
        button.setAttribute("aria-label", copied ? "Copied" : "The browser refused to copy");
        setTimeout(() => {
            button.replaceChildren(icon("copy"));
            button.setAttribute("aria-label", label);
        }, 2000);
    }, properties);
    return button;
}
