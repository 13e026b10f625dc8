#!/usr/bin/env python3
"""Makes tests/data/architectures/*.json: what transformers answers for tiny random models, and
tests/data/hugging_face/*: the same models as transformers saves them, in float16.

    python3 -m venv env && env/bin/pip install torch "transformers==5.24.0"
    env/bin/python tests/tools/make_architecture_reference.py

A file holds a model's metadata and tensors as a GGUF of it would (names, shapes; the numbers are a
formula of name and place, which tests/cpu/architecture_models.hpp has too), tokens, and the scores
after the last of them, computed in float32.
"""

import json
import pathlib

import numpy as np
import torch
import transformers

WIDTH, INNER, HEADS, KV_HEADS, HEAD, VOCABULARY, CONTEXT = 32, 32, 4, 2, 8, 32, 64
TOKENS, SCORED = 40, 6
BASE = dict(
    hidden_size=WIDTH, intermediate_size=INNER, num_attention_heads=HEADS,
    num_key_value_heads=KV_HEADS, vocab_size=VOCABULARY, max_position_embeddings=CONTEXT,
    rms_norm_eps=1e-5, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip


def mixed(x):
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def numbers(name, shape):
    """Uniform in [-1, 1) / 4, which 16 bits hold; norms around 1. Rows first, as in torch."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x100000001B3) % 2**64
    count = int(np.prod(shape))
    with np.errstate(over="ignore"):
        place = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        bits = mixed(np.uint64(seed) + place)
    values = (bits >> np.uint64(56)).astype(np.float32) / 128 - 1
    if "norm" in name:
        values = 1 + values / 4
    elif "rope_f" in name:
        values = 2 + values
    elif "token_embd" not in name and "gate_inp" not in name:
        values = values / 4
    return values.reshape(shape).astype(np.float32)


def unpermuted(w, heads, head=HEAD):
    """From pairs lying together, as in a llama's GGUF, to halves, as transformers has them."""
    shape = w.shape
    return w.reshape(heads, head // 2, 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


class Model:
    """Tensors by GGUF name, made as they are asked for, and where they go in transformers."""

    def __init__(self, name, architecture, config, model_class, **options):
        self.name, self.architecture, self.config = name, architecture, config
        self.options = options
        torch.manual_seed(0)
        self.model = model_class(config).float().eval()
        self.state, self.tensors = {}, {}
        self.keys = {
            "block_count": config.num_hidden_layers, "context_length": CONTEXT,
            "embedding_length": WIDTH, "feed_forward_length": INNER,
            "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS,
            "attention.key_length": HEAD, "attention.value_length": HEAD,
            "vocab_size": VOCABULARY, "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.freq_base": 10000.0, **options.get("keys", {}),
        }  # fmt: skip

    def tensor(self, name, *shape):
        self.tensors[name] = list(shape)[::-1]
        return numbers(name, shape)

    def put(self, target, value):
        self.state[target] = torch.from_numpy(np.ascontiguousarray(value))

    def norm(self, name, target, length=WIDTH):
        offset = 1 if self.architecture.startswith("gemma") else 0
        self.put(target, self.tensor(name, length) - np.float32(offset))

    def layer(self, i):
        has, option = self.options.get("has", ()), self.options
        blk, hf = f"blk.{i}.", f"model.layers.{i}."
        pairs = self.architecture in ("llama", "smollm3")
        order = (lambda w, heads: unpermuted(w, heads)) if pairs else (lambda w, heads: w)
        rows = {"q": HEADS * HEAD, "k": KV_HEADS * HEAD, "v": KV_HEADS * HEAD}
        if "fused" in has:
            self.put(hf + "self_attn.qkv_proj.weight",
                     self.tensor(blk + "attn_qkv.weight", sum(rows.values()), WIDTH))  # fmt: skip
        else:
            for part, count in rows.items():
                w = self.tensor(f"{blk}attn_{part}.weight", count, WIDTH)
                self.put(f"{hf}self_attn.{part}_proj.weight",
                         w if part == "v" else order(w, count // HEAD))  # fmt: skip
                if "bias" in has:
                    self.put(f"{hf}self_attn.{part}_proj.bias",
                             self.tensor(f"{blk}attn_{part}.bias", count))  # fmt: skip
        self.put(hf + "self_attn.o_proj.weight",
                 self.tensor(blk + "attn_output.weight", WIDTH, HEADS * HEAD))  # fmt: skip
        for part in "qk" if "qk_norm" in has else "":
            length = HEAD if option.get("norm_by_head", True) else rows[part]
            self.norm(f"{blk}attn_{part}_norm.weight", f"{hf}self_attn.{part}_norm.weight", length)
        for name, target in option["norms"].items():
            self.norm(f"{blk}{name}.weight", f"{hf}{target}.weight")
        self.experts(blk, hf) if "experts" in has else self.feed_forward(blk, hf, "fused" in has)

    def feed_forward(self, blk, hf, fused):
        if fused:
            self.put(hf + "mlp.gate_up_proj.weight",
                     self.tensor(blk + "ffn_up.weight", 2 * INNER, WIDTH))  # fmt: skip
        else:
            for part in ("gate", "up"):
                self.put(f"{hf}mlp.{part}_proj.weight",
                         self.tensor(f"{blk}ffn_{part}.weight", INNER, WIDTH))  # fmt: skip
        self.put(hf + "mlp.down_proj.weight", self.tensor(blk + "ffn_down.weight", WIDTH, INNER))

    def experts(self, blk, hf):
        count = self.keys["expert_count"]
        gate = self.tensor(blk + "ffn_gate_exps.weight", count, INNER, WIDTH)
        up = self.tensor(blk + "ffn_up_exps.weight", count, INNER, WIDTH)
        down = self.tensor(blk + "ffn_down_exps.weight", count, WIDTH, INNER)
        self.put(hf + "mlp.gate.weight", self.tensor(blk + "ffn_gate_inp.weight", count, WIDTH))
        self.put(hf + "mlp.experts.gate_up_proj", np.concatenate([gate, up], axis=1))
        self.put(hf + "mlp.experts.down_proj", down)

    def fill(self):
        self.put("model.embed_tokens.weight", self.tensor("token_embd.weight", VOCABULARY, WIDTH))
        self.norm("output_norm.weight", "model.norm.weight")
        for i in range(self.config.num_hidden_layers):
            self.layer(i)
        if self.options.get("head", True):
            self.put("lm_head.weight", self.tensor("output.weight", VOCABULARY, WIDTH))
        else:
            self.state["lm_head.weight"] = self.state["model.embed_tokens.weight"]
        for name, length in self.options.get("factors", {}).items():
            self.tensor(name, length)
        missing, unexpected = self.model.load_state_dict(self.state, strict=False)
        assert not missing and not unexpected, (self.name, missing, unexpected)

    def write(self, folder):
        self.fill()
        tokens = [(7 * i * i + 3 * i + 1) % VOCABULARY for i in range(TOKENS)]
        with torch.no_grad():
            scores = self.model(torch.tensor([tokens])).logits[0, -SCORED:].float().numpy()
        out = {
            "transformers": transformers.__version__, "architecture": self.architecture,
            "keys": self.keys, "strings": self.options.get("strings", {}),
            "tensors": self.tensors, "tokens": tokens,
            "scores": [[float(f"{x:.7g}") for x in row] for row in scores],
        }  # fmt: skip
        (folder / "architectures" / f"{self.name}.json").write_text(json.dumps(out) + "\n")

    def save(self, folder):
        """Where the weights are another model's, too, only config.json stays."""
        saved = folder / "hugging_face" / self.name
        self.model.half().save_pretrained(saved)
        (saved / "generation_config.json").unlink(missing_ok=True)
        if self.name in ("llama-linear", "mistral"):
            (saved / "model.safetensors").unlink()


PRE = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
POST = {"post_attention_norm": "post_attention_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm"}  # fmt: skip
GEMMA = {"attn_norm": "input_layernorm", **POST, "ffn_norm": "pre_feedforward_layernorm"}


def config(kind, layers=2, rope=None, **more):
    settings = {**BASE, "num_hidden_layers": layers, "tie_word_embeddings": False, **more}
    settings["rope_parameters"] = rope or {"rope_type": "default", "rope_theta": 10000.0}
    out = kind(**settings)
    out._attn_implementation = "eager"
    return out


def models():
    t = transformers
    theta = {"rope_theta": 10000.0}
    yield Model("llama", "llama", config(t.LlamaConfig, head_dim=HEAD), t.LlamaForCausalLM,
                norms=PRE)  # fmt: skip
    yield Model("llama-linear", "llama",
                config(t.LlamaConfig, head_dim=HEAD,
                       rope={"rope_type": "linear", "factor": 4.0, **theta}),
                t.LlamaForCausalLM, norms=PRE, keys={"rope.scaling.factor": 4.0},
                strings={"rope.scaling.type": "linear"})  # fmt: skip
    yield Model("mistral", "llama",
                config(t.MistralConfig, head_dim=HEAD, sliding_window=12), t.MistralForCausalLM,
                norms=PRE, keys={"attention.sliding_window": 12})  # fmt: skip
    yield Model("mixtral", "llama",
                config(t.MixtralConfig, head_dim=HEAD, num_local_experts=4, num_experts_per_tok=2,
                       sliding_window=None),
                t.MixtralForCausalLM, norms=PRE, has=("experts",),
                keys={"expert_count": 4, "expert_used_count": 2})  # fmt: skip
    yield Model("qwen2", "qwen2", config(t.Qwen2Config), t.Qwen2ForCausalLM, norms=PRE,
                has=("bias",), head=False)  # fmt: skip
    yield Model("qwen2-yarn", "qwen2",
                config(t.Qwen2Config, rope={"rope_type": "yarn", "factor": 4.0,
                                            "original_max_position_embeddings": 16, **theta}),
                t.Qwen2ForCausalLM, norms=PRE, has=("bias",), strings={"rope.scaling.type": "yarn"},
                keys={"rope.scaling.factor": 4.0,
                      "rope.scaling.original_context_length": 16})  # fmt: skip
    yield Model("qwen3", "qwen3", config(t.Qwen3Config, head_dim=HEAD), t.Qwen3ForCausalLM,
                norms=PRE, has=("qk_norm",))  # fmt: skip
    yield Model("qwen3moe", "qwen3moe",
                config(t.Qwen3MoeConfig, head_dim=HEAD, num_experts=4, num_experts_per_tok=2,
                       moe_intermediate_size=INNER, norm_topk_prob=True, mlp_only_layers=[]),
                t.Qwen3MoeForCausalLM, norms=PRE, has=("qk_norm", "experts"),
                keys={"expert_count": 4, "expert_used_count": 2,
                      "expert_feed_forward_length": INNER})  # fmt: skip
    yield Model("gemma2", "gemma2",
                config(t.Gemma2Config, head_dim=HEAD, sliding_window=12, query_pre_attn_scalar=HEAD,
                       attn_logit_softcapping=5.0, final_logit_softcapping=3.0,
                       tie_word_embeddings=True),
                t.Gemma2ForCausalLM, norms=GEMMA, head=False,
                keys={"attention.sliding_window": 12, "attn_logit_softcapping": 5.0,
                      "final_logit_softcapping": 3.0})  # fmt: skip
    yield Model("gemma3", "gemma3",
                config(t.Gemma3TextConfig, layers=6, head_dim=HEAD, sliding_window=12,
                       query_pre_attn_scalar=HEAD, tie_word_embeddings=True,
                       rope={"sliding_attention": {"rope_type": "default", **theta},
                             "full_attention": {"rope_type": "linear", "factor": 8.0,
                                                "rope_theta": 1e6}}),
                t.Gemma3ForCausalLM, norms=GEMMA, has=("qk_norm",), head=False,
                keys={"attention.sliding_window": 12, "rope.freq_base": 1e6,
                      "rope.scaling.factor": 8.0},
                strings={"rope.scaling.type": "linear"})  # fmt: skip
    factors = {"short_factor": numbers("rope_factors_short.weight", (HEAD // 2,)).tolist(),
               "long_factor": numbers("rope_factors_long.weight", (HEAD // 2,)).tolist()}
    phi3 = Model("phi3", "phi3",
                 config(t.Phi3Config, sliding_window=None, original_max_position_embeddings=16,
                        rope={"rope_type": "longrope", "original_max_position_embeddings": 16,
                              "partial_rotary_factor": 1.0, **theta, **factors}),
                 t.Phi3ForCausalLM, norms=PRE, has=("fused",),
                 factors={"rope_factors_short.weight": HEAD // 2,
                          "rope_factors_long.weight": HEAD // 2},
                 keys={"rope.scaling.original_context_length": 16,
                       "rope.scaling.attn_factor": float(np.sqrt(1 + np.log(4) / np.log(16)))})
    yield phi3
    yield Model("smollm3", "smollm3",
                config(t.SmolLM3Config, layers=4, no_rope_layer_interval=4, use_sliding_window=False),
                t.SmolLM3ForCausalLM, norms=PRE)  # fmt: skip
    yield Model("olmo2", "olmo2", config(t.Olmo2Config), t.Olmo2ForCausalLM, norms=POST,
                has=("qk_norm",), norm_by_head=False)  # fmt: skip


def main():
    folder = pathlib.Path(__file__).parents[1] / "data"
    (folder / "architectures").mkdir(exist_ok=True)
    for model in models():
        model.write(folder)
        model.save(folder)


if __name__ == "__main__":
    main()
