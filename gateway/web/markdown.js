// Markdown to DOM for text nobody vouches for. Pure apart from creating detached nodes.
//
// Three fences, each enough alone: raw HTML is not parsed but shown as text; the parser's output
// passes DOMPurify with the tags and attributes it can produce; links are http, https or mailto and
// images become links. The content security policy is the fourth.
// No style attribute is ever written: KaTeX's are moved to the CSSOM, which the policy allows.

import {el, copyButton} from "./dom.js";

const {marked, DOMPurify, hljs, katex} = globalThis;

const hrefPattern = /^(?:https?:\/\/|mailto:)/i;
const highlightedCharactersMax = 40_000;
// marked turns a line's leading tabs into spaces; inside code they are kept through this stand-in.
const tabStandIn = "\uE009";

const sanitizeOptions = {
    RETURN_DOM_FRAGMENT: true,
    ALLOWED_TAGS: [
        "a", "blockquote", "br", "code", "del", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6",
        "hr", "input", "li", "ol", "p", "pre", "span", "strong", "table", "tbody", "td", "th",
        "thead", "tr", "ul", "#text",
    ],
    ALLOWED_ATTR: ["align", "checked", "class", "disabled", "href", "start", "title", "type"],
    ALLOWED_URI_REGEXP: hrefPattern,
    // Otherwise that pattern would be asked of every attribute's value.
    ADD_URI_SAFE_ATTR: ["align", "checked", "disabled", "start", "type"],
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
};

function escapeHtml(text) {
    const entities = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"};
    return text.replace(/[&<>"']/g, (character) => entities[character]);
}

export function safeHref(href) {
    const trimmed = (href ?? "").trim();
    return hrefPattern.test(trimmed) ? trimmed : null;
}

function renderLink(href, title, text) {
    const safe = safeHref(href);
    if (!safe) return text;
    const titled = title ? ` title="${escapeHtml(title)}"` : "";
    return `<a href="${escapeHtml(safe)}"${titled}>${text}</a>`;
}

function renderImage(href, title, text) {
    return renderLink(href, title, escapeHtml(`[image: ${text || "no description"}]`));
}

function renderCode(code, info) {
    const language = (info ?? "").match(/^[^\s{,]*/)[0];
    const text = code.replaceAll(tabStandIn, "\t");
    return `<pre><code class="language-${escapeHtml(language)}">${escapeHtml(text)}</code></pre>\n`;
}

// $x$ only where it cannot be money: no space inside the dollars, no letter or digit after them.
const inlineMath = [
    /^\$\$([^$\n]+?)\$\$/,
    /^\\\(([^\n]+?)\\\)/,
    /^\$([^\s$\\]|[^\s$](?:\\.|[^$\\\n])*?(?:\\.|[^\s$\\]))\$(?![\w$])/,
];

const mathInline = {
    name: "mathInline",
    level: "inline",
    start: (source) => source.search(/\$|\\\(/),
    tokenizer(source) {
        for (const pattern of inlineMath) {
            const match = pattern.exec(source);
            if (match) return {type: "mathInline", raw: match[0], tex: match[1]};
        }
        return undefined;
    },
    renderer: (token) => `<code class="math-inline">${escapeHtml(token.tex)}</code>`,
};

const mathBlock = {
    name: "mathBlock",
    level: "block",
    start: (source) => source.search(/(?:^|\n) {0,3}(?:\$\$|\\\[)/),
    tokenizer(source) {
        const pattern = /^ {0,3}(?:\$\$([\s\S]+?)\$\$|\\\[([\s\S]+?)\\\])[ \t]*(?:\n|$)/;
        const match = pattern.exec(source);
        if (!match) return undefined;
        return {type: "mathBlock", raw: match[0], tex: match[1] ?? match[2]};
    },
    renderer: (token) => `<pre class="math-block">${escapeHtml(token.tex)}</pre>`,
};

marked.use({
    gfm: true,
    breaks: true,
    mangle: false,
    headerIds: false,
    // A tokenizer that finds nothing leaves "<" to the text rules, which escape it.
    tokenizer: {html: () => undefined, tag: () => undefined},
    renderer: {link: renderLink, image: renderImage, code: renderCode},
    extensions: [mathInline, mathBlock],
});

// Does to the text what marked's lexer would do first, so that the lengths of the blocks' raw text
// are lengths in the text given; leading tabs inside fenced code are kept.
export function normalize(text) {
    let fence = null;
    return text.replace(/\r\n?/g, "\n").split("\n").map((line) => {
        const mark = /^ {0,3}(`{3,}|~{3,})/.exec(line)?.[1];
        const inside = fence !== null;
        if (!inside && mark) fence = mark;
        else if (inside && mark?.startsWith(fence)) fence = null;
        if (!line.includes("\t")) return line;
        if (inside) return line.replaceAll("\t", tabStandIn);
        return line.replace(/^( *)(\t+)/, (_, lead, tabs) => lead + "    ".repeat(tabs.length));
    }).join("\n");
}

// Splits normalised text into top-level blocks {raw, type, tokens}; the raws joined are the text:
// blank lines, and link definitions, which the lexer drops, belong to the block before them.
export function splitBlocks(text) {
    const tokens = marked.lexer(text);
    const blocks = [];
    let end = 0;
    for (const token of tokens) {
        const start = text.indexOf(token.raw, end);
        end = start + token.raw.length;
        if (token.type === "space") continue;
        blocks.push({start: blocks.length === 0 ? 0 : start, type: token.type, tokens: [token]});
    }
    blocks.forEach((block, index) => {
        block.raw = text.slice(block.start, blocks[index + 1]?.start);
    });
    return {blocks, definesLinks: Object.keys(tokens.links).length > 0};
}

function secureLink(link) {
    link.setAttribute("target", "_blank");
    link.setAttribute("rel", "noopener noreferrer nofollow");
}

// Fills a <code> element; text is never parsed as HTML, only highlight.js's own escaped output is.
function fillCode(code, text, language) {
    const known = language && hljs.getLanguage(language);
    if (known && text.length <= highlightedCharactersMax) {
        code.innerHTML = hljs.highlight(language, text, true).value;
    } else {
        code.textContent = text;
    }
}

function codeFrame(text, language) {
    const code = el("code", {class: "hljs"});
    fillCode(code, text, language);
    const head = el("div", {class: "code-head"},
        el("span", {class: "code-language"}, language || "text"),
        copyButton("Copy code", () => code.textContent));
    const frame = el("div", {class: "code"}, head, el("pre", {}, code));
    frame.dataset.language = language;
    return frame;
}

function frameCode(pre) {
    const code = pre.querySelector("code");
    const language = code.className.replace(/^language-/, "");
    pre.replaceWith(codeFrame(code.textContent.replace(/\n$/, ""), language));
}

// KaTeX writes some sizes as style attributes; under the policy only the CSSOM may set them.
function moveStyles(node) {
    if (node.attributes?.style) {
        node.attributes["data-style"] = node.attributes.style;
        delete node.attributes.style;
    }
    node.children?.forEach(moveStyles);
}

function renderMath(element, displayMode) {
    const options = {displayMode, throwOnError: true, strict: "ignore", trust: false,
                     maxSize: 20, maxExpand: 200};
    try {
        const tree = katex.__renderToDomTree(element.textContent, options);
        moveStyles(tree);
        const math = tree.toNode();
        for (const styled of math.querySelectorAll("[data-style]")) {
            styled.style.cssText = styled.getAttribute("data-style");
            styled.removeAttribute("data-style");
        }
        element.replaceWith(displayMode ? el("div", {class: "math"}, math) : math);
    } catch {
        // Not a formula KaTeX knows (or not yet all of it): its source stays, as code.
    }
}

function decorate(fragment) {
    fragment.querySelectorAll("a[href]").forEach(secureLink);
    fragment.querySelectorAll("pre.math-block").forEach((node) => renderMath(node, true));
    fragment.querySelectorAll("code.math-inline").forEach((node) => renderMath(node, false));
    fragment.querySelectorAll("pre:not(.math-block)").forEach(frameCode);
    for (const table of fragment.querySelectorAll("table")) {
        const scroller = el("div", {class: "table"});
        table.replaceWith(scroller);
        scroller.append(table);
    }
    for (const box of fragment.querySelectorAll("input")) {
        box.setAttribute("aria-label", box.checked ? "done" : "not done");
    }
}

// One block of splitBlocks() as a <div class="block">.
export function renderBlock(block) {
    const fragment = DOMPurify.sanitize(marked.parser(block.tokens), sanitizeOptions);
    decorate(fragment);
    return el("div", {class: "block"}, fragment);
}

// A code block that only grew keeps its elements: its scroll position and its copy button survive.
// Returns false if this is not what happened.
export function growCode(element, block) {
    const frame = element.firstElementChild;
    const token = block.tokens[0];
    const language = (token.lang ?? "").match(/^[^\s{,]*/)[0];
    if (token.type !== "code" || !frame?.classList.contains("code")) return false;
    if (frame.dataset.language !== language) return false;
    fillCode(frame.querySelector("code"), token.text.replaceAll(tabStandIn, "\t"), language);
    return true;
}

// Renders a whole text at once; for text that grows see markdown_stream.js.
export function renderMarkdown(text) {
    const {blocks} = splitBlocks(normalize(text));
    return el("div", {class: "markdown"}, ...blocks.map(renderBlock));
}
