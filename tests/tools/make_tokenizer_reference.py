#!/usr/bin/env python3
"""Makes tests/data/tokenizers/hugging_face.json: small tokenizer.json files of every supported kind
and what the `tokenizers` package makes of some texts with them.

    pip install tokenizers==0.23.3
    python3 tests/tools/make_tokenizer_reference.py > tests/data/tokenizers/hugging_face.json
"""

import base64
import json
import struct
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

CORPUS = """The quick brown fox jumps over the lazy dog, and the dog didn't mind at all.
In 1984 there were 12345 reasons; in 2026 there are 67890 more. They're all different!
Na\u00efve caf\u00e9s in Z\u00fcrich serve cr\u00e8me br\u00fbl\u00e9e. \u4f60\u597d\uff0c\u4e16\u754c\u3002 \u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!
def main(args):\n\tfor i in range(10):\n\t\tprint(i, end=' ')\n
We've seen it; you'll see it; he'd seen it. WHAT? Yes. The end of the beginning of the end.
"""
TEXTS = [
    "", " ", "  ", "a", "The quick brown fox", " the end", "the  end ", "\n\n\nthe", "\t\tfor i",
    "I'VE we've He'D", "1", "12", "123", "1234567 89", "na\u00efve", "nai\u0308ve", "Z\u00dcRICH", "\ufb01n \u2460 \u00bd \uff21",
    "\u4f60\u597d\u4e16\u754c", "\u4f60 \u597d\u3002ok", "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467", "\u0301x", "e\u0301\u0323", "\uac00\u1100\u1161\u11a8", "\u041f\u0440\u0438\u0432\u0435\u0442!",
    "a\u00a0b\u2003c\u3000d", "x" * 50, "aaaa bbbb" * 8, "!!!...,,,---", "snake_case CamelCase", "http://a.b/c?d=e&f=%20",
    "<s>hello</s>", "hello <mask> there", "hello<mask>there", "a<pad>b", "keyword keywords xkeyword", "the NewTok newtok x",
    "\u2581a \u2581", "a\u2581b", "<0x0A>", "tab\there", "trailing   ", "\r\n mixed\rlines\n", "\u00b5\u03bc \u1e9e\u00df \u0130i", "don't can't 'tis", "\u00ad\u200bz\ufeff",
    "100% of $5.00 + \u20ac3", "(a)[b]{c}", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u2028line\u2029para", "unbelievably antidisestablishmentarianism",
]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]


def character_map(mapping):
    """SentencePiece's precompiled map: a double-array trie of the keys and their strings."""
    strings = b"".join(value.encode() + b"\0" for value in mapping.values())
    starts, at = {}, 0
    for key, value in mapping.items():
        starts[key.encode()] = at
        at += len(value.encode()) + 1
    units = [0] * 4096
    used = {0}

    def place(node, prefix):
        labels = sorted({key[len(prefix)] if len(key) > len(prefix) else 0
                         for key in starts if key.startswith(prefix)})
        base = next(b for b in range(256, 4096)
                    if all((b ^ label) not in used and (b ^ label) < 4096 for label in labels) and
                    (b ^ node) < (1 << 21))
        for label in labels:
            used.add(base ^ label)
        units[node] |= (base ^ node) << 10
        for label in labels:
            child = base ^ label
            if label == 0:
                units[node] |= 1 << 8
                units[child] = starts[prefix] | 1 << 31
            else:
                units[child] |= label
                place(child, prefix + bytes([label]))

    place(0, b"")
    trie = struct.pack("<4096I", *units)
    return struct.pack("<I", len(trie)) + trie + strings


def trained(tokenizer, trainer):
    tokenizer.train_from_iterator(CORPUS.splitlines(keepends=True), trainer)
    return tokenizer


def byte_level_bpe(normalizer, steps, size=380, **options):
    made = Tokenizer(models.BPE(**options))
    made.normalizer = normalizer
    made.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    made.decoder = decoders.ByteLevel()
    return trained(made, trainers.BpeTrainer(
        vocab_size=size, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))


def character_bpe(normalizer, pre_tokenizer, byte_fallback, fuse_unk=True):
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=byte_fallback, fuse_unk=fuse_unk))
    made.normalizer = normalizer
    if pre_tokenizer:
        made.pre_tokenizer = pre_tokenizer
    bytes_of_all = [f"<0x{byte:02X}>" for byte in range(256)] if byte_fallback else []
    made = trained(made, trainers.BpeTrainer(vocab_size=220, special_tokens=SPECIAL,
                                             limit_alphabet=60, show_progress=False))
    state = json.loads(made.to_str())
    for piece in bytes_of_all:
        state["model"]["vocab"][piece] = len(state["model"]["vocab"])
    return Tokenizer.from_str(json.dumps(state))


def unigram(normalizer, pre_tokenizer, byte_fallback=False):
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizer
    made.pre_tokenizer = pre_tokenizer
    made = trained(made, trainers.UnigramTrainer(vocab_size=150, special_tokens=SPECIAL,
                                                 unk_token="<unk>", show_progress=False))
    state = json.loads(made.to_str())
    if byte_fallback:
        state["model"]["vocab"] += [[f"<0x{byte:02X}>", 0.0] for byte in range(256)]
        state["model"]["byte_fallback"] = True
    return Tokenizer.from_str(json.dumps(state))


def word_piece(normalizer, pre_tokenizer):
    made = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    made.normalizer = normalizer
    made.pre_tokenizer = pre_tokenizer
    made = trained(made, trainers.WordPieceTrainer(
        vocab_size=260, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        show_progress=False))
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", made.token_to_id("[CLS]")),
                                                 ("[SEP]", made.token_to_id("[SEP]"))])
    return made


def with_added(made):
    made.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    made.add_tokens([AddedToken("keyword", single_word=True), AddedToken("NewTok", rstrip=True)])
    return made


def kinds():
    pre, norm = pre_tokenizers, normalizers
    byte_level = pre.ByteLevel(add_prefix_space=False, use_regex=False)
    yield "gpt2", byte_level_bpe(None, [pre.ByteLevel(add_prefix_space=False)])
    yield "gpt2, a blank in front", byte_level_bpe(None, [pre.ByteLevel(add_prefix_space=True)])
    yield "llama3", byte_level_bpe(None, [pre.Split(Regex(LLAMA3), "isolated"), byte_level],
                                   ignore_merges=True)
    yield "qwen2", byte_level_bpe(norm.NFC(), [pre.Split(
        Regex(LLAMA3.replace("{1,3}", "")), "isolated"), byte_level])
    yield "single digits", with_added(byte_level_bpe(
        norm.NFKC(), [pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)]))
    yield "splits", byte_level_bpe(norm.NFD(), [
        pre.Split(" ", "merged_with_next"), pre.Split(Regex(r"\p{P}"), "merged_with_previous"),
        pre.Split(Regex("[aeiou]+"), "contiguous"), byte_level])
    yield "punctuation", byte_level_bpe(norm.NFKD(), [
        pre.Punctuation("contiguous"), pre.Digits(individual_digits=False), byte_level])
    yield "llama2", character_bpe(norm.Sequence([norm.Prepend("\u2581"), norm.Replace(" ", "\u2581")]),
                                  None, True)
    yield "mistral", with_added(character_bpe(None, pre.Metaspace(prepend_scheme="first", split=False),
                                              True))
    yield "gemma", character_bpe(norm.Replace(" ", "\u2581"), pre.Split(" ", "merged_with_previous"),
                                 True)
    yield "unknown characters", character_bpe(norm.Lowercase(), pre.Whitespace(), False)
    yield "unknown characters, each", character_bpe(
        norm.Sequence([norm.Strip(), norm.Replace(Regex(" {2,}"), " ")]),
        pre.Sequence([pre.WhitespaceSplit(), pre.Punctuation()]), False, fuse_unk=False)
    yield "t5", unigram(norm.Precompiled(character_map(
        {"\ufb01": "fi", "\u2460": "1", "\uff21": "A", "\u00bd": "1\u20442", "\u3000": " "})),
        pre.Sequence([pre.WhitespaceSplit(), pre.Metaspace()]))
    yield "unigram", with_added(unigram(norm.NFKC(), pre.Metaspace(prepend_scheme="always"), True))
    yield "bert", word_piece(norm.BertNormalizer(), pre.BertPreTokenizer())
    yield "bert, cased", word_piece(
        norm.BertNormalizer(lowercase=False, strip_accents=True), pre.BertPreTokenizer())


def main():
    dump = lambda value: json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    print('{"tokenizers":%s,"kinds":[' % dump(tokenizers.__version__))
    lines = []
    for name, made in kinds():
        cases = [[text, made.encode(text, add_special_tokens=False).ids] for text in TEXTS]
        first = made.encode("a").ids
        plain = made.encode("a", add_special_tokens=False).ids
        lines.append('{"name":%s,"adds_first":%s,"tokenizer":%s,\n"cases":%s}' % (
            dump(name), dump(len(first) > len(plain)), dump(json.loads(made.to_str())),
            dump(cases)))
    print(",\n".join(lines))
    print("]}")


if __name__ == "__main__":
    main()
