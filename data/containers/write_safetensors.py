"""Writes the .safetensors files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import safetensors.numpy
import safetensors.torch
import torch

from sample_values import values
from torch_values import every_torch_dtype, tensor


def safetensors_files(out: Path) -> None:
    dtypes = every_torch_dtype()
    kept: dict[str, torch.Tensor] = {}
    for name, value in dtypes.items():
        try:  # which dtypes the format has differs between versions of the package
            safetensors.torch.save({name: value})
            kept[name] = value
        except Exception:  # noqa: BLE001
            continue
    kept |= {"scalar": torch.tensor(1.5), "empty": torch.empty(0, 3), "重み.ß": tensor(2, 400)}
    safetensors.torch.save_file(kept, out / "dtypes.safetensors", metadata={"format": "pt"})
    safetensors.numpy.save_file({"a/b": values((2, 3), 401), "i8": np.arange(3)}, out / "from_numpy.safetensors")
