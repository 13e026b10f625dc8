// Markdown that grows: keeps one element per finished block and renders again only the open end.
//
// A block is settled, and never touched again, once a whole line of the next one has arrived: until
// then that line may still continue it (a list item "2" before its dot). When the text is finished
// it is split once more as a whole and only blocks that differ are replaced.

import {growCode, normalize, renderBlock, splitBlocks} from "./markdown.js";

// A last line of nothing but marks is held back while more may come: "---" under a line of text
// would turn it into a heading for a moment, "1" is perhaps the start of "1. first".
const undecidedLine = /(?:^|\n)[ \t]*(?:[-=*+_#>`~|]+|\d+[.)]?)[ \t]*$/;

export function withoutUndecidedLine(text) {
    const match = undecidedLine.exec(text);
    return match ? text.slice(0, match.index) : text;
}

export class MarkdownStream {
    constructor(host) {
        this.host = host;
        this.shown = [];  // {raw, element} of every block in the host, in order
        this.settledCount = 0;
        this.settledLength = 0;
    }

    update(text, finished) {
        const normalized = normalize(text);
        if (finished) this.finish(normalized);
        else this.grow(withoutUndecidedLine(normalized));
    }

    grow(text) {
        const {blocks} = splitBlocks(text.slice(this.settledLength));
        this.show(this.settledCount, blocks);
        let end = this.settledLength;
        for (const block of blocks) {
            end += block.raw.length;
            if (!text.slice(end).trimStart().includes("\n")) break;
            this.settledCount += 1;
            this.settledLength = end;
        }
    }

    finish(text) {
        const {blocks, definesLinks} = splitBlocks(text);
        if (definesLinks) this.show(0, []);
        this.show(0, blocks);
        // If it grows after all (another tab goes on writing it), start from the whole text.
        this.settledCount = 0;
        this.settledLength = 0;
    }

    // Makes the host's blocks from index first on equal to blocks, reusing what is unchanged.
    show(first, blocks) {
        blocks.forEach((block, index) => this.showBlock(first + index, block));
        for (const extra of this.shown.splice(first + blocks.length)) extra.element.remove();
    }

    showBlock(index, block) {
        const old = this.shown[index];
        if (old?.raw.trimEnd() === block.raw.trimEnd() && old.type === block.type) return;
        if (old && growCode(old.element, block)) {
            old.raw = block.raw;
            return;
        }
        const element = renderBlock(block);
        if (old) old.element.replaceWith(element);
        else this.host.append(element);
        this.shown[index] = {raw: block.raw, type: block.type, element};
    }
}
