"""Writes the .gguf files: the block formats, metadata of every type, big endian."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from sample_values import SPECIAL_BF16, SPECIAL_F16, SPECIAL_F32, raw_bytes, values


def gguf_blocks(kind: gguf.GGMLQuantizationType, count: int, seed: int) -> np.ndarray:
    """`count` blocks of hashed bytes. Bits 2 and 6 of each byte are cleared: whichever two bytes are a float16 scale, its
    exponent then cannot be all ones, and no value depends on how a machine signs its NaN."""
    size = gguf.GGML_QUANT_SIZES[kind][1]
    return (raw_bytes(count * size, seed) & 0xBB).reshape(count, size)


def gguf_files(out: Path) -> None:
    kinds = gguf.GGMLQuantizationType

    def new(name: str, endian: gguf.GGUFEndian = gguf.GGUFEndian.LITTLE) -> gguf.GGUFWriter:
        return gguf.GGUFWriter(out / name, "llama", endianess=endian)

    def finish(writer: gguf.GGUFWriter) -> None:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def add_blocks(writer: gguf.GGUFWriter, name: str, kind: gguf.GGMLQuantizationType, blocks: np.ndarray, rows: int) -> None:
        writer.add_tensor(name, np.ascontiguousarray(blocks.reshape(rows, -1)), raw_dtype=kind)

    w = new("types.gguf")
    w.add_tensor("f32", np.concatenate([SPECIAL_F32.view(np.float32), values(24, 700)]).reshape(2, 16))
    w.add_tensor("f16", np.concatenate([SPECIAL_F16.view(np.float16), values(24, 701).astype(np.float16)]).reshape(2, 16))
    bf16 = np.concatenate([SPECIAL_BF16, np.arange(24, dtype=np.uint16) * 1367]).reshape(2, 16)
    w.add_tensor("bf16", bf16.view(np.uint8), raw_dtype=kinds.BF16)
    w.add_tensor("one_d", values(7, 702))
    w.add_tensor("four_d", values((2, 3, 1, 4), 703))
    for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4"):
        w.add_tensor(f"quantized.{name}", gguf.quants.quantize(values((2, 256), 704), kinds[name]), raw_dtype=kinds[name])
    for i, name in enumerate(("Q4_0", "Q4_1", "Q8_0", "Q6_K")):
        add_blocks(w, f"formula.{name}", kinds[name], gguf_blocks(kinds[name], 6, 710 + i), 3)
    finish(w)

    # Every scale byte once, and every code byte: block i of MXFP4 has the scale i.
    w = new("fp4.gguf")
    w.add_custom_alignment(64)
    codes = ((np.arange(256)[:, None] * 16 + np.arange(16)) * 37 + 11).astype(np.uint8)
    add_blocks(w, "mxfp4", kinds.MXFP4, np.concatenate([np.arange(256, dtype=np.uint8)[:, None], codes], axis=1), 8)
    if hasattr(kinds, "NVFP4"):
        scales = np.arange(256, dtype=np.uint8).reshape(64, 4)
        codes = ((np.arange(64)[:, None] * 32 + np.arange(32)) * 37 + 5).astype(np.uint8)
        add_blocks(w, "nvfp4", kinds.NVFP4, np.concatenate([scales, codes], axis=1), 8)
    w.add_tensor("odd_size", values(5, 720))  # so that the next tensor needs padding
    w.add_tensor("last", values((3, 2), 721))
    finish(w)

    w = new("metadata.gguf")
    value = gguf.GGUFValueType
    for i, (add, number) in enumerate(((w.add_uint8, 255), (w.add_int8, -128), (w.add_uint16, 65535), (w.add_int16, -32768),
                                       (w.add_uint32, 2**32 - 1), (w.add_int32, -(2**31)), (w.add_uint64, 2**64 - 1),
                                       (w.add_int64, -(2**63)), (w.add_float32, 1.5), (w.add_float64, -2.25))):  # fmt: skip
        add(f"test.number.{i}", number)
    w.add_bool("test.bool", True)
    w.add_string("test.string", "größe \U0001f642")
    w.add_string("test.empty", "")
    for name, kind, items in (("u8", value.UINT8, [1, 2]), ("i16", value.INT16, [-1, 2]), ("f32", value.FLOAT32, [0.5, 1.5]),
                              ("bool", value.BOOL, [True, False]), ("string", value.STRING, ["a", "bc", ""]),
                              ("u64", value.UINT64, [2**63])):  # fmt: skip
        w.add_key_value(f"test.array.{name}", items, value.ARRAY, sub_type=kind)
    w.add_array("test.array.nested", [[1, 2], [3]])
    w.add_tensor("w", values((2, 3), 730))
    finish(w)

    # Types that the project's reader only names; most of them the package can decode.
    w = new("other_types.gguf")
    named = [
        k
        for k in kinds
        if k.name not in ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q6_K", "MXFP4", "NVFP4")
    ]
    for i, kind in enumerate(named):
        if kind.name in ("I8", "I16", "I32", "I64", "F64"):
            w.add_tensor(
                kind.name, (np.arange(6) - 2).astype({"F64": np.float64}.get(kind.name, kind.name.lower().replace("i", "int")))
            )
        else:
            add_blocks(w, kind.name, kind, gguf_blocks(kind, 2, 740 + i), 2)
    finish(w)

    w = new("big_endian.gguf", gguf.GGUFEndian.BIG)
    w.add_uint32("test.number", 7)
    w.add_tensor("w", values((2, 3), 780))
    finish(w)
