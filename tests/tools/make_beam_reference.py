#!/usr/bin/env python3
"""Makes tests/data/beam_search/*.json: what transformers' beam search answers.

    python3 -m venv env && env/bin/pip install "torch" "transformers==4.57.6"
    env/bin/python tests/tools/make_beam_reference.py

tables.json: toy models whose next scores depend on the last token and its place, by a formula that
tests/model/test_beam_search.cpp has too; every score is exact in float32. stories260k.json: a real
llama (../shared/data/1-model/stories260K) in float32.
"""

import json
import pathlib
import struct

import numpy as np
import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedModel
from transformers import PretrainedConfig
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SHARED = ROOT.parent / "shared" / "data" / "1-model" / "stories260K"
OUT = ROOT / "tests" / "data" / "beam_search"
MASK = (1 << 64) - 1
MAX_TOKENS = 12


def mix_bits(value):
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def table(seed, vocabulary, ends):
    """[place][vocabulary][vocabulary] scores between 0 and 8; an end is likelier than others."""
    rows = [[[mix_bits((seed << 48) + (place << 32) + (a << 16) + b) % (1 << 20) / (1 << 17)
              + (2 if b in ends else 0) for b in range(vocabulary)] for a in range(vocabulary)]
            for place in range(MAX_TOKENS)]
    return torch.tensor(rows, dtype=torch.float32)


class TableConfig(PretrainedConfig):
    model_type = "table"

    def __init__(self, vocab_size=2, **rest):
        super().__init__(**rest)
        self.vocab_size = vocab_size


class TableModel(PreTrainedModel, GenerationMixin):
    config_class = TableConfig

    def __init__(self, rows):
        super().__init__(TableConfig(vocab_size=rows.shape[-1]))
        self.rows = torch.nn.Parameter(rows, requires_grad=False)

    def prepare_inputs_for_generation(self, input_ids, **_):
        return {"input_ids": input_ids}

    def forward(self, input_ids, return_dict=True):
        return CausalLMOutputWithPast(logits=self.rows[input_ids.shape[1] - 1][input_ids])


def answers(model, prompt, width, length_penalty, max_tokens, ends, use_cache=True):
    with torch.no_grad():
        out = model.generate(
            torch.tensor([prompt]),
            generation_config=GenerationConfig(
                do_sample=False, num_beams=width, num_return_sequences=width,
                length_penalty=length_penalty, early_stopping=False, max_new_tokens=max_tokens, use_cache=use_cache,
                eos_token_id=ends, pad_token_id=ends[0], bos_token_id=1,
                return_dict_in_generate=True, output_scores=True))
    found = []
    for tokens, score, path in zip(out.sequences, out.sequences_scores, out.beam_indices):
        length = int((path >= 0).sum())
        found.append({"tokens": tokens[len(prompt):len(prompt) + length].tolist(),
                      "score": float(score)})
    return found


def make_tables():
    cases = []
    for seed in range(6):
        for vocabulary, ends in ((12, [0]), (40, [3, 17]), (40, [5])):
            model = TableModel(table(seed, vocabulary, ends))
            for width in (2, 3, 5):
                for length_penalty in (1.0, 0.0, 2.0, -0.5):
                    cases.append({
                        "seed": seed, "vocabulary": vocabulary, "ends": ends, "prompt": [1],
                        "beam_width": width, "length_penalty": length_penalty, "max_tokens": MAX_TOKENS,
                        "answers": answers(model, [1], width, length_penalty, MAX_TOKENS, ends,
                                           use_cache=False)})
    return cases


def read_stories():
    data = (SHARED / "stories260K.bin").read_bytes()
    dim, hidden, layers, heads, kv_heads, vocabulary, context = struct.unpack("7i", data[:28])
    floats = np.frombuffer(data, dtype=np.float32, offset=28)
    at = 0

    def take(*shape):
        nonlocal at
        size = int(np.prod(shape))
        values = floats[at:at + size].reshape(shape)
        at += size
        return torch.from_numpy(values.copy())

    width = dim // heads
    kv = width * kv_heads

    def half_split(weights, count):
        """llama2.c turns neighbours, transformers the two halves of a head."""
        return weights.reshape(count, width // 2, 2, dim).transpose(1, 2).reshape(count * width, dim)

    names = {"model.embed_tokens.weight": take(vocabulary, dim)}

    def take_layers(name, *shape):
        for layer in range(layers):
            names[f"model.layers.{layer}.{name}.weight"] = take(*shape)

    take_layers("input_layernorm", dim)
    for name, count, rows in (("q", heads, dim), ("k", kv_heads, kv)):
        for layer in range(layers):
            names[f"model.layers.{layer}.self_attn.{name}_proj.weight"] = \
                half_split(take(rows, dim), count)
    take_layers("self_attn.v_proj", kv, dim)
    take_layers("self_attn.o_proj", dim, dim)
    take_layers("post_attention_layernorm", dim)
    take_layers("mlp.gate_proj", hidden, dim)
    take_layers("mlp.down_proj", dim, hidden)
    take_layers("mlp.up_proj", hidden, dim)
    names["model.norm.weight"] = take(dim)
    names["lm_head.weight"] = names["model.embed_tokens.weight"]
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=vocabulary, hidden_size=dim, intermediate_size=hidden,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
        max_position_embeddings=context, rms_norm_eps=1e-5, rope_theta=10000.0,
        tie_word_embeddings=True, attn_implementation="eager")).float().eval()
    model.load_state_dict(names)
    return model


def piece_id(text):
    """The id of a piece in tok512.bin."""
    data = (SHARED / "tok512.bin").read_bytes()
    at, token = 4, 0
    while at < len(data):
        (length,) = struct.unpack("i", data[at + 4:at + 8])
        if data[at + 8:at + 8 + length] == text:
            return token
        at, token = at + 8 + length, token + 1
    raise KeyError(text)


def make_stories():
    model = read_stories()
    prompts = [(case["prompt"], case["prompt_ids"])
               for case in json.loads((SHARED / "reference-greedy.json").read_text())["cases"]]
    full_stop = piece_id(b".")
    cases = []
    for number, (text, prompt) in enumerate(prompts):
        for width, length_penalty, max_tokens, ends in (
                (4, 1.0, 40, [2, full_stop]), (2, 2.0, 48, [2, full_stop]),
                (8, 0.0, 24, [2, full_stop]), (3, 1.0, 40, [2])):
            cases.append({
                "prompt": text, "prompt_ids": prompt, "ends": ends, "beam_width": width,
                "length_penalty": length_penalty, "max_tokens": max_tokens,
                "answers": answers(model, prompt, width, length_penalty, max_tokens, ends)})
    return cases


def write(name, cases):
    lines = ",\n".join(json.dumps(case) for case in cases)
    (OUT / name).write_text('{"cases": [\n' + lines + "\n]}\n")


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    write("tables.json", make_tables())
    write("stories260k.json", make_stories())
