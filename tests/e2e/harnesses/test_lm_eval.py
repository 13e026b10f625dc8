"""The evaluation harness: it compares given answers by how likely they are."""

import json
import os
import pathlib
import subprocess
import sys

import httpx
import pytest

LM_EVAL = pathlib.Path(sys.executable).parent / "lm_eval"
QUESTIONS = [
    {"question": "The capital of France is", "choices": [" Paris", " Berlin", " Madrid"], "gold": 0},
    {"question": "The sun rises in the", "choices": [" west", " east", " north"], "gold": 1},
    {"question": "Water freezes at zero degrees", "choices": [" Celsius", " Kelvin"], "gold": 0},
]
TASK = """
task: tiny
dataset_path: json
dataset_kwargs: {data_files: {test: %s}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: gold
target_delimiter: ""
metric_list: [{metric: acc}]
"""


def log_likelihood(server, prompt, answer):
    reply = httpx.post(server.url + "/v1/completions", timeout=60, json={
        "model": "default", "prompt": prompt + answer, "echo": True, "logprobs": 0,
        "max_tokens": 0})
    assert reply.status_code == 200, reply.text
    scores = reply.json()["choices"][0]["logprobs"]
    return sum(score for score, offset in zip(scores["token_logprobs"], scores["text_offset"])
               if offset >= len(prompt))


def test_its_log_likelihoods_are_our_own(server, tmp_path):
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
    (tmp_path / "tiny.yaml").write_text(TASK % data)
    done = subprocess.run(
        [LM_EVAL, "--model", "local-completions", "--tasks", "tiny", "--include_path", tmp_path,
         "--model_args", f"model=default,base_url={server.url}/v1/completions,"
                         "tokenizer_backend=remote,num_concurrent=2",
         "--log_samples", "--output_path", tmp_path / "out"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"})
    assert done.returncode == 0, done.stdout[-3000:]
    samples = [json.loads(line) for path in tmp_path.glob("out/**/*.jsonl")
               for line in path.read_text().splitlines()]
    assert len(samples) == len(QUESTIONS)
    for sample in samples:
        question = sample["doc"]
        found = [float(likelihood) for likelihood, _ in sample["filtered_resps"]]
        assert found == pytest.approx([log_likelihood(server, question["question"], answer)
                                       for answer in question["choices"]], abs=1e-9)
