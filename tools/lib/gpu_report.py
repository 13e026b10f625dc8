"""Adds up what tools/gpu-check measured: a readable table, and the same as JSON.

  python3 gpu_report.py FOLDER     reads FOLDER/measured.txt and card.csv, writes FOLDER/gpu-check.json
"""

import json
import pathlib
import sys

# Where cuBLAS was not there to be measured: what it makes of halves on an H200.
GEMM_TFLOPS = 790


def share_of_copy(line, copy, _):
    return line["gb_per_s"] / copy


def share_of_gemm(line, _, gemm):
    return line["tflop_per_s"] / gemm


def tokens_per_second(line, *_):
    return line["rows"] / line["us"] * 1e6


def microseconds(line, *_):
    return line["us"]


# [metric, (kernel, rows) of its line, what is told of that, unit, goal, whether more is better]
METRICS = [
    ("decode, one stream, 8B BF16", ("8B BF16 decode at 128", 1), share_of_copy, "of a copy",
     0.87, True),
    ("decode, one stream, 8B Q4_0", ("8B Q4_0 decode at 128", 1), share_of_copy, "of a copy",
     0.74, True),
    ("decode, one stream, 135M BF16", ("135M BF16 decode at 128", 1), tokens_per_second,
     "tokens/s", 3000, True),
    ("128 streams, 8B BF16, context 640", ("8B BF16 decode at 640", 128), tokens_per_second,
     "tokens/s", 15500, True),
    ("prompt of 2,000, 8B BF16", ("8B BF16 prompt", 2000), share_of_gemm, "of a product", 0.65,
     True),
    ("prompt of 2,000, 8B Q4_0", ("8B Q4_0 prompt", 2000), share_of_gemm, "of a product", 0.65,
     True),
    ("attention, 16 x 16,384", ("attention of 16 x 16384 in f16", 16), share_of_copy,
     "of a copy", 0.85, True),
    ("attention, 64 x 256", ("attention of 64 x 256 in f16", 64), share_of_copy, "of a copy",
     0.55, True),
    ("draws, 128 x 49,152, greedy", ("draws, greedy", 128), microseconds, "us", 20, False),
    ("draws, 128 x 49,152, top-k, top-p", ("draws, top-k and top-p", 128), microseconds, "us", 20,
     False),
    ("idle between steps, one stream, 135M BF16", ("135M BF16 idle between steps at 128", 1),
     microseconds, "us", 5, False),
    ("idle between steps, 128 streams, 8B BF16", ("8B BF16 idle between steps at 640", 128),
     microseconds, "us", 5, False),
]
STREAMS = 33  # with which the two caches are compared


def read_lines(folder):
    lines = {}
    for text in (folder / "measured.txt").read_text().splitlines():
        if text.startswith('{"kernel"'):
            line = json.loads(text)
            lines[line["kernel"], line["rows"]] = line
    return lines


def rows_of(lines):
    copy = lines["copy", 0]["gb_per_s"]
    gemm = next((l["tflop_per_s"] for (name, _), l in lines.items() if name.startswith("cublas")),
                None)
    rows = [{"name": "copy", "value": copy, "unit": "GB/s"},
            {"name": "product by cuBLAS" + ("" if gemm else ", not measured: an H200's"),
             "value": gemm or GEMM_TFLOPS, "unit": "TFLOP/s"}]
    for name, key, tell, unit, goal, more in METRICS:
        if key not in lines:
            rows.append({"name": name, "unit": unit, "goal": goal, "measured": False})
            continue
        value = tell(lines[key], copy, gemm or GEMM_TFLOPS)
        rows.append({"name": name, "value": value, "unit": unit, "goal": goal,
                     "met": value >= goal if more else value <= goal, **lines[key]})
    for name, slow, fast, goal in ratios():
        if slow in lines and fast in lines:
            value = lines[slow]["us"] / lines[fast]["us"]
            rows.append({"name": name, "value": value, "unit": "x", "goal": goal,
                         "met": value >= goal})
    return rows


def ratios():
    """[metric, one line's key, another's, the least that the first may take, in the other's times]"""
    yield (f"int8 cache against f16, {STREAMS} streams at 1,900",
           ("8B BF16 decode at 1900", STREAMS), ("8B BF16, int8 cache, decode at 1900", STREAMS), 1)
    for streams, context in ((16, 16384), (64, 256)):
        line = f"attention of {streams} x {context} in f16"
        yield (f"pages anywhere against in order, {streams} x {context:,}",
               (f"{line}, pages in order", streams), (line, streams), 0.97)


def perplexity_row(folder):
    """What an int8 cache costs, where the default model was there to be measured."""
    found = [folder / f"perplexity-{form}.txt" for form in ("f16", "int8")]
    if not all(path.exists() for path in found):
        return []
    f16, int8 = (json.loads(path.read_text().splitlines()[-1])["perplexity"] for path in found)
    value = (int8 / f16 - 1) * 100
    return [{"name": "perplexity with an int8 cache", "value": value, "unit": "% more", "goal": 0.1,
             "met": value <= 0.1}]


def main():
    folder = pathlib.Path(sys.argv[1])
    lines = read_lines(folder)
    if ("copy", 0) not in lines:
        sys.exit("gpu-check: nothing was measured")
    rows = rows_of(lines) + perplexity_row(folder)
    card = (folder / "card.csv").read_text().splitlines()[-1]
    report = {"card": card, "rows": rows, "lines": list(lines.values())}
    (folder / "gpu-check.json").write_text(json.dumps(report, indent=1) + "\n")
    print(card)
    for row in rows:
        value = f"{row['value']:.3g}" if "value" in row else "not run"
        goal = f"goal {row['goal']:g}" if "goal" in row else ""
        met = {True: "met", False: "NOT MET", None: ""}[row.get("met")]
        print(f"{row['name']:<45} {value:>10} {row['unit']:<13} {goal:<12} {met}")


if __name__ == "__main__":
    main()
