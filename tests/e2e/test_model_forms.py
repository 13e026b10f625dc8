"""A Hugging Face folder and the GGUF file made of it, as people would use them."""

import json
import pathlib
import shutil
import string
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


def test_a_folder_that_lacks_something_says_what(tmp_path):
    folder = whole_folder(tmp_path / "model", "llama")
    (folder / "tokenizer.json").unlink()
    done = run("complete", "--model", folder, *PROMPT)
    assert done.returncode != 0 and "tokenizer" in done.stderr
    (folder / "model.safetensors").unlink()
    done = run("complete", "--model", folder, *PROMPT)
    assert done.returncode != 0 and "model.safetensors" in done.stderr
