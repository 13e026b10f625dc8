"""Rows, their goals, the table, and what changed since the last time on this machine."""

import dataclasses
import datetime
import json
import statistics


@dataclasses.dataclass
class Goal:
    """All that is given must hold. `best`, `same`: so many times as good as the best peer, as the
    best peer on the same file. `at_most`, `limit`: our value itself, its share of the limit."""
    best: float = None
    same: float = None
    at_most: float = None
    limit: float = None

    def text(self):
        parts = [f">= {self.best:g} x best" if self.best else "",
                 f">= {self.same:g} x same file" if self.same else "",
                 f"<= {self.at_most:g}" if self.at_most else "",
                 f">= {self.limit:.0%} of limit" if self.limit else ""]
        return ", ".join(part for part in parts if part)

    def met(self, row):
        checks = [(self.best, row["ratio"]), (self.same, row["ratio_same_file"]),
                  (self.limit, row["limit_share"])]
        known = [value >= wanted for wanted, value in checks if wanted and value is not None]
        if self.at_most:
            known.append(row["ours"] <= self.at_most)
        return all(known) if known else None


# name: (what, unit, factor, larger is better, goal, goal where there is AVX2 only)
ROWS = {
    "prefill_512": ("prompt of 512", "tok/s", 1, True, Goal(2, 5), Goal(2.5, 6)),
    "prefill_2048": ("prompt of 2,048", "tok/s", 1, True, Goal(2, 5), Goal(2.5, 6)),
    "decode_1": ("1 stream", "tok/s", 1, True, Goal(same=1.35, limit=0.85),
                 Goal(same=2, limit=0.85)),
    "decode_8": ("8 streams", "tok/s", 1, True, Goal(2.4), Goal(3)),
    "decode_32": ("32 streams", "tok/s", 1, True, Goal(2.4), Goal(3)),
    "decode_128": ("128 streams", "tok/s", 1, True, Goal(2.4), Goal(3)),
    "decode_1_deep": ("1 stream at 2,048", "tok/s", 1, True, Goal(same=1.35), Goal(same=2)),
    "decode_32_deep": ("32 streams at 2,048", "tok/s", 1, True, Goal(2.4), Goal(3)),
    "decode_8_busy": ("8 streams, a busy neighbour", "tok/s", 1, True, Goal(), Goal()),
    "burst_ttft_p50": ("32 people: first text, median", "s", 1, False, Goal(3.5), Goal(3.5)),
    "burst_gap_max": ("32 people: longest gap", "ms", 1000, False, Goal(), Goal()),
    "burst_tokens": ("32 people: all together", "tok/s", 1, True, Goal(), Goal()),
    "burst_memory": ("32 people: memory", "GB", 1, False, Goal(at_most=0.6), Goal(at_most=0.6)),
    "long_gap_p99": ("4 streams beside a prompt of 1,100: gap, 99 %", "ms", 1000, False,
                     Goal(at_most=40), Goal(at_most=40)),
    "long_gap_max": ("the same: longest gap", "ms", 1000, False, Goal(at_most=60),
                     Goal(at_most=60)),
    "long_ttft_ratio": ("that prompt's first token, times alone", "x", 1, False,
                        Goal(at_most=1.25), Goal(at_most=1.25)),
    "prefix_cold": ("1,024 + 16, cold: first text", "ms", 1000, False, Goal(), Goal()),
    "prefix_warm": ("1,024 + 16, warm", "ms", 1000, False, Goal(at_most=20), Goal(at_most=20)),
    "prefix_warm_busy": ("1,024 + 16, its holder still answers", "ms", 1000, False,
                         Goal(at_most=20), Goal(at_most=20)),
    "cancel_decoding": ("client gone while decoding, to idle", "ms", 1000, False, Goal(), Goal()),
    "cancel_prefill": ("client gone amid a prompt, to idle", "ms", 1000, False, Goal(), Goal()),
    "ready": ("start to ready", "s", 1, False, Goal(at_most=0.2), Goal(at_most=0.2)),
    "fidelity_kl": ("KL from float32 of the next token", "nats", 1, False, Goal(2), Goal(2)),
    "fidelity_best": ("likeliest token as in float32", "share", 1, True, Goal(), Goal()),
}


def limits_of(machine, sizes):
    """Tokens a second that memory and arithmetic allow. A prompt's rows need no head; attention is
    left out. `sizes`: file_bytes, parameters, embedding (its parameters), kv_bytes a token."""
    operations = machine["multiply_gop_per_s"] * 1e9
    reads = machine["read_gb_per_s"] * 1e9
    prompt = operations / (2 * (sizes["parameters"] - sizes["embedding"]))

    def decode(streams, context):
        step_bytes = sizes["file_bytes"] + streams * context * sizes["kv_bytes"]
        return min(streams * reads / step_bytes, operations / (2 * sizes["parameters"]))

    limits = {f"prefill_{n}": prompt for n in (512, 2048)}
    limits |= {f"decode_{n}": decode(n, 0) for n in (1, 8, 32, 128)}
    return limits | {f"decode_{n}_deep": decode(n, 2048) for n in (1, 32)}


def rows_of(rounds, ours, same_file, limits, only_avx2):
    """`rounds`: [{program: {row: value}}]. A ratio is how many times as good we are, the median of
    the rounds' ratios; above 1 is better whatever the unit."""
    rows = []
    for name, (what, unit, factor, larger, goal, avx2_goal) in ROWS.items():
        have = [r for r in rounds if name in r.get(ours, {})]
        if not have:
            continue
        row = {"name": name, "what": what, "unit": unit,
               "ours": factor * statistics.median(r[ours][name] for r in have), "peers": {},
               "best_peer": None, "ratio": None, "ratio_same_file": None,
               "limit": limits.get(name), "limit_share": None}
        ratios = {}
        for peer in {p: None for r in have for p in r if p != ours and name in r[p]}:
            pairs = [(r[ours][name], r[peer][name]) for r in have if name in r.get(peer, {})]
            row["peers"][peer] = factor * statistics.median(theirs for _, theirs in pairs)
            ratios[peer] = statistics.median((a / b if larger else b / a) for a, b in pairs)
        if ratios:
            row["best_peer"] = min(ratios, key=ratios.get)
            row["ratio"] = ratios[row["best_peer"]]
            on_file = [ratio for peer, ratio in ratios.items() if peer in same_file]
            row["ratio_same_file"] = min(on_file) if on_file else None
        if row["limit"]:
            row["limit_share"] = row["ours"] / row["limit"]
        chosen = avx2_goal if only_avx2 else goal
        row["goal"], row["met"] = chosen.text(), chosen.met(row)
        rows.append(row)
    return rows


def number(value):
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def print_table(rows, peers):
    """In Markdown, to be pasted."""
    print("| | | troupe | " + " | ".join(peers) + " | times the best | of the limit | goal | |")
    print("|" + " --- |" * (7 + len(peers)))
    for row in rows:
        share = f"{row['limit_share']:.0%}" if row["limit_share"] else ""
        mark = {True: "met", False: "**not met**", None: ""}[row["met"]]
        cells = [row["what"], row["unit"], number(row["ours"]),
                 *(number(row["peers"].get(peer)) for peer in peers), number(row["ratio"]), share,
                 row["goal"], mark]
        print("| " + " | ".join(cells) + " |")


def print_changes(rows, machine, history):
    """Against the last entry of the same processor, threads and instruction set; then adds this."""
    key = {k: machine[k] for k in ("processor", "threads", "instruction_set")}
    lines = history.read_text().splitlines() if history.exists() else []
    earlier = [entry for entry in map(json.loads, lines) if entry["key"] == key]
    values = {row["name"]: row["ratio"] or row["ours"] for row in rows}
    if earlier:
        last = earlier[-1]
        print(f"\nchanges since {last['date']} beyond 5 %:")
        for row in rows:
            before = last["values"].get(row["name"])
            # Without a peer the value itself is kept, which may be one where less is better.
            if before and abs(values[row["name"]] / before - 1) > 0.05:
                kind = "times the best peer" if row["ratio"] else row["unit"]
                print(f"  {row['what']}: {number(before)} -> {number(values[row['name']])} {kind}")
    history.parent.mkdir(parents=True, exist_ok=True)
    with history.open("a") as out:
        date = datetime.datetime.now().isoformat(timespec="minutes")
        out.write(json.dumps({"key": key, "date": date, "values": values}) + "\n")
