"""The load generator of the vLLM and Dynamo world: a short run of it over streaming chat."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import tokenizers
import transformers

AIPERF = pathlib.Path(sys.executable).parent / "aiperf"
REQUESTS, TOKENS = 24, 16


@pytest.fixture
def hub(tmp_path):
    """A cache of Hugging Face's hub with one tokenizer, a token a byte: aiperf makes prompts with it
    and would fetch one otherwise."""
    revision = "0" * 40
    repository = tmp_path / "hub" / "models--local--bytes"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(revision)
    snapshot = repository / "snapshots" / revision
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(
        vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(snapshot)
    (snapshot / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    return tmp_path


def test_its_load_is_answered_to_the_token(server, hub, tmp_path):
    done = subprocess.run(
        [AIPERF, "profile", "--model", "default", "--url", server.url, "--endpoint-type", "chat",
         "--streaming", "--concurrency", "4", "--request-count", str(REQUESTS),
         "--synthetic-input-tokens-mean", "200", "--output-tokens-mean", str(TOKENS),
         "--extra-inputs", "ignore_eos:true", "--use-server-token-count",
         "--tokenizer", "local/bytes", "--artifact-dir", tmp_path / "out", "--ui", "none"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
        env=os.environ | {"HF_HOME": str(hub), "HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0, done.stdout[-3000:]
    report = json.loads((tmp_path / "out" / "profile_export_aiperf.json").read_text())
    assert report["request_count"]["avg"] == REQUESTS
    assert "error_request_count" not in report or report["error_request_count"]["avg"] == 0
    tokens = report["output_sequence_length"]
    assert tokens["min"] == tokens["max"] == TOKENS
    # Streamed, token by token, and not at the end.
    assert 0 < report["time_to_first_token"]["avg"] < report["request_latency"]["avg"]
