"""A Hugging Face folder and the GGUF file made of it, as people would use them."""

import array
import json
import pathlib
import random
import shutil
import string
import struct
import subprocess

import pytest

from serving import TROUPE

DATA = pathlib.Path(__file__).parents[1] / "data" / "hugging_face"
PROMPT = ("--prompt", "abc z.", "--temperature", "0", "--tokens", "8", "--json")


def run(*arguments):
    return subprocess.run([TROUPE, *map(str, arguments)], capture_output=True, text=True,
                          timeout=120)


def whole_folder(path, name):
    """One of the tiny models with a tokenizer of 32 letters and a template."""
    shutil.copytree(DATA / name, path)
    pieces = ["<pad>", "<s>", "</s>", *string.ascii_lowercase, "Ġ", ".", "ab"]
    special = [{"id": i, "content": pieces[i], "special": True} for i in range(3)]
    (path / "tokenizer.json").write_text(json.dumps({
        "added_tokens": special,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "model": {"type": "BPE", "vocab": {p: i for i, p in enumerate(pieces)},
                  "merges": [["a", "b"]]},
    }))
    (path / "tokenizer_config.json").write_text(json.dumps(
        {"bos_token": "<s>", "eos_token": "</s>", "chat_template": "{{ messages[0].content }}"}))
    return path


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2", "mixtral"])
def test_a_folder_and_its_gguf_answer_alike(tmp_path, name):
    folder = whole_folder(tmp_path / "model-1.5B", name)
    facts = json.loads(run("inspect", folder, "--json").stdout)
    assert facts["loads"] and facts["has_chat_template"], facts
    assert facts["special_tokens"]["eos"] == "</s> (2)"
    answer = run("complete", "--model", folder, *PROMPT)
    assert answer.returncode == 0, answer.stderr

    gguf = tmp_path / "model.gguf"
    done = run("convert", folder, gguf)
    assert done.returncode == 0, done.stderr
    again = run("complete", "--model", gguf, *PROMPT)
    assert json.loads(again.stdout)["text"] == json.loads(answer.stdout)["text"]
    assert run("convert", folder, gguf).returncode != 0  # it is there already

    small = tmp_path / "small.gguf"
    assert run("convert", gguf, small, "--type", "q8_0").returncode == 0
    assert "Q8_0" in json.loads(run("inspect", small, "--json").stdout)["types"]
    assert run("complete", "--model", small, *PROMPT).returncode == 0


def write_wide_llama(folder):
    """Random weights whose rows are whole superblocks, in place of the tiny ones: eight layers."""
    config = json.loads((folder / "config.json").read_text())
    config.update(hidden_size=256, intermediate_size=256, num_hidden_layers=8,
                  num_attention_heads=4, num_key_value_heads=1, head_dim=64,
                  tie_word_embeddings=False)
    (folder / "config.json").write_text(json.dumps(config))
    draw = random.Random(1)
    few = [draw.gauss(0, 0.05) for _ in range(9973)]
    shapes = {"model.embed_tokens.weight": [config["vocab_size"], 256], "model.norm.weight": [256],
              "lm_head.weight": [config["vocab_size"], 256]}
    for layer in range(8):
        rows = {"self_attn.q_proj": 256, "self_attn.k_proj": 64, "self_attn.v_proj": 64,
                "self_attn.o_proj": 256, "mlp.gate_proj": 256, "mlp.up_proj": 256,
                "mlp.down_proj": 256}
        for name, count in rows.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = [count, 256]
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"model.layers.{layer}.{name}.weight"] = [256]
    header, data = {}, array.array("f")
    for name, shape in shapes.items():
        size = shape[0] * (shape[1] if len(shape) == 2 else 1)
        begin = draw.randrange(9973)
        numbers = ([1.0] * size if len(shape) == 1 else
                   [few[(begin + i) % 9973] for i in range(size)])
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [4 * len(data), 4 * (len(data) + size)]}
        data.extend(numbers)
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data.tobytes())


@pytest.mark.parametrize("word, types", [
    ("q4_k", {"Q4_K": 58, "F32": 17}), ("q5_k", {"Q5_K": 58, "F32": 17}),
    ("q6_k", {"Q6_K": 58, "F32": 17}), ("q4_k_m", {"Q4_K": 49, "Q6_K": 9, "F32": 17}),
    ("q5_k_m", {"Q5_K": 49, "Q6_K": 9, "F32": 17})])
def test_superblocks_run_and_are_told(tmp_path, word, types):
    folder = whole_folder(tmp_path / "wide", "llama")
    write_wide_llama(folder)
    gguf = tmp_path / f"{word}.gguf"
    done = run("convert", folder, gguf, "--type", word)
    assert done.returncode == 0, done.stderr
    told = {line.split()[-1]: int(line.split()[2])
            for line in done.stdout.splitlines() if " tensors in " in line}
    assert told == types
    answer = run("complete", "--model", gguf, *PROMPT)
    assert answer.returncode == 0, answer.stderr


def test_rows_that_are_no_superblocks_become_what_convert_says(tmp_path):
    gguf = tmp_path / "small.gguf"
    done = run("convert", whole_folder(tmp_path / "model", "llama"), gguf, "--type", "q5_k_m")
    assert done.returncode == 0, done.stderr
    assert "tensors in Q5_1  (rows are not whole blocks of Q5_K)" in done.stdout
    assert "tensors in Q8_0  (rows are not whole blocks of Q6_K)" in done.stdout
    assert run("complete", "--model", gguf, *PROMPT).returncode == 0


def test_a_folder_that_lacks_something_says_what(tmp_path):
    folder = whole_folder(tmp_path / "model", "llama")
    (folder / "tokenizer.json").unlink()
    done = run("complete", "--model", folder, *PROMPT)
    assert done.returncode != 0 and "tokenizer" in done.stderr
    (folder / "model.safetensors").unlink()
    done = run("complete", "--model", folder, *PROMPT)
    assert done.returncode != 0 and "model.safetensors" in done.stderr
