"""Writes tests/data/gguf_blocks/blocks.json: random blocks of every GGUF quantisation that troupe
reads, and the float32 values that PyPI's `gguf` makes of them. Run: pip install gguf, then
python tests/tools/make_gguf_block_reference.py
"""

import importlib.metadata
import json
import pathlib

import gguf
import numpy as np

TYPES = "F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4".split()
# Where the halves stand in a block; every other byte may be anything.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
    "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0],
}  # fmt: skip
VALUES_MIN = 64


def blocks_of(name, random):
    kind = gguf.GGMLQuantizationType[name]
    block_size, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    count = max(1, VALUES_MIN // block_size)
    raw = random.integers(0, 256, (count, block_bytes), dtype=np.uint8)
    if name in ("F16", "BF16"):  # finite ones
        raw[:, 1] = (raw[:, 1] & 0x80) | random.integers(0x30, 0x40, count, dtype=np.uint8)
    if name == "MXFP4":  # the smallest exponents, too, which are written otherwise
        raw[:, 0] = [0, 1][:count] if count <= 2 else random.integers(0, 255, count)
    for at in HALVES.get(name, []):
        halves = random.normal(0, 0.1, count).astype(np.float16)
        raw[:, at : at + 2] = halves.view(np.uint8).reshape(count, 2)
    return kind, raw.reshape(-1)


def main():
    random = np.random.default_rng(7)
    out = {"gguf": importlib.metadata.version("gguf"), "types": {}}
    for name in TYPES:
        kind, raw = blocks_of(name, random)
        values = gguf.quants.dequantize(raw, kind).astype("<f4").reshape(-1)
        out["types"][name] = {"blocks": raw.tobytes().hex(), "values": values.tobytes().hex()}
    path = pathlib.Path(__file__).parents[1] / "data" / "gguf_blocks" / "blocks.json"
    path.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
