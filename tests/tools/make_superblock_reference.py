"""Writes tests/data/gguf_blocks/superblocks.json: float32 numbers, drawn and odd ones, the blocks
that `troupe convert` makes of them in the K formats, and the SHA-256 of the values that PyPI's
`gguf` makes of those. `gguf` does not make such blocks itself. Run: pip install gguf, then
python tests/tools/make_superblock_reference.py build/release/troupe
"""

import hashlib
import importlib.metadata
import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy as np

TYPES = "Q4_K Q5_K Q6_K".split()
LENGTH = 256


def numbers():
    random = np.random.default_rng(13)
    rows = [random.normal(0, 0.02, LENGTH), random.standard_t(4, LENGTH)]
    rows += [random.uniform(0, 1, LENGTH)]
    rows += [np.where(np.arange(LENGTH) == 100, 50.0, random.normal(0, 0.1, LENGTH))]
    rows += [np.full(LENGTH, -1.5), np.zeros(LENGTH), random.normal(0, 1e-5, LENGTH)]
    rows += [random.normal(0, np.repeat(2.0 ** np.arange(8), 32), LENGTH)]
    return np.array(rows, dtype=np.float32)


def write_model(path, rows):
    """The smallest model that `troupe convert` takes, with the numbers as its embeddings."""
    out = gguf.GGUFWriter(path, "llama")
    for name, value in (("block_count", 1), ("context_length", 64), ("embedding_length", LENGTH),
                        ("feed_forward_length", LENGTH), ("attention.head_count", 4),
                        ("vocab_size", len(rows))):
        out.add_uint32(f"llama.{name}", value)
    out.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    out.add_tensor("token_embd.weight", rows)
    out.add_tensor("output_norm.weight", np.ones(LENGTH, dtype=np.float32))
    for name in ("attn_norm", "ffn_norm"):
        out.add_tensor(f"blk.0.{name}.weight", np.ones(LENGTH, dtype=np.float32))
    square = np.zeros((LENGTH, LENGTH), dtype=np.float32)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        out.add_tensor(f"blk.0.{name}.weight", square)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def main(troupe):
    rows = numbers()
    out = {"gguf": importlib.metadata.version("gguf"), "numbers": rows.tobytes().hex(), "types": {}}
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "model.gguf"
        write_model(model, rows)
        for name in TYPES:
            made = pathlib.Path(folder) / f"{name}.gguf"
            subprocess.run([troupe, "convert", model, made, "--type", name.lower()], check=True)
            tensors = gguf.GGUFReader(made).tensors
            blocks = next(t for t in tensors if t.name == "token_embd.weight")
            assert blocks.tensor_type == gguf.GGMLQuantizationType[name]
            values = gguf.quants.dequantize(blocks.data, blocks.tensor_type).astype("<f4")
            out["types"][name] = {"blocks": blocks.data.tobytes().hex(),
                                  "values_sha256": hashlib.sha256(values.tobytes()).hexdigest()}
    path = pathlib.Path(__file__).parents[1] / "data" / "gguf_blocks" / "superblocks.json"
    path.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
