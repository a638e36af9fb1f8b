#!/usr/bin/env python3
"""Writes the hand-made seeds of tests/fuzz/corpus: small files of each kind that take the parsers to
places which data/containers, whose files are seeds too, does not reach. Cases C24 to C30 of the project's bug list are among
them. Standard library only. Run from anywhere; existing files of the same names are replaced."""

import io
import json
import struct
import zipfile
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus"


def write(target: str, name: str, data: bytes | str) -> None:
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)


def safetensors(header: dict | str, data: bytes = b"") -> bytes:
    text = header if isinstance(header, str) else json.dumps(header, separators=(",", ":"))
    return struct.pack("<Q", len(text)) + text.encode() + data


def entry(dtype: str, shape: list[int], start: int, end: int) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def safetensors_seeds() -> None:
    write("safetensors", "f4_2x32_with_scales", safetensors(
        {"w": entry("F4", [2, 32], 0, 32), "s": entry("F8_E8M0", [2, 1], 32, 34)}, bytes(range(34))))
    write("safetensors", "f4_2x3", safetensors({"w": entry("F4", [2, 3], 0, 3)}, b"abc"))
    write("safetensors", "f4_3x2", safetensors({"w": entry("F4", [3, 2], 0, 3)}, b"abc"))
    write("safetensors", "f6", safetensors({"w": entry("F6_E2M3", [4, 4], 0, 12)}, bytes(12)))
    write("safetensors", "length_2_63", struct.pack("<Q", 1 << 63) + b"{}")
    write("safetensors", "length_100000001", struct.pack("<Q", 100000001) + b"{}")
    x = '"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    write("safetensors", "duplicate_key", safetensors("{" + x + "," + x + "}", b"dddd"))
    write("safetensors", "reversed_offsets", safetensors({"x": entry("F32", [1], 4, 0)}, b"dddd"))
    write("safetensors", "hole", safetensors(
        {"x": entry("F32", [1], 0, 4), "y": entry("F32", [1], 12, 16)}, bytes(16)))
    write("safetensors", "empty_metadata", safetensors(
        {"__metadata__": {}, "x": entry("F32", [1], 0, 4)}, b"dddd"))
    write("safetensors", "only_metadata", safetensors({"__metadata__": {"format": "pt"}}))
    write("safetensors", "short_data", safetensors({"x": entry("F32", [3], 0, 12)}, b"12345678"))
    write("safetensors", "trailing_byte", safetensors({"x": entry("F32", [1], 0, 4)}, b"ddddx"))
    write("safetensors", "many_dtypes", safetensors(
        {"a": entry("BF16", [2, 3], 0, 12), "b": entry("F64", [2], 12, 28),
         "c": entry("F8_E4M3", [5], 28, 33), "d": entry("I64", [1, 0, 4], 33, 33),
         "e": entry("BOOL", [], 33, 34), "f": entry("F16", [1, 1, 2], 34, 38)}, bytes(range(38))))


def npy(header: str, data: bytes, major: int = 1) -> bytes:
    length = struct.pack("<H" if major == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([major, 0]) + length + header.encode("latin1") + data


def npy_header(descr: str, shape: str, fortran: bool = False) -> str:
    return f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n"


def npy_seeds() -> None:
    write("npy", "v2_bytes", npy(npy_header("|V2", "(4,)"), bytes.fromhex("803f00c0807fc17f")))
    write("npy", "v1_byte", npy(npy_header("|V1", "(1,)"), b"\x3c"))
    write("npy", "f1", npy(npy_header("<f1", "(2,)"), b"\x3c\x3d"))
    write("npy", "version_2_padded", npy(npy_header("<f4", "(2,)").rstrip() + " " * 300 + "\n", bytes(8), 2))
    write("npy", "version_3", npy(npy_header("<f8", "(1, 2)"), bytes(16), 3))
    write("npy", "zero_d", npy(npy_header("<f4", "()"), struct.pack("<f", 1.5)))
    write("npy", "empty", npy(npy_header("<f4", "(0, 32)"), b""))
    write("npy", "short", npy(npy_header("<f4", "(4,)"), bytes(12)))
    write("npy", "no_blank", npy(npy_header("<f2", "(2,621)"), bytes(2484)))
    write("npy", "length_ffff", b"\x93NUMPY\x01\x00\xff\xff" + npy_header("<f4", "(4,)").encode())
    write("npy", "fortran_3d", npy(npy_header(">f4", "(2, 3, 4)", True), bytes(range(96))))
    write("npy", "more_than_2_31", npy(npy_header("|u1", "(65537, 32768)"), b""))
    write("npy", "structured", npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}\n", bytes(4)))
    write("npy", "integers", npy(npy_header("<i8", "(2, 2)"), bytes(32)))
    write("npy", "big_f2", npy(npy_header(">f2", "(3, 5)"), bytes(range(30))))
    write("npy", "complex", npy(npy_header("<c16", "(2,)"), bytes(32)))


def index_seeds() -> None:
    def index(weights: dict, **more: object) -> str:
        return json.dumps({"metadata": {"total_size": 48}, "weight_map": weights, **more})

    b = safetensors({"b": entry("F32", [2, 3], 0, 24)}, bytes(24))
    separator = b"\n=====\n"
    write("index", "two_shards", index({"a": "a.safetensors", "b": "b.safetensors"}))
    write("index", "given_shard", index({"b": "b.safetensors"}).encode() + separator + b)
    write("index", "broken_shard", index({"b": "b.safetensors"}).encode() + separator + b[:-3])
    write("index", "below", index({"c": "below/c.safetensors", "a": "./a.safetensors"}))
    write("index", "outside", index({"outside": "../outside.safetensors"}))
    write("index", "outside_by_below", index({"outside": "below/../../outside.safetensors"}))
    write("index", "link_to_outside", index({"outside": "link.safetensors"}))
    write("index", "link_inside", index({"a": "same.safetensors"}))
    write("index", "absolute", index({"a": "/etc/passwd"}))
    write("index", "wrong_shard", index({"a": "b.safetensors"}))
    write("index", "itself", index({"a": "model.safetensors.index.json"}))
    write("index", "missing", index({"a": "none.safetensors"}))
    write("index", "no_weight_map", '{"metadata":{}}')
    write("index", "duplicate", '{"weight_map":{"a":"a.safetensors","a":"b.safetensors"}}')
    write("index", "types", '{"weight_map":{"a":1},"x":[{},[null,true,1.5e3]]}')


def format_file_seeds() -> None:
    write("format_file", "all_kinds", '''# two elements, a table, three formats
[[element]]
name = "Tiny_E3"
exponent-bits = 3
mantissa-bits = 0
bias = 2
[[element]]
name = "f8"
exponent-bits = 4
mantissa-bits = 3
bias = 7
special = "nan"
[[lut]]
name = "quarter"
values = [-1, -0.25, 0, 0.5, 2.0]
[[format]]
name = "pot"
element = "tiny-e3"
scales = [{group = 16, type = "e4m3"}, {group = "tensor", type = "f32"}]
[[format]]
name = "hi"
element = "s1p2"
scales = [{group = 4, type = "micro"}, {group = 8, type = "micro"}, {group = 64, type = "e6m2"}]
[[format]]
name = "table"
element = "lut:quarter"
scales = [{group = 64, type = "f32"}]
''')
    write("format_file", "ieee", '[[element]]\nname="x"\nexponent-bits=5\nmantissa-bits=2\nbias=15\nspecial="ieee"\n')
    write("format_file", "fnuz", '[[element]]\nname="x"\nexponent-bits=4\nmantissa-bits=3\nbias=8\nspecial="fnuz"\n')
    write("format_file", "huge_bias", '[[element]]\nname="x"\nexponent-bits=4\nmantissa-bits=3\nbias=-9223372036854775808\n')
    write("format_file", "lut_values", '[[lut]]\nname="t"\nvalues=[1e308,-inf,nan,0x10,1979-05-27]\n')
    write("format_file", "dotted", 'element.name = "x"\n[format]\n"a b" = """\nx\\u0041"""\n')
    write("format_file", "row_scale", '[[format]]\nname="r"\nelement="e4m3"\nscales=[{group="row",type="f32"}]\n')
    write("format_file", "no_scales", '[[format]]\nname="r"\nelement="e2m1"\nscales=[]\n')


def recipe_seeds() -> None:
    recipes = [
        "mxfp4", "nvfp4", "hif4", "int4", "bf16", "mxfp8-e4m3", "nvfp4:contract=te",
        "mxfp4:contract=ggml-cpu", "nvfp4:scale=row,rounding=sr,seed=7", "hif4:width=5",
        "int4:group=32", "custom:e2m1/16:e4m3/tensor:f32", "custom:s1p2/4:micro/8:micro/64:e6m2",
        "custom:lut:nf4/64:f32", "custom:e4m3/128:e8m0,contract=x", "nvfp4:rht=16,sr=1,native=1",
        "custom:e2m1/row:f32", "mxfp4:nonfinite=error,ragged=error",
    ]
    for i, recipe in enumerate(recipes):
        write("recipe", f"hand_{i:02}", recipe)


def gguf_seeds() -> None:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    def tensor(name: str, shape: list[int], kind: int, offset: int) -> bytes:
        dims = b"".join(struct.pack("<Q", n) for n in shape)
        return text(name) + struct.pack("<I", len(shape)) + dims + struct.pack("<IQ", kind, offset)

    def gguf(keys: list[bytes], tensors: list[bytes], data: bytes, align: int = 32) -> bytes:
        head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys + tensors)
        return head + bytes(-len(head) % align) + data

    alignment = text("general.alignment") + struct.pack("<II", 4, 8)
    nested = text("n") + struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ", 0, 2) + b"ab"
    write("gguf", "empty", gguf([], [], b""))
    write("gguf", "f32", gguf([], [tensor("w", [3, 2], 0, 0)], bytes(range(24))))
    write("gguf", "aligned_by_8", gguf([alignment], [tensor("w", [4], 1, 0)], bytes(8), 8))
    write("gguf", "nested_array", gguf([nested], [], b""))
    write("gguf", "q8_0", gguf([], [tensor("q", [32, 1], 8, 0)], bytes(range(34))))
    write("gguf", "mxfp4", gguf([], [tensor("m", [32, 2], 39, 0)], bytes(range(34))))
    write("gguf", "nvfp4", gguf([], [tensor("v", [64], 40, 0)], bytes(range(36))))
    write("gguf", "claims_2_60_tensors", b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 60))


def pickle_seeds() -> None:
    """Pickles as PyTorch has them in data.pkl, for the storages of fuzz_pickle.cc."""
    tensor = (b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
              b"X\x01\0\0\x000X\x03\0\0\0cpuK\x06tQK\0K\x02K\x03\x86K\x03K\x01\x86\x89"
              b"ccollections\nOrderedDict\n)RtR")
    write("pickle", "one_tensor", b"\x80\x02" + tensor + b".")
    write("pickle", "dict", b"\x80\x02}q\0X\x01\0\0\0wq\x01" + tensor + b"s.")
    write("pickle", "nested", b"\x80\x02}(X\x01\0\0\0a](" + tensor + b"h\0eX\x01\0\0\0b}u.")
    write("pickle", "module", b"\x80\x02cmy.module\nClass\n)\x81}X\x01\0\0\0w" + tensor + b"sb.")
    write("pickle", "cycle", b"\x80\x02]q\0(h\0h\0" + tensor + b"e.")
    write("pickle", "protocol_4", b"\x80\x04\x95\x0a\0\0\0\0\0\0\0}\x94\x8c\x01w\x94\x88s\x8f.")
    write("pickle", "parameter", b"\x80\x02ctorch._utils\n_rebuild_parameter\n" + tensor +
          b"\x88ccollections\nOrderedDict\n)R\x87R.")
    write("pickle", "numpy", b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85"
          b"U\x01b\x87R(K\x01K\x02\x85cnumpy\ndtype\nU\x02f4\x89\x88\x87R(K\x03U\x01<NNNJ"
          b"\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89U\x08abcdefghtb.")
    write("pickle", "sets_and_ints", b"\x80\x05\x8f(K\x01\x8a\x02\xff\x7fG@\x09\x21\xfb\x54\x44\x2d\x18\x90.")
    write("pickle", "protocol_0", b"(dp0\nVw\np1\n(lp2\nI1\naF1.5\naL3L\naNas.")
    write("pickle", "eval", b"\x80\x02cbuiltins\neval\nX\x01\0\0\x001\x85R.")


def zip_seeds() -> None:
    array = npy(npy_header("<f4", "(2, 3)"), bytes(range(24)))
    for name, method in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", method) as archive:
            for member in ("a.npy", "sub/b.npy"):
                archive.writestr(zipfile.ZipInfo(member), array, compress_type=method)
        write("zip", name, buffer.getvalue())
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        with archive.open(zipfile.ZipInfo("a.npy"), "w", force_zip64=True) as member:
            member.write(array)
        archive.writestr(zipfile.ZipInfo("../b.npy"), array)
        archive.writestr(zipfile.ZipInfo("folder/"), b"")
        archive.comment = b"comment"
    write("zip", "zip64_and_dots", buffer.getvalue())
    write("zip", "empty", b"PK\x05\x06" + bytes(18))


def hdf5_seeds() -> None:
    """Whole files come from data/containers; these are the starts of some."""
    signature = b"\x89HDF\r\n\x1a\n"
    undefined = b"\xff" * 8
    version_2 = signature + b"\x02\x08\x08\0" + bytes(8) + undefined + bytes(8) + bytes(8) + bytes(4)
    write("hdf5", "signature", signature)
    write("hdf5", "user_block", bytes(512) + signature + bytes(88))
    write("hdf5", "superblock_2", version_2)
    write("hdf5", "superblock_0", signature + bytes(5) + b"\x08\x08\0\x04\0\x10\0" + bytes(4) +
          bytes(8) + undefined + bytes(8) + undefined + bytes(40))


def resume_seeds() -> None:
    """See fuzz_resume.cc for the first byte."""
    write("resume", "journal", b"\x04fp4scope resume 1\n" + bytes(24))
    write("resume", "other_version", b"\x04fp4scope resume 9\n")
    write("resume", "settings", b"\x05\x02\x07program\x04fuzz\x07recipes\x05nvfp4")
    write("resume", "other_settings", b"\x05\x02\x07program\x04fuzz\x07recipes\x05mxfp4")
    write("resume", "no_results", b"\x06\x10" + b"0123456789abcdef" + b"\0\0")
    write("resume", "one_error", b"\x06\x10" + b"0123456789abcdef" + b"\0\x01\x01f\x01t\x01m\x03")
    write("resume", "one_result", b"\x07\x10" + b"0123456789abcdef" + b"\x01\0" + bytes(400) + b"\0")


if __name__ == "__main__":
    safetensors_seeds()
    npy_seeds()
    index_seeds()
    format_file_seeds()
    recipe_seeds()
    gguf_seeds()
    pickle_seeds()
    zip_seeds()
    hdf5_seeds()
    resume_seeds()
