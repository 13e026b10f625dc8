"""Runs the tests that tools/test has asked for and adds them up. Called by tools/test only."""

import argparse
import concurrent.futures
import hashlib
import os
import pathlib
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
# Tests under the sanitizers are slower by their nature: what is tagged [long], and what needs the
# default model, is left to release. Two programs at a time, the long ones first.
SANITIZED = {
    "dev": ["cpu", "sim", "model", "gateway", "actors", "runtime", "storage"],
    "tsan": ["sim", "actors", "cpu", "runtime"],
}
# The matrix of circumstances runs on one thread: nothing there for the thread sanitizer.
TAGS = {("tsan", "cpu"): "[threads]", ("tsan", "sim"): "~[long]~[.]~[matrix]"}


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


def build(preset, targets):
    say(f"building {preset}")
    log = ROOT / "build" / f"{preset}.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("w") as out:
        if not (ROOT / "build" / preset / "build.ninja").exists():
            if subprocess.call(["cmake", "--preset", preset], cwd=ROOT, stdout=out, stderr=out):
                sys.exit(f"could not configure {preset}:\n{log.read_text()[-4000:]}")
        command = ["cmake", "--build", "--preset", preset, "--target", *targets]
        if subprocess.call(command, cwd=ROOT, stdout=out, stderr=out):
            lines = [line for line in log.read_text().splitlines() if not line.startswith("[")]
            print("\n".join(lines[:80]))
            sys.exit(f"the build of {preset} failed; all of it is in build/{preset}.log")


def run_program(tally, preset, folder, filter_text):
    name = f"{preset} {folder}"
    say(name)
    report = REPORTS / f"{preset}-{folder}.xml"
    report.unlink(missing_ok=True)
    command = [ROOT / "build" / preset / "tests" / f"troupe_test_{folder}", "-r", "junit", "-o",
               report]
    if filter_text:
        command.append(filter_text)
    environment = dict(os.environ)
    if preset in SANITIZED:
        del environment["TROUPE_TEST_MODEL"]
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
    crashed = done.returncode < 0 or (done.returncode != 0 and not report.exists())
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
        subprocess.check_call([python, "-m", "pip", "install", "--quiet",
                               "--disable-pip-version-check", "-r", requirements])
        (folder / "complete").touch()
    return python


def run_pytest(tally, name, command, requirements="tests/e2e/requirements.txt", **variables):
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
    tally.add_report(name, report)
    print(f"     {time.monotonic() - started:.1f} s", flush=True)


def run_cuda_tests(tally, options):
    """Kernels and backend on the emulated card; the whole server on it, with a tiny model; and what
    nvcc makes of all that, where it is."""
    build("cuda-emulated", ["troupe_test_gpu", "troupe", "stories260k_to_gguf"])
    run_program(tally, "cuda-emulated", "gpu", "" if options.all else "~[long]~[.]")
    emulated = ROOT / "build" / "cuda-emulated"
    stories = REPORTS.parent / "stories260K.gguf"
    converted = subprocess.run([emulated / "tests" / "stories260k_to_gguf", stories], cwd=ROOT)
    if options.all and converted.returncode == 0:
        run_pytest(tally, "end to end on the emulated card",
                   ["-m", "pytest", "tests/e2e/test_websocket.py", "-m",
                    "not long and not default_model"],
                   TROUPE=str(emulated / "troupe"), TROUPE_TEST_MODEL=str(stories),
                   TROUPE_TEST_FLAGS="--backend cuda --max-context 512")
    if options.all:
        if shutil.which("nvcc", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin"):
            build("cuda", ["troupe", "troupe_test_gpu"])
        else:
            print("     skipped: nvcc is not here, so the preset cuda was not built", flush=True)


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

    run_tidy(tally)
    build("release", ["all"])
    for folder in ["runtime", "model", "cpu", "actors", "storage", "gateway", "sim"]:
        run_program(tally, "release", folder, "" if options.all else "~[long]~[.]")
    if not options.quick:
        run_cuda_tests(tally, options)
        run_pytest(tally, "end to end", ["-m", "pytest", "tests/e2e", "--ignore", "tests/e2e/page",
                                         "--ignore", "tests/e2e/clients",
                                         *([] if options.all else ["-m", "not long"])])
    if options.all:
        # Apart, because what these packages want of each other's versions is theirs to say.
        run_pytest(tally, "clients", ["-m", "pytest", "tests/e2e/clients"],
                   "tests/e2e/clients/requirements.txt")
        run_pytest(tally, "page alone", ["-m", "pytest", "tests/e2e/page"])
        # What a real model says, and for how long, is not the page's to decide: a second chance.
        run_pytest(tally, "page and server", ["tests/e2e/page/with_server.py", "--reruns", "2"])
        for preset, folders in SANITIZED.items():
            build(preset, [f"troupe_test_{folder}" for folder in folders])
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda folder: run_program(
                    tally, preset, folder, TAGS.get((preset, folder), "~[long]~[.]")), folders))

    say(f"{time.monotonic() - started:.0f} s")
    for name in tally.failures:
        print(f"failed: {name}")
    print(f"{tally.passed} passed, {tally.failed} failed", flush=True)
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
