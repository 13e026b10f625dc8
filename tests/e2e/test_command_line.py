"""The program's other subcommands and its errors, as a script would meet them."""

import json
import subprocess

import pytest

from serving import MODEL, TROUPE

needs_model = pytest.mark.skipif(not MODEL, reason="the default model is not here")


def run(*arguments, stdin=None, timeout=120):
    return subprocess.run([TROUPE, *arguments], input=stdin, capture_output=True, text=True,
                          timeout=timeout)


def test_help_explains_every_command():
    for command in ("serve", "chat", "complete", "next", "perplexity", "tokenize", "inspect",
                    "convert", "pull", "kv", "bench", "simulate"):
        done = run(command, "--help")
        assert done.returncode == 0 and "--" in done.stdout
    assert run("--version").stdout.startswith("troupe ")
    assert run("frobnicate").returncode == 2
    assert run().returncode == 2


def test_the_toy_model_needs_no_download():
    done = run("complete", "--model", "toy", "--prompt", "the", "--temperature", "0", "--tokens",
               "9")
    assert done.returncode == 0
    assert done.stdout.split() == "cat sat on the cat sat on the cat".split()


@needs_model
def test_complete_and_tokenize_agree_with_the_reference():
    done = run("complete", "--model", MODEL, "--prompt", "The capital of France is",
               "--temperature", "0", "--tokens", "6", "--json")
    assert done.returncode == 0
    answer = json.loads(done.stdout)
    assert "Paris" in answer["text"] and answer["usage"]["generated_tokens"] == 6
    tokens = json.loads(run("tokenize", "--model", MODEL, "--json", "Hello world!").stdout)
    assert tokens["tokens"][0]["text"] == "Hello" and tokens["count"] == 3


@needs_model
def test_inspect_shows_what_a_file_holds():
    facts = json.loads(run("inspect", MODEL, "--json").stdout)
    assert facts["architecture"] == "llama" and facts["parameters"] == 134515008
    assert "smollm" in run("inspect", MODEL).stdout


def test_errors_say_what_and_what_to_do(tmp_path):
    missing = run("serve", "--model", str(tmp_path / "none.gguf"), "--port", "0")
    assert missing.returncode == 1 and "none.gguf" in missing.stderr
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 8)
    done = run("serve", "--model", str(broken), "--port", "0")
    assert done.returncode in (1, 2) and "broken.gguf" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert run("complete", "--model", "toy", "--prompt", "the", "--temperature", "9").returncode == 2
    public = run("serve", "--model", "toy", "--host", "0.0.0.0", "--port", "0")
    assert public.returncode == 2 and "--api-keys" in public.stderr


def test_a_port_in_use_is_said(start_server):
    running = start_server(model="toy")
    port = running.url.rsplit(":", 1)[1]
    done = run("serve", "--model", "toy", "--port", port)
    assert done.returncode == 1 and port in done.stderr and "--port" in done.stderr


def test_the_simulator_repeats_itself():
    first = run("simulate", "--seeds", "1..5", "--json")
    assert first.returncode == 0
    assert run("simulate", "--seeds", "1..5", "--json").stdout == first.stdout


@needs_model
def test_a_chat_in_the_terminal(tmp_path):
    done = run("chat", "--model", MODEL, "--temperature", "0", "--tokens", "12",
               stdin="/help\nSay hello.\n/nonsense\n/retry\n/quit\n")
    assert done.returncode == 0
    assert "/retry" in done.stdout and "12 tokens" in done.stdout
    assert "there is no /nonsense" in done.stdout


@needs_model
def test_too_little_memory_and_unknown_sets_are_said():
    huge = run("complete", "--model", MODEL, "--prompt", "x", "--kv-memory", "90000GB")
    assert huge.returncode == 1 and "--kv-memory" in huge.stderr
    no_set = run("complete", "--model", MODEL, "--prompt", "x", "--isa", "mmx")
    assert no_set.returncode == 2 and "avx2" in no_set.stderr


def test_a_model_of_another_kind_is_refused_by_name(tmp_path):
    foreign = tmp_path / "foreign.gguf"
    key, value = b"general.architecture", b"mamba"
    foreign.write_bytes(b"GGUF" + (3).to_bytes(4, "little") + (0).to_bytes(8, "little") +
                        (1).to_bytes(8, "little") + len(key).to_bytes(8, "little") + key +
                        (8).to_bytes(4, "little") + len(value).to_bytes(8, "little") + value)
    done = run("inspect", str(foreign))
    assert done.returncode == 0 and "mamba" in done.stdout and "llama" in done.stdout
    assert run("complete", "--model", str(foreign), "--prompt", "x").returncode != 0
