"""troupe next, perplexity and kv: the numbers that docs/decoding.md works out."""

import json
import math

import pytest

from serving import MODEL, ROOT, STORIES
from test_command_line import needs_model, run

SMOLLM2 = ROOT.parent / "shared" / "data" / "7-smollm2"
ALICE = SMOLLM2 / "perplexity-alice.txt"
needs_stories = pytest.mark.skipif(not STORIES.exists(),
                                   reason="no ../shared/data/1-model/stories260K")
needs_alice = pytest.mark.skipif(not ALICE.exists(), reason="no ../shared/data/7-smollm2")


def result(*arguments, **options):
    done = run(*arguments, "--json", **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def next_tokens(prompt, *flags, model="toy"):
    return result("next", "--model", model, "--prompt", prompt, *flags)


def probabilities(candidates):
    return {entry["token"]: entry["probability"] for entry in candidates}


def assert_fails(done, code, *words):
    """One line on stderr that holds all of `words`."""
    assert done.returncode == code and done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert all(word in done.stderr for word in words), done.stderr


def test_next_gives_the_probabilities_of_the_toy_model():
    answer = next_tokens("the")
    assert answer["prompt_tokens"] == 1
    assert [stage["name"] for stage in answer["stages"]] == ["scores"]
    best = answer["candidates"][:4]
    assert [entry["token"] for entry in best] == ["cat", "dog", "mat", "<end>"]
    assert [entry["id"] for entry in best] == [2, 3, 7, 0]
    assert [entry["logit"] for entry in best] == pytest.approx([3.0, 2.6, 1.5, -2.0])
    assert [entry["probability"] for entry in best] == pytest.approx([0.515, 0.345, 0.115, 0.003],
                                                                     abs=6e-4)
    assert sum(entry["probability"] for entry in answer["candidates"]) == pytest.approx(1)


@pytest.mark.parametrize("temperature, cat, dog, mat", [(0.2, 0.88, 0.12, 0.00),
                                                        (0.7, 0.59, 0.33, 0.07),
                                                        (1.5, 0.42, 0.32, 0.15)])
def test_next_shows_what_the_temperature_does(temperature, cat, dog, mat):
    answer = next_tokens("the", "--temperature", str(temperature))
    assert [stage["name"] for stage in answer["stages"]] == ["scores", "temperature"]
    before, after = (probabilities(stage["candidates"]) for stage in answer["stages"])
    assert before["cat"] == pytest.approx(0.515, abs=6e-4)
    assert [after[word] for word in ("cat", "dog", "mat")] == pytest.approx([cat, dog, mat],
                                                                           abs=6e-3)
    assert after == probabilities(answer["candidates"])


@pytest.mark.parametrize("flag, value", [("--top-k", "2"), ("--top-p", "0.9")])
def test_next_shows_what_truncation_removes(flag, value):
    answer = next_tokens("ran", flag, value)
    assert len(answer["stages"]) == 2
    kept = probabilities(answer["candidates"])
    assert kept == {"away": pytest.approx(0.62, abs=5e-3), "quickly": pytest.approx(0.38, abs=5e-3)}
    table = run("next", "--model", "toy", "--prompt", "ran", flag, value, "--count", "3")
    heading, away, quickly, removed = table.stdout.splitlines()
    assert heading.split()[-1] == answer["stages"][1]["name"] and "0.622" in away
    assert "0.378" in quickly and removed.split()[-1] == "-"


def test_next_bans_and_penalises():
    answer = next_tokens("the", "--repetition-penalty", "1.5", "--logit-bias", "2:-100",
                         "--temperature", "0")
    assert [s["name"] for s in answer["stages"]] == ["scores", "bias", "penalties", "greedy"]
    bias, penalties = (probabilities(s["candidates"]) for s in answer["stages"][1:3])
    assert "cat" not in bias
    assert penalties["the"] < bias["the"]  # -2 becomes -3: the prompt has it
    assert probabilities(answer["candidates"]) == {"dog": 1}


def test_next_counts_and_reads_standard_input():
    answer = result("next", "--model", "toy", "--prompt", "-", "--count", "2", stdin="sat on the")
    assert answer["prompt_tokens"] == 3 and len(answer["candidates"]) == 2
    assert next_tokens("the", "--chat")["prompt_tokens"] == 1


@needs_model
def test_next_agrees_with_complete():
    prompt = "The capital of France is"
    drawn = result("complete", "--model", MODEL, "--prompt", prompt, "--temperature", "0",
                   "--tokens", "1", "--top-logprobs", "5")["logprobs"][0]
    shown = next_tokens(prompt, "--count", "5", model=MODEL)
    assert [entry["id"] for entry in shown["candidates"]] == [rival["id"] for rival in drawn["top"]]
    assert [math.log(entry["probability"]) for entry in shown["candidates"]] == pytest.approx(
        [rival["logprob"] for rival in drawn["top"]], abs=1e-4)
    assert shown["prompt_tokens"] == 5 and shown["candidates"][0]["id"] == drawn["id"]


def test_next_says_what_is_wrong():
    assert_fails(run("next", "--model", "toy", "--prompt", "unknown"), 2, "--prompt")
    long = run("next", "--model", "toy", "--max-context", "4", "--prompt", "the " * 5)
    assert_fails(long, 2, "5 tokens", "4")
    bans = [flag for i in range(10) for flag in ("--logit-bias", f"{i}:-100")]
    assert_fails(run("next", "--model", "toy", "--prompt", "the", *bans), 2, "ban")


@pytest.mark.parametrize("text, loss, perplexity", [("the cat sat on the mat", 0.67, 2.0),
                                                    ("the mat sat on the dog", 1.68, 5.4)])
def test_perplexity_of_the_toy_model(text, loss, perplexity):
    answer = result("perplexity", "--model", "toy", "--text", text)
    assert answer["tokens"] == 5
    assert answer["loss"] == pytest.approx(loss, abs=0.005)
    assert answer["perplexity"] == pytest.approx(perplexity, abs=0.05)
    assert answer["perplexity"] == pytest.approx(math.exp(answer["loss"]))


@needs_stories
def test_perplexity_begins_with_what_the_model_wants_before_a_text(stories):
    first = next_tokens("", model=stories)["candidates"][0]
    assert first["token"].strip("\u2581 ") == "Once"
    alone = result("perplexity", "--model", stories, "--text", "Once")
    assert alone["tokens"] == 1
    assert alone["perplexity"] == pytest.approx(1 / first["probability"], rel=1e-5)
    text = "Once upon a time, there was a little girl"
    whole = result("perplexity", "--model", stories, "--text", text)
    assert whole["tokens"] > alone["tokens"]
    # So does every stretch: one of a single token, too.
    each = result("perplexity", "--model", stories, "--text", "Once Once Once Once", "--context",
                  "2")
    assert each["tokens"] == 4


def test_perplexity_windows_stand_alone(tmp_path):
    text = "the cat sat on the mat the"
    file = tmp_path / "text.txt"
    file.write_text(text)
    whole = result("perplexity", "--model", "toy", "--file", str(file))
    assert whole["tokens"] == 6
    assert result("perplexity", "--model", "toy", "--file", "-", stdin=text) == whole
    cut = result("perplexity", "--model", "toy", "--file", str(file), "--context", "3")
    first, second = (result("perplexity", "--model", "toy", "--text", part)
                     for part in ("the cat sat", "on the mat"))
    assert cut["tokens"] == 4  # a last window of one token has nothing to score
    assert cut["loss"] == pytest.approx((first["loss"] + second["loss"]) / 2)


@needs_model
@needs_alice
@pytest.mark.parametrize("arithmetic, tolerance", [("float32", 1e-4), ("native", 0.02)])
def test_perplexity_equals_the_reference(arithmetic, tolerance):
    texts = json.loads((SMOLLM2 / "perplexity.json").read_text())["texts"]
    alice = next(text for text in texts if text["file"] == ALICE.name)
    expected = next(entry for entry in alice["windows"] if entry["window"] == 512)
    answer = result("perplexity", "--model", MODEL, "--file", str(ALICE), "--arithmetic",
                    arithmetic, timeout=900)
    assert answer["tokens"] == expected["scored"]
    assert answer["loss"] == pytest.approx(expected["mean_nll"], abs=tolerance)


def test_perplexity_compares_with_float32_on_the_toy_model():
    text = "the cat sat on the mat"
    alone = result("perplexity", "--model", "toy", "--text", text)
    both = result("perplexity", "--model", "toy", "--text", text, "--compare", "--context", "4")
    assert "float32" not in alone
    assert both["float32"] == {"loss": both["loss"], "kl_divergence": 0, "same_best": 1,
                               "largest_difference": 0}


@needs_model
@needs_alice
def test_perplexity_compares_with_float32(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text(ALICE.read_text()[:800])
    flags = ("perplexity", "--model", MODEL, "--file", str(file), "--context", "128")
    both = result(*flags, "--compare", timeout=900)
    distance = both["float32"]
    assert both["loss"] == result(*flags, timeout=900)["loss"]
    exact = result(*flags, "--arithmetic", "float32", "--compare", timeout=900)
    assert distance["loss"] == exact["loss"] == exact["float32"]["loss"]
    assert exact["float32"]["kl_divergence"] == pytest.approx(0, abs=1e-12)
    assert exact["float32"]["same_best"] == 1 and exact["float32"]["largest_difference"] == 0
    assert 1e-5 < distance["kl_divergence"] < 0.003
    assert 0.95 < distance["same_best"] <= 1
    assert 0.01 < distance["largest_difference"] < 2


def test_perplexity_says_what_is_wrong(tmp_path):
    toy = ("perplexity", "--model", "toy")
    assert_fails(run(*toy, "--file", str(tmp_path / "none.txt")), 1, "none.txt")
    assert_fails(run(*toy, "--file", str(tmp_path)), 1, tmp_path.name)
    assert_fails(run(*toy, "--text", "the"), 2, "1 token", "2")
    assert_fails(run(*toy, "--max-context", "4", "--text", "the cat " * 4), 2, "7 tokens", "4")
    assert run(*toy).returncode == 2
    assert run(*toy, "--text", "the cat", "--file", "x").returncode == 2
    assert run(*toy, "--text", "the cat", "--context", "1").returncode == 2


LLAMA3_8B = ("--layers", "32", "--kv-heads", "8", "--head-dim", "128")
WITHOUT_GROUPS = ("--layers", "32", "--kv-heads", "32", "--head-dim", "128")


def test_kv_reckons_the_memory_of_the_cache():
    assert result("kv", *LLAMA3_8B, "--tokens", "4096", "--bytes", "2") == {
        "kv_bytes": 536870912, "kv_bytes_per_token": 131072}
    long = run("kv", *LLAMA3_8B, "--tokens", "128000")
    assert long.returncode == 0 and "16.8 GB" in long.stdout
    assert "2 (key, value) x 32 layers x 8 KV heads x 128 x 2 bytes = 131072 bytes" in long.stdout
    assert "67.1 GB" in run("kv", *WITHOUT_GROUPS, "--tokens", "128000").stdout


def test_kv_says_whether_it_fits_beside_the_weights():
    users = ("kv", *LLAMA3_8B, "--tokens", "8192", "--users", "32", "--weights", "16GB")
    roomy = result(*users, "--memory", "80GB")
    assert roomy["kv_bytes"] == 34359738368 and roomy["fits"]
    said = run(*users, "--memory", "80GB").stdout
    assert "34.4 GB" in said and "\nfits in" in said and "of weights" in said
    assert result(*users, "--memory", "48GB")["fits"]  # to the byte
    assert not result(*users, "--memory", str(48 * 2**30 - 1))["fits"]
    assert "does not fit" in run(*users, "--memory", "15GB").stdout


@needs_model
def test_kv_takes_the_shape_from_a_model():
    size = result("kv", "--model", MODEL, "--tokens", "8192", "--memory", "200MB")
    assert size == {"kv_bytes": 188743680, "kv_bytes_per_token": 23040, "fits": False}
    assert result("kv", "--model", MODEL, "--tokens", "8192", "--memory", "200MB", "--weights",
                  "0")["fits"]


def test_kv_says_what_is_wrong(tmp_path):
    assert_fails(run("kv", "--tokens", "1", "--layers", "2"), 2, "--kv-heads")
    assert_fails(run("kv", "--model", "toy", "--tokens", "1"), 2, "GGUF")
    missing = run("kv", "--model", str(tmp_path / "none.gguf"), "--tokens", "1")
    assert_fails(missing, 1, "none.gguf")
    assert_fails(run("kv", *LLAMA3_8B, "--tokens", str(2**62)), 2, "smaller")
    assert run("kv", *LLAMA3_8B, "--tokens", "0").returncode == 2
    assert run("kv", *LLAMA3_8B, "--tokens", "1", "--weights", "16GB").returncode == 2
    assert run("kv", *LLAMA3_8B, "--tokens", "1", "--memory", "many").returncode == 2
