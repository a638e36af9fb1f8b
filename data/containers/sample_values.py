"""Numbers for the files of make_files.py: by an integer hash, and the special values of each float format."""

from __future__ import annotations

import numpy as np


def hashed(count: int, seed: int) -> np.ndarray:
    """`count` 64-bit words by the finaliser of splitmix64: fixed by count and seed on every version of numpy."""
    with np.errstate(over="ignore"):
        x = (np.arange(count, dtype=np.uint64) + np.uint64(seed) * np.uint64(1 << 20)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def raw_bytes(count: int, seed: int) -> np.ndarray:
    return (hashed(count, seed) >> np.uint64(56)).astype(np.uint8)


def values(shape: tuple[int, ...] | int, seed: int = 1) -> np.ndarray:
    """float32 multiples of 1/64 in [-16, 16): exact in float16 too, so every float dtype can hold them."""
    size = int(np.prod(shape))
    return (((hashed(size, seed) % np.uint64(2048)).astype(np.float32) - 1024) / 64).reshape(shape)


# Quiet and signalling NaN with payloads of both signs, -0, Inf, the smallest and the largest subnormal.
SPECIAL_F64 = np.array(
    [0x7FF8000000000001, 0x7FF0000000000001, 0xFFF8123456789ABC, 0x8000000000000000, 0x7FF0000000000000,
     0xFFF0000000000000, 0x0000000000000001, 0x800FFFFFFFFFFFFF], np.uint64)  # fmt: skip
SPECIAL_F32 = np.array(
    [0x7FC00001, 0x7F800001, 0xFFC12345, 0x80000000, 0x7F800000, 0xFF800000, 0x00000001, 0x807FFFFF], np.uint32
)
SPECIAL_F16 = np.array([0x7E01, 0x7C01, 0xFE55, 0x8000, 0x7C00, 0xFC00, 0x0001, 0x83FF], np.uint16)
SPECIAL_BF16 = np.array([0x7FC1, 0x7F81, 0xFFD5, 0x8000, 0x7F80, 0xFF80, 0x0001, 0x807F], np.uint16)
