"""Writes the .npz files."""

from __future__ import annotations

import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np

from sample_values import SPECIAL_F16, SPECIAL_F32, SPECIAL_F64, values


def npz_files(out: Path) -> None:
    mixed: dict[str, np.ndarray] = {
        "f4": np.concatenate([SPECIAL_F32.view(np.float32), values(8, 500)]), "f2": SPECIAL_F16.view(np.float16),
        "f8": SPECIAL_F64.view(np.float64), "fortran": np.asfortranarray(values((3, 5), 501)),
        "big_f4": values((2, 3), 502).astype(">f4"), "big_i2": np.arange(5, dtype=">i2"),
        "big_fortran": np.asfortranarray(values((3, 4), 503).astype(">f8")),
        "scalar": np.array(2.5, np.float32), "empty": np.empty((0, 3), np.float32), "empty_2d": np.empty((2, 0), np.int16),
        "i1": np.arange(-3, 3, dtype=np.int8), "u1": np.arange(6, dtype=np.uint8), "i2": np.arange(-3, 3, dtype=np.int16),
        "i4": np.arange(3, dtype=np.int32), "i8": np.arange(3, dtype=np.int64), "u8": np.arange(3, dtype=np.uint64),
        "bool": np.array([[True, False]]), "c8": values(4, 504).view(np.complex64),
        "bf16": values((2, 4), 505).astype(ml_dtypes.bfloat16), "e4m3": np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn),
        "structured": np.array([(1, 2.5)], dtype=[("n", "<i4"), ("x", "<f8")]),
        "structured_utf8": np.array([(1, 2.5)], dtype=[("größe", "<i4"), ("x", "<f8")]),  # a version 3 header
        "bytes": np.array([b"ab", b"c"]), "text": np.array(["ab", "ü"]), "time": np.array([0, 1], "datetime64[s]"),
        "a/b": values(2, 506), "dir/sub/x": values(2, 507), "Größe": values(2, 508), "重み": values(2, 509), "x.npy": values(2, 510),
        "with space": values(2, 511), "five_d": values((1, 2, 1, 2, 3), 512),
    }  # fmt: skip
    np.savez(out / "mixed_stored.npz", **mixed)
    np.savez_compressed(out / "mixed_deflated.npz", **mixed)
    np.savez(out / "positional.npz", values(3, 513), values(2, 514))
    np.savez(out / "objects.npz", objects=np.array([1, "two", None], object), plain=values(2, 515))
    np.savez(out / "no_arrays.npz")
    np.savez(out / "extra_member.npz", a=values(2, 516))
    with zipfile.ZipFile(out / "extra_member.npz", "a") as archive:
        archive.writestr(zipfile.ZipInfo("README.txt"), b"not an array")
