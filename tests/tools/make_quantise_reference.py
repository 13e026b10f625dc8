"""Writes tests/data/gguf_blocks/quantised.json: float32 numbers, drawn and odd ones, and the blocks
that PyPI's `gguf` makes of them in every type that `troupe convert` writes. Run: pip install gguf,
then python tests/tools/make_quantise_reference.py
"""

import importlib.metadata
import json
import pathlib

import gguf
import numpy as np

TYPES = "F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1".split()


def numbers():
    random = np.random.default_rng(11)
    rows = [random.normal(0, scale, 32) for scale in (1, 1e-3, 30) for _ in range(4)]
    rows += [random.integers(-8, 9, 32) / 4 for _ in range(4)]  # ties and halves
    rows += [np.zeros(32), np.full(32, -1.5), np.arange(32) / 31, -np.arange(32) / 2.0]
    rows += [np.where(np.arange(32) == 5, 1e-20, 0), np.where(np.arange(32) == 31, 60000.0, 1)]
    rows += [np.where(np.arange(32) % 2 == 0, 1.0, -1.0)]  # the first of two that are largest
    return np.array(rows, dtype=np.float32)


def main():
    values = numbers()
    out = {"gguf": importlib.metadata.version("gguf"), "values": values.tobytes().hex(), "types": {}}
    for name in TYPES:
        blocks = gguf.quants.quantize(values, gguf.GGMLQuantizationType[name])
        out["types"][name] = blocks.tobytes().hex()
    path = pathlib.Path(__file__).parents[1] / "data" / "gguf_blocks" / "quantised.json"
    path.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
