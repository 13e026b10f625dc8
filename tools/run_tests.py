"""Runs the tests that tools/test has asked for and adds them up. Called by tools/test only."""

import argparse
import concurrent.futures
import functools
import hashlib
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import threading
import time
import venv
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "troupe"
REPORTS = ROOT / "build" / "reports"
REQUIREMENTS = "tests/e2e/requirements.txt"
CLIENT_REQUIREMENTS = "tests/e2e/clients/requirements.txt"
HARNESS_REQUIREMENTS = "tests/e2e/harnesses/requirements.txt"
INSTALLER = "uv==0.13.9"  # pip takes minutes for what it does in seconds
DEFAULT_MODEL = "SmolLM2-135M-Instruct"
# Tests under the sanitizers are slower by their nature: what is tagged [long], and what needs the
# default model, is left to release. The long ones first.
SANITIZED = {
    "cuda-emulated-dev": ["gpu"],
    "dev": ["cpu", "sim", "model", "gateway", "actors", "runtime", "storage"],
    "tsan": ["sim", "actors", "cpu", "runtime"],
}
# The doors; the files' targets are for tools/fuzz by hand.
FUZZED = ["http_exchange", "websocket", "connection"]
# The matrix of circumstances runs on one thread: nothing there for the thread sanitizer. On the
# emulated card it, the invariances and two more ask for equal bits, or for long, by kernels that the
# other tests run, too.
TAGS = {("tsan", "cpu"): "[threads]", ("tsan", "sim"): "~[long]~[.]~[matrix]",
        ("cuda-emulated-dev", "gpu"): '~[long]~[.]~[matrix]~[invariance]~"past what the model*"'
                                      '~"with and without graphs scores*"'}
# Programs for other processors are run by an emulator, without the default model.
EMULATORS = {"arm64": ["qemu-aarch64-static", "-cpu", "max", "-L", "/usr/aarch64-linux-gnu"]}
ON_X86 = platform.machine() == "x86_64"
# What concerns generation, in two halves of about the same time. The other files' tests are of the
# toy, which runs on no card, of the command line, of storage or of the network.
ON_EMULATED_CARD = {
    "answers": ["websocket", "openai", "openai_errors", "curl", "stories", "resume",
                "prompt_scores", "speculation"],
    "crowds": ["beams", "load", "abuse"],
}


class Tally:
    def __init__(self):
        self.lock = threading.Lock()  # of whoever adds to it
        self.passed = 0
        self.failed = 0
        self.failures = []

    def add_report(self, suite, report):
        """Counts a JUnit file; a suite that left none, or an empty one, counts as one failure."""
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
        reasons = set()
        for case in cases:
            if (skipped := case.find("skipped")) is not None:
                reasons.add(skipped.get("message") or "")
                continue
            faults = case.findall("failure") + case.findall("error")
            if not faults:
                self.passed += 1
                continue
            name = f"{suite}: {case.get('name')}"
            text = "\n".join(((f.get("message") or "") + "\n" + (f.text or "")).strip()
                             for f in faults)
            self.add_failure(name, text)
        for reason in sorted(reasons - {""}):
            print(f"     skipped: {reason}")
        if not cases:
            self.add_failure(suite, "ended without a report")

    def add_failure(self, name, text):
        self.failed += 1
        self.failures.append(name)
        print(f"FAILED {name}\n{text[:4000]}\n", flush=True)

    def add_outcome(self, name, ok, text):
        if ok:
            self.passed += 1
        else:
            self.add_failure(name, text)


def say(text):
    print(f"---- {text}", flush=True)


def build(tally, preset, targets):
    """True if it could; if not, that is a failure, told with the first lines of the compiler's."""
    say(f"building {preset}")
    started = time.monotonic()
    log = ROOT / "build" / f"{preset}.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("w") as out:
        commands = [["cmake", "--build", "--preset", preset, "--target", *targets, "--", "-k", "0"]]
        if not (ROOT / "build" / preset / "build.ninja").exists():
            commands.insert(0, ["cmake", "--preset", preset])
        # Paths from the folder on, so that presets with the same flags share what ccache keeps.
        environment = dict(os.environ, CCACHE_BASEDIR=str(ROOT), CCACHE_NOHASHDIR="1")
        ok = not any(subprocess.call(command, cwd=ROOT, stdout=out, stderr=out, env=environment)
                     for command in commands)
    print(f"     {preset} built: {time.monotonic() - started:.1f} s", flush=True)
    if not ok:
        text = log.read_text()
        lines = [line for line in text[max(0, text.find("FAILED:")):].splitlines()
                 if not line.startswith("[")]
        with tally.lock:
            tally.add_failure(f"building {preset}", "\n".join(lines[:80]))
    return ok


def fetch_model(tally):
    """The default model, by the program that was built; all tests find it by TROUPE_TEST_MODEL."""
    done = subprocess.run([ROOT / "build" / "release" / "troupe", "pull", DEFAULT_MODEL],
                          stdout=subprocess.PIPE, text=True)
    if done.returncode == 0:
        os.environ["TROUPE_TEST_MODEL"] = done.stdout.strip()
    else:
        tally.add_failure("fetching the default model", f"exit {done.returncode}")


class Beside:
    """Runs programs that ask for one core and no clock, two at a time, beside the builds."""

    def __init__(self):
        self.pool = concurrent.futures.ThreadPoolExecutor(2)
        self.begun = []

    def begin(self, function, *arguments):
        self.begun.append(self.pool.submit(function, *arguments))

    def wait(self):
        for future in self.begun:
            future.result()
        self.begun.clear()


def run_program(tally, preset, folder, filter_text):
    name = f"{preset} {folder}"
    say(name)
    report = REPORTS / f"{preset}-{folder}.xml"
    report.unlink(missing_ok=True)
    command = [*EMULATORS.get(preset, []), ROOT / "build" / preset / "tests" /
               f"troupe_test_{folder}", "-r", "junit", "-o", report]
    if filter_text:
        command.append(filter_text)
    environment = dict(os.environ)
    if preset in SANITIZED or preset in EMULATORS:
        environment.pop("TROUPE_TEST_MODEL", None)
    started = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", env=environment, timeout=1800)
    seconds = time.monotonic() - started
    with tally.lock:
        add_program(tally, name, done, report)
        print(f"     {name}: {seconds:.1f} s", flush=True)


def add_program(tally, name, done, report):
    for line in sorted(set(done.stdout.splitlines())):
        if line.startswith("skipped:"):
            print(f"     {line}")
    unreported = not report.exists() or report.stat().st_size == 0  # written at the end
    crashed = done.returncode < 0 or (done.returncode != 0 and unreported)
    if crashed or "ERROR: AddressSanitizer" in done.stdout or "ThreadSanitizer" in done.stdout:
        tally.add_failure(name, f"exit {done.returncode}\n{done.stdout[-6000:]}")
    else:
        tally.add_report(name, report)


def python_with(requirements):
    """A virtual environment that holds the requirements file; made once for each content."""
    key = hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]
    folder = CACHE / "venv" / key
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        say(f"installing {requirements.relative_to(ROOT)}")
        venv.create(folder, with_pip=True, clear=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.check_call([*pip, INSTALLER])
        if subprocess.call([python, "-m", "uv", "pip", "install", "--quiet", "--python", python,
                            "-r", requirements]):
            subprocess.check_call([*pip, "-r", requirements])  # a mirror that only pip knows
        (folder / "complete").touch()
    return python


def run_pytest(tally, name, command, requirements=REQUIREMENTS, **variables):
    """Runs `command` (arguments of the Python that has `requirements`) and adds its report.
    `variables` go into its environment."""
    say(name)
    python = python_with(ROOT / requirements)
    report = REPORTS / f"{name.replace(' ', '-')}.xml"
    report.unlink(missing_ok=True)
    environment = dict(os.environ, TROUPE=str(ROOT / "build" / "release" / "troupe"),
                       TROUPE_SHOTS=str(REPORTS / "screenshots")) | variables
    started = time.monotonic()
    done = subprocess.run([python, *command, "-q", f"--junitxml={report}", "-p",
                           "no:cacheprovider"], cwd=ROOT, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env=environment, timeout=1800)
    if not report.exists():
        print(done.stdout[-4000:])
    with tally.lock:
        tally.add_report(name, report)
        print(f"     {name}: {time.monotonic() - started:.1f} s", flush=True)


def run_fuzzers(tally):
    say("fuzz")
    done = subprocess.run([ROOT / "tools" / "fuzz", "30", *FUZZED], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    for target in FUZZED:
        lines = [line for line in done.stdout.splitlines() if line.startswith(target + " ")]
        with tally.lock:
            tally.add_outcome(f"fuzz {target}", any("nothing found" in line for line in lines),
                              "\n".join(lines) or done.stdout)


def run_on_emulated_card(tally):
    """The whole server on the emulated card, with a tiny model: the tests that the CPU passes, with
    fewer requests where there are hundreds."""
    emulated = ROOT / "build" / "cuda-emulated"
    stories = REPORTS.parent / "stories260K.gguf"
    if subprocess.call([emulated / "tests" / "stories260k_to_gguf", stories], cwd=ROOT):
        tally.add_failure("end to end on the emulated card", "the tiny model was not converted")
        return
    variables = {"TROUPE": str(emulated / "troupe"), "TROUPE_TEST_MODEL": str(stories),
                 "TROUPE_TEST_FLAGS": "--backend cuda --max-context 512"}
    beside = Beside()  # nothing there asks for a clock
    for half, names in ON_EMULATED_CARD.items():
        files = [f"tests/e2e/test_{name}.py" for name in names]
        command = ["-m", "pytest", *files, "-m", "not default_model", "--requests", "64",
                   "--operations", "240"]
        beside.begin(functools.partial(run_pytest, tally, f"end to end on the emulated card {half}",
                                       command, **variables))
    beside.wait()


def build_and_begin(tally, beside, options):
    """Builds what was asked for; programs of one build run while the next is made. Returns the
    presets that could be built."""
    tags = "" if options.all else "~[long]~[.]"
    built = []
    if build(tally, "release", ["all"]):
        built.append("release")
        fetch_model(tally)
        for folder in ["cpu", "model", "sim", "runtime", "actors", "storage", "gateway"]:
            beside.begin(run_program, tally, "release", folder, tags)
    if options.quick:
        return built
    if not ON_X86:
        print("     skipped: the emulated CUDA card and the emulated ARM need x86-64", flush=True)
    elif build(tally, "cuda-emulated", ["troupe_test_gpu", "troupe", "stories260k_to_gguf"]):
        built.append("cuda-emulated")
        beside.begin(run_program, tally, "cuda-emulated", "gpu", tags)
    if not options.all:
        return built
    if shutil.which("nvcc", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin"):
        build(tally, "cuda", ["troupe", "troupe_test_gpu"])
    else:
        print("     skipped: nvcc is not here, so the preset cuda was not built", flush=True)
    if ON_X86 and build(tally, "arm64", ["troupe_test_cpu"]):
        beside.begin(run_program, tally, "arm64", "cpu", "~[long]~[.]")
    for preset, folders in SANITIZED.items():
        if not ON_X86 and preset.startswith("cuda-emulated"):
            continue
        if build(tally, preset, [f"troupe_test_{folder}" for folder in folders]):
            for folder in folders:
                beside.begin(run_program, tally, preset, folder,
                             TAGS.get((preset, folder), "~[long]~[.]"))
    if build(tally, "fuzz", [f"fuzz_{target}" for target in FUZZED]):
        beside.begin(run_fuzzers, tally)
    return built


def run_whole_program(tally, built, options):
    """The real binary, by itself on the machine: clients, browsers and the clock take part."""
    if "cuda-emulated" in built and options.all:
        run_on_emulated_card(tally)
    if "release" not in built:
        return
    apart = [f"--ignore=tests/e2e/{folder}" for folder in ("page", "clients", "harnesses")]
    run_pytest(tally, "end to end", ["-m", "pytest", "tests/e2e", *apart,
                                     *([] if options.all else ["-m", "not long"])])
    if options.all:
        # Apart, because what these packages want of each other's versions is theirs to say.
        run_pytest(tally, "clients", ["-m", "pytest", "tests/e2e/clients"], CLIENT_REQUIREMENTS)
        run_pytest(tally, "harnesses", ["-m", "pytest", "tests/e2e/harnesses"],
                   HARNESS_REQUIREMENTS)
        run_pytest(tally, "page alone", ["-m", "pytest", "tests/e2e/page"])
        # What a real model says, and for how long, is not the page's to decide: a second chance.
        run_pytest(tally, "page and server", ["tests/e2e/page/with_server.py", "--reruns", "2"])


def run_tidy(tally):
    say("tidy")
    done = subprocess.run([sys.executable, ROOT / "tools" / "tidy"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    tally.add_outcome("tidy", done.returncode == 0, done.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    REPORTS.mkdir(parents=True, exist_ok=True)
    tally = Tally()
    started = time.monotonic()

    beside = Beside()
    run_tidy(tally)
    if not options.quick:
        beside.begin(python_with, ROOT / REQUIREMENTS)
    if options.all:
        beside.begin(python_with, ROOT / CLIENT_REQUIREMENTS)
        beside.begin(python_with, ROOT / HARNESS_REQUIREMENTS)
    built = build_and_begin(tally, beside, options)
    beside.wait()
    if not options.quick:
        run_whole_program(tally, built, options)

    say(f"{time.monotonic() - started:.0f} s")
    for name in tally.failures:
        print(f"failed: {name}")
    print(f"{tally.passed} passed, {tally.failed} failed", flush=True)
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
