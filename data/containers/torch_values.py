"""Tensors of torch with the numbers of sample_values.py, and one tensor of each dtype."""

from __future__ import annotations

import numpy as np
import torch

from sample_values import (
    SPECIAL_BF16,
    SPECIAL_F16,
    SPECIAL_F32,
    SPECIAL_F64,
    raw_bytes,
    values,
)


def from_bits(bits: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of these bits. Goes through uint8, since not every torch dtype has a numpy one."""
    return torch.from_numpy(bits.copy().view(np.uint8)).view(dtype)


def tensor(shape: tuple[int, ...] | int, seed: int = 1, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.from_numpy(values(shape, seed)).to(dtype)


def every_torch_dtype() -> dict[str, torch.Tensor]:
    """One tensor of each dtype; 8-bit floats hold every code, wider floats the special values and ordinary ones."""
    ordinary = values(8, 3)
    codes = np.arange(256, dtype=np.uint8)
    out: dict[str, torch.Tensor] = {
        "float64": from_bits(np.concatenate([SPECIAL_F64, ordinary.astype(np.float64).view(np.uint64)]), torch.float64),
        "float32": from_bits(np.concatenate([SPECIAL_F32, ordinary.view(np.uint32)]), torch.float32),
        "float16": from_bits(np.concatenate([SPECIAL_F16, ordinary.astype(np.float16).view(np.uint16)]), torch.float16),
        "bfloat16": from_bits(
            np.concatenate([SPECIAL_BF16, (ordinary.view(np.uint32) >> 16).astype(np.uint16)]), torch.bfloat16
        ),
    }
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"):
        if hasattr(torch, name):
            out[name] = from_bits(codes, getattr(torch, name)).reshape(16, 16)
    if hasattr(torch, "float4_e2m1fn_x2"):
        out["float4_e2m1fn_x2"] = from_bits(codes, torch.float4_e2m1fn_x2).reshape(8, 32)
    for name in ("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"):
        dtype = getattr(torch, name)
        out[name] = from_bits(raw_bytes(12 * torch.empty(0, dtype=dtype).element_size(), 5), dtype).reshape(3, 4)
    out["bool"] = torch.from_numpy(raw_bytes(11, 6) & 1).to(torch.bool)
    out["complex64"] = from_bits(values(10, 7).view(np.uint32), torch.complex64)
    out["complex128"] = from_bits(values(6, 8).astype(np.float64).view(np.uint64), torch.complex128)
    out["complex32"] = from_bits(values(6, 9).astype(np.float16).view(np.uint16), torch.complex32)
    return out


def odd_torch_dtypes() -> dict[str, torch.Tensor]:
    """Dtypes that torch can store but hardly compute with: a reader may refuse them by name."""
    names = ("bits8", "bits16", "bits1x8", "bits2x4", "bits4x2", "bcomplex32")
    return {name: from_bits(raw_bytes(16, 10), getattr(torch, name)) for name in names if hasattr(torch, name)}
