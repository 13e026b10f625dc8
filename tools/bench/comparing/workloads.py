"""What people do to a server, and what they notice. Every function returns rows by name."""

import statistics
import time

from .client import Stream, answer, together

WORDS = ("river stone winter garden engine letter window market silver bridge morning story paper "
         "forest harbor teacher music island number answer question travel summer village").split()


def text_of(seed, words):
    """Prose of a sort; texts of different seeds differ from their first words on."""
    picked = [WORDS[(seed * 31 + i * (seed % 7 + 3) + i * i // 5) % len(WORDS)]
              for i in range(words)]
    return f"Chapter {seed}. " + " ".join(picked)


class Prompts:
    """Prompts of an exact number of tokens, none of which begins like another."""

    def __init__(self, tokenize):
        self.tokenize, self.seed = tokenize, 0

    def take(self, tokens):
        self.seed += 1
        ids = self.tokenize(text_of(self.seed, tokens + 32))
        return ids[:tokens]


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def gaps_of(stream, begin, end):
    """Between texts, of those that ended within [begin, end]."""
    return [b - a for a, b in zip(stream.arrivals, stream.arrivals[1:]) if begin <= b <= end]


def burst(server, prompts, users=32, tokens=64):
    streams = together([Stream(server.port, prompts.take(128), tokens) for _ in range(users)])
    first = [stream.ttft() for stream in streams]
    gaps = [gap for stream in streams for gap in gaps_of(stream, 0, float("inf"))]
    took = max(s.arrivals[-1] for s in streams) - min(s.sent for s in streams)
    return {"burst_ttft_p50": statistics.median(first), "burst_gap_max": max(gaps),
            "burst_tokens": users * tokens / took, "burst_memory": server.peak_memory_gb()}


def interference(server, prompts, running=4, prompt_tokens=1100):
    """Streams run; a long prompt arrives. Its own first token, too, against that of another
    while nothing runs."""
    alone = answer(server.port, prompts.take(prompt_tokens)).ttft()
    streams = [Stream(server.port, prompts.take(32), 2000, after=20) for _ in range(running)]
    for stream in streams:
        stream.start()
    for stream in streams:
        stream.seen.wait()
    long = answer(server.port, prompts.take(prompt_tokens))
    begin, end = long.sent, long.arrivals[0] if long.arrivals else time.monotonic()
    time.sleep(0.3)  # the gap that the prompt's end is in
    for stream in streams:
        stream.drop()
        stream.join()
    gaps = [gap for stream in streams for gap in gaps_of(stream, begin, end + 0.3)]
    return {"long_gap_p99": percentile(gaps, 0.99), "long_gap_max": max(gaps),
            "long_ttft_ratio": long.ttft() / alone}


def prefix(server, prompts, shared=1024, rest=16):
    """Prompts that begin alike: the first of them, one after it, one from somebody else, one while
    the holder still answers."""
    head = prompts.take(shared)
    cold = answer(server.port, head + prompts.take(rest)).ttft()
    warm = [answer(server.port, head + prompts.take(rest)).ttft() for _ in range(3)]
    holder_head = prompts.take(shared)
    holder = Stream(server.port, holder_head + prompts.take(rest), 2000, after=4)
    holder.start()
    holder.seen.wait()
    busy = [answer(server.port, holder_head + prompts.take(rest)).ttft() for _ in range(3)]
    holder.drop()
    holder.join()
    return {"prefix_cold": cold, "prefix_warm": statistics.median(warm),
            "prefix_warm_busy": statistics.median(busy)}


def until_idle(server):
    begun = time.monotonic()
    while server.running():
        if time.monotonic() - begun > 60:
            raise RuntimeError("the server still works for a client that is gone")
    return time.monotonic() - begun


def cancel(server, prompts):
    """From a client's vanishing until the server is idle, while it decodes and amid a prompt."""
    decoding, prefill = [], []
    for _ in range(5):
        stream = Stream(server.port, prompts.take(32), 2000, after=8)
        stream.start()
        stream.seen.wait()
        stream.drop()
        decoding.append(until_idle(server))
        stream.join()
    for _ in range(2):  # a peer may finish the prompt first
        stream = Stream(server.port, prompts.take(1500), 4)
        stream.start()
        while not server.running():
            pass
        time.sleep(0.03)
        stream.drop()
        prefill.append(until_idle(server))
        stream.join()
    return {"cancel_decoding": statistics.median(decoding),
            "cancel_prefill": statistics.median(prefill)}
