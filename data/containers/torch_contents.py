"""What the .pt files of write_torch.py hold: views, shared storages, nested objects, odd keys, numpy arrays."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import torch

from make_files import Hashed, Point, zero_factory
from sample_values import values
from torch_values import from_bits, tensor


def views() -> dict[str, torch.Tensor]:
    base = torch.arange(60, dtype=torch.float32).reshape(5, 12)
    return {
        "base": base,
        "transposed": base.t(),
        "sliced": base[1:4, 2:11:3],
        "last_row": base[4],
        "expanded": torch.arange(3, dtype=torch.float32).reshape(3, 1).expand(3, 4),
        "expanded_0d": torch.tensor(2.5).expand(2, 3),
        "overlapping": base.as_strided((4, 3), (1, 1), 7),
        "permuted": torch.arange(24, dtype=torch.int32).reshape(2, 3, 4).permute(2, 0, 1),
        "channels_last": torch.arange(24, dtype=torch.float32).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
        "diagonal": torch.arange(25, dtype=torch.float64).reshape(5, 5).diagonal(),
        "scalar": torch.tensor(-1.25),
        "scalar_view": base[2, 3],
        "empty": torch.empty(0),
        "empty_2d": torch.empty(3, 0, 2, dtype=torch.bfloat16),
        "empty_slice": base[5:, :],
        "size_one_odd_stride": base[1:2, ::5],
        "f8_transposed": from_bits(np.arange(24, dtype=np.uint8), torch.float8_e4m3fn).reshape(4, 6).t(),
    }


def shared() -> dict[str, Any]:
    weight = tensor((4, 6), 11)
    flat = torch.arange(32, dtype=torch.int16)
    return {"tied_a": weight, "tied_b": weight, "first_half": flat[:16].reshape(4, 4), "second_half": flat[16:],
            "inner": {"again": weight.t()}}  # fmt: skip


def filled(module: torch.nn.Module, seed: int) -> torch.nn.Module:
    """Initialisers draw random numbers; these values do not."""
    with torch.no_grad():
        for i, (_, p) in enumerate(module.named_parameters()):
            p.copy_(tensor(tuple(p.shape), seed + i))
    return module


def nested() -> dict[Any, Any]:
    return {
        "list": [tensor(2, 40), [tensor(3, 41), {"deep": tensor(1, 42)}], None, 7, "text"],
        "tuple": (tensor(2, 43), (), (tensor(2, 44),)),
        "triple": (tensor(1, 45), tensor(1, 46), tensor(1, 47)),
        "ordered": collections.OrderedDict([("z", tensor(2, 48)), ("a", tensor(2, 49))]),
        "default": collections.defaultdict(zero_factory, {"k": tensor(2, 50)}),
        "default_list": collections.defaultdict(list, {"k": [tensor(2, 51)]}),
        "point": Point(tensor(2, 52), y=tensor(2, 53)),
        "set_of_one": {tensor(2, 54)},
        "set": {Hashed(2), Hashed(0), Hashed(1)},
        "frozenset": frozenset({Hashed(3), Hashed(4)}),
        "size": torch.Size([3, 4]),
        "device": torch.device("cpu"),
        "dtype": torch.bfloat16,
        "layout": torch.strided,
        "scalars": [True, False, None, 0, -1, 255, 65536, -(2**31), 2**40, -(2**70), 1.5, float("inf"), 1 + 2j, b"bytes",
                    bytearray(b"array"), slice(1, 2, 3), range(4), Ellipsis],
        "numbers": {"i": 3, "f": 2.5},
    }  # fmt: skip


def odd_keys() -> dict[Any, Any]:
    return {
        "with.dot": tensor(1, 60), "with": {"dot": tensor(2, 61)},  # one resulting name: the second is `with.dot#2`
        "a/b": tensor(1, 62), "a:b": tensor(1, 63), "back\\slash": tensor(1, 64), "Größe": tensor(1, 65),
        "重み": tensor(1, 66), "\U0001f642": tensor(1, 67), "": tensor(1, 68), " ": tensor(1, 69), "new\nline": tensor(1, 70),
        "quote\"'": tensor(1, 71), "../up": tensor(1, 72), "nested": {"": tensor(1, 73), "x#2": tensor(1, 74)},
        "e\u0301": tensor(1, 75), "\u00e9": tensor(1, 76),  # decomposed and composed: two names
        0: tensor(1, 77), -5: tensor(1, 78), 2**40: tensor(1, 79), True: tensor(1, 80), None: tensor(1, 81),
        0.5: tensor(1, 82), (1, 2): tensor(1, 83), b"bytes": tensor(1, 84), "0": tensor(1, 85), ("t",): {"in": tensor(1, 86)},
        torch.float16: tensor(1, 87),
    }  # fmt: skip


def numpy_inside() -> dict[str, Any]:
    return {
        "f4": values((3, 5), 90),
        "fortran": np.asfortranarray(values((3, 5), 91)),
        "strided": values((4, 6), 92)[::2, 1::2],
        "big_endian": values((2, 3), 93).astype(">f4"),
        "f2": values(4, 94).astype(np.float16),
        "f8": values(4, 95).astype(np.float64),
        "i8": np.arange(-3, 3, dtype=np.int64),
        "u1": np.arange(256, dtype=np.uint8),  # every byte: protocol 2 writes them as text through _codecs.encode
        "bool": np.array([True, False, True]),
        "scalar_array": np.array(2.5, np.float32),
        "empty": np.empty((0, 3), np.float32),
        "scalar": np.float32(1.5), "scalar_i8": np.int64(-7), "scalar_bool": np.bool_(True),
        "structured": np.array([(1, 2.5), (3, -0.5)], dtype=[("n", "<i4"), ("x", "<f8")]),
        "text": np.array(["ab", "c"]),
        "dtype": np.dtype("float32"),
        "mixed": [values(2, 96), tensor(2, 97)],
    }  # fmt: skip
