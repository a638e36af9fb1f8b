"""Writes dumps/: the folders of debug tools and checkpoints, with stand-ins for the classes that need a GPU."""

from __future__ import annotations

import collections
import io
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sample_values import raw_bytes
from torch_values import tensor


def install_stand_ins() -> None:
    """Classes with the module paths, names and pickled form of Transformer Engine's quantised tensors.

    The package itself needs a GPU. The order of the arguments is that of NVFP4Tensor.__reduce_ex__ in
    NVIDIA/TransformerEngine, transformer_engine/pytorch/tensor/nvfp4_tensor.py, and likewise mxfp8_tensor.py and
    float8_tensor.py; its callable is a class method, which pickle writes as a call of getattr(class, name).
    TE_DType is a pybind11 enum there: a NEWOBJ without arguments, then BUILD with the integer.
    """
    if "transformer_engine_torch" in sys.modules:
        return

    def module(name: str) -> types.ModuleType:
        parts = name.split(".")
        for i in range(1, len(parts) + 1):
            path = ".".join(parts[:i])
            if path not in sys.modules:
                sys.modules[path] = types.ModuleType(path)
                if i > 1:
                    setattr(sys.modules[".".join(parts[: i - 1])], parts[i - 1], sys.modules[path])
        return sys.modules[name]

    def place(cls: type, where: str) -> None:
        cls.__module__, cls.__qualname__ = where, cls.__name__
        setattr(module(where), cls.__name__, cls)

    class DType:
        def __init__(self, value: int = 0) -> None:
            self.value = value

        def __getstate__(self) -> int:
            return self.value

        def __setstate__(self, value: int) -> None:
            self.value = value

    class Reduced:
        def __init__(self, *args: Any) -> None:
            self.pickled_args = args

        @classmethod
        def _make_in_reduce_ex(cls, *args: Any) -> Any:
            return cls(*args)

        def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
            return type(self)._make_in_reduce_ex, self.pickled_args

    place(DType, "transformer_engine_torch")
    for file, prefix in (("nvfp4_tensor", "NVFP4"), ("mxfp8_tensor", "MXFP8"), ("float8_tensor", "Float8")):
        where = f"transformer_engine.pytorch.tensor.{file}"
        place(type(f"{prefix}Tensor", (Reduced,), {}), where)
        place(type(f"{prefix}Quantizer", (), {}), where)
    # The storage without the torch.Tensor base, and what dump code of others pickles: attributes in __dict__.
    place(type("NVFP4TensorStorage", (), {}), "transformer_engine.pytorch.tensor.storage.nvfp4_tensor_storage")


def dump_trees(out: Path) -> None:
    install_stand_ins()
    te = sys.modules["transformer_engine.pytorch.tensor.nvfp4_tensor"]
    mx = sys.modules["transformer_engine.pytorch.tensor.mxfp8_tensor"]
    f8 = sys.modules["transformer_engine.pytorch.tensor.float8_tensor"]
    storage = sys.modules["transformer_engine.pytorch.tensor.storage.nvfp4_tensor_storage"]
    dtype = sys.modules["transformer_engine_torch"].DType

    def save(path: str, value: Any) -> None:
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        torch.save(value, out / path)

    def quantizer(cls: type, code: int, **more: Any) -> Any:
        made = cls()
        made.__dict__.update(rowwise_usage=True, columnwise_usage=False, internal=False, dtype=dtype(code), **more)
        return made

    def nvfp4(seed: int) -> dict[str, torch.Tensor]:
        """Rows 16, columns 32: packed bytes, E4M3 scales padded to (128, 4), one amax. Bytes by formula, all finite scales."""
        scale = torch.zeros(128, 4, dtype=torch.uint8)
        scale[:16] = torch.from_numpy((raw_bytes(64, seed + 1) % 0x7F).reshape(16, 4))
        scale[:16, 2:] = 0  # two blocks of 16 in a row, then padding
        return {"data": torch.from_numpy(raw_bytes(16 * 16, seed).reshape(16, 16)), "scale": scale,
                "amax": torch.tensor([2688.0 / (1 + seed % 7)])}  # fmt: skip

    # NVIDIA/TransformerEngine, transformer_engine/debug/features/dump_tensors.py (DumpTensors):
    # {log dir}/tensor_dumps/rank_{rank}/{layer}_{tensor}_iter_{iter:06d}.pt, one dict with the keys high_precision, quantized
    # and, on request, the internals.
    root = "dumps/te/tensor_dumps"
    for rank in (0, 1):
        n = nvfp4(300 + rank)
        q = te.NVFP4Tensor(torch.Size([16, 32]), n["data"], n["scale"], None, None, n["amax"], None, dtype(10), torch.bfloat16,
                           quantizer(te.NVFP4Quantizer, 10, with_rht=False, rht_matrix=tensor((4, 4), 310, torch.bfloat16),
                                     amax_reduction_group=None), False)  # fmt: skip
        codes = torch.stack([n["data"] & 15, n["data"] >> 4], dim=-1).reshape(16, 32)
        lut = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
        save(f"{root}/rank_{rank}/decoder.layers.0.mlp.fc1_activation_iter_000005.pt", {
            "high_precision": tensor((16, 32), 320 + rank, torch.bfloat16), "quantized": q, "rowwise_data": n["data"],
            "rowwise_data_unpacked_values": lut[codes.long()], "rowwise_block_scale_inv": n["scale"].view(torch.float8_e4m3fn),
            "amax_rowwise": n["amax"]})  # fmt: skip
    m_data, m_scale = (
        torch.from_numpy(raw_bytes(32 * 32, 330).reshape(32, 32)),
        torch.from_numpy(raw_bytes(32, 331).reshape(32, 1)),
    )
    save(f"{root}/rank_0/decoder.layers.0.mlp.fc2_weight_iter_000005.pt", {
        "high_precision": tensor((32, 32), 332, torch.bfloat16),
        "quantized": mx.MXFP8Tensor(m_data, m_scale, None, None, dtype(7), torch.bfloat16, torch.Size([32, 32]),
                                    quantizer(mx.MXFP8Quantizer, 7), False),
        "rowwise_data": m_data.view(torch.float8_e4m3fn), "rowwise_block_scale_inv": m_scale.view(torch.float8_e8m0fnu)})  # fmt: skip
    f_data = torch.from_numpy(raw_bytes(96, 333).reshape(6, 16))
    save(f"{root}/rank_0/decoder.layers.0.mlp.fc1_gradient_iter_000010.pt", {
        "high_precision": tensor((6, 16), 334),
        "quantized": f8.Float8Tensor(f_data, dtype(8), torch.tensor([0.125]), torch.float32, torch.Size([6, 16])),
        "data": f_data.view(torch.float8_e5m2), "scale_inv": torch.tensor([0.125])})  # fmt: skip

    # The same dict one folder per iteration deeper, and with an object that keeps its tensors as attributes.
    # No writer is known to the authors that makes exactly this; sorting and naming code has to cope with it all the same.
    n = nvfp4(340)
    held = storage.NVFP4TensorStorage()
    held.__dict__.update(_rowwise_data=n["data"], _rowwise_scale_inv=n["scale"], _columnwise_data=None, _columnwise_scale_inv=None,
                         _amax_rowwise=n["amax"], _amax_columnwise=None, _fp4_dtype=dtype(10), _quantizer=None)  # fmt: skip
    save(
        "dumps/per_iteration/rank_1/iter_000005/decoder.layers.0.mlp.fc1_activation.pt",
        {"high_precision": tensor((16, 32), 341), "quantized": held},
    )

    # sgl-project/sglang, python/sglang/srt/debug_utils/tensor_dump_forward_hook.py (TensorDumper):
    # TP{tp}_PP{pp}_Rank{rank}_pid{pid}/Pass{pass:05d}.pt, a dict of operator name to tensor or list of tensors.
    for forward_pass in (0, 1):
        seed = 350 + 10 * forward_pass
        save(f"dumps/sglang_forward_hook/TP0_PP0_Rank0_pid4242/Pass{forward_pass:05d}.pt", {
            "model.embed_tokens": tensor((3, 8), seed, torch.bfloat16),
            "model.layers.0.input_layernorm": [tensor((3, 8), seed + 1, torch.bfloat16), tensor((3, 8), seed + 2, torch.bfloat16)],
            "model.layers.0.self_attn.qkv_proj": tensor((3, 24), seed + 3, torch.bfloat16),
            "lm_head": tensor((1, 16), seed + 4),
            "model.forward_batch_info.input_ids": torch.arange(3), "model.forward_batch_info.positions": torch.arange(3)})  # fmt: skip

    # sgl-project/sglang, python/sglang/srt/debug_utils/dumper.py (_Dumper): tags joined by ___ in the file name, a dict of
    # value and meta. Older versions save the bare tensor into sglang_dump_{time}_{rank}/ with forward_pass_id as first tag.
    name = "step=0___rank=0___dump_index=1___name=layer_start__hidden_states___recompute_status=disabled___layer_id=0"
    save(
        f"dumps/sglang_dumper/dump_1700000000/{name}.pt",
        {"value": tensor((3, 8), 370, torch.bfloat16), "meta": {"step": 0, "rank": 0, "name": "layer_start__hidden_states"}},
    )
    save(
        "dumps/sglang_dumper_old/sglang_dump_1700000000.5_0/forward_pass_id=1___rank=0___name=residual___layer_id=3.pt",
        tensor((3, 8), 371, torch.bfloat16),
    )

    # A fork of Megatron-LM, megatron/core/debug/features/utils/tensor_dump.py and dump_io.py (the index that was searched does
    # not name the repository): iter_{iter:07d}/mp_rank_{tp:02d}_{pp:03d}_{ep:03d}/{layer}__{tensor}__mb{micro batch:02d}.pt.
    save(
        "dumps/megatron_fork/iter_0000005/mp_rank_00_000_000/decoder_layers_0_mlp_linear_fc1__activation__mb00.pt",
        tensor((4, 8), 380, torch.bfloat16),
    )
    # NVIDIA/Megatron-LM checkpoints: iter_{iter:07d}/mp_rank_{tp:02d}/model_optim_rng.pt
    save("dumps/megatron_checkpoint/iter_0000005/mp_rank_00/model_optim_rng.pt",
         {"model": collections.OrderedDict({"decoder.layers.0.mlp.linear_fc1.weight": tensor((4, 8), 381, torch.bfloat16),
                                            "decoder.layers.0.mlp.linear_fc1._extra_state": io.BytesIO(b"te")}),
          "iteration": 5, "rng_state": [{"np_rng_state": ("MT19937", np.arange(8, dtype=np.uint32), 8, 0, 0.0)}]})  # fmt: skip
    # A capture hook on vLLM (the index does not name the repository): Pass{n}.pt without zeros, outputs as nested tuples.
    save(
        "dumps/vllm_capture/Pass0.pt",
        {
            "input_ids": torch.arange(3),
            "rids": ["r0"],
            "model.layers.0": (tensor((3, 8), 390, torch.bfloat16), tensor((3, 8), 391, torch.bfloat16)),
        },
    )
