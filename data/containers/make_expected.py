"""Writes expected.json: what the ecosystem's own readers find in each file.

    python3 make_expected.py FOLDER FORMATS_FOLDER

FOLDER is what make_files.py wrote; FORMATS_FOLDER holds files of other origin (shared/tensors/formats), named `formats/...`
in the rows. Only the pickles that make_files.py wrote itself, and the two w_*.pt of FORMATS_FOLDER, are unpickled here; the
files under malicious/ are never opened.

A row: file, tensor, dtype, shape, xxh3 (XXH3-64 of the elements as contiguous row-major little-endian bytes), reader.
README.md has the rules for the names and dtypes.
"""

from __future__ import annotations

import argparse
import json
import pickle
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import h5py
import hdf5plugin  # noqa: F401  registers the filters
import ml_dtypes
import numpy as np
import safetensors
import torch
import xxhash

from write_dumps import install_stand_ins

Row = dict[str, Any]


class Refused(Exception):
    """The own reader has no bytes for this tensor."""


# What the rows call the dtypes that every container has; all others keep the container's own spelling.
TORCH_NAMES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8_e4m3", "float8_e5m2": "f8_e5m2",
    "float8_e8m0fnu": "f8_e8m0", "uint8": "u8", "int8": "i8", "float4_e2m1fn_x2": "u8", "qint8": "i8", "quint8": "u8",
}  # fmt: skip
NUMPY_NAMES = {"f8": "f64", "f4": "f32", "f2": "f16", "u1": "u8", "i1": "i8"}
SAFETENSORS_NAMES = {
    "F64": "f64", "F32": "f32", "F16": "f16", "BF16": "bf16", "F8_E4M3": "f8_e4m3", "F8_E5M2": "f8_e5m2", "F8_E8M0": "f8_e8m0",
    "U8": "u8", "I8": "i8",
}  # fmt: skip


def row(tensor: str, dtype: str, shape: tuple[int, ...], data: bytes) -> Row:
    return {"tensor": tensor, "dtype": dtype, "shape": list(shape), "xxh3": xxhash.xxh3_64_hexdigest(data)}


def torch_bytes(t: torch.Tensor) -> bytes:
    return t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def little_endian(dtype: np.dtype) -> np.dtype:
    if dtype.names is not None:
        fields = {n: (little_endian(d), o) for n, (d, o, *_) in dtype.fields.items()}
        return np.dtype({"names": list(fields), "formats": [f for f, _ in fields.values()],
                         "offsets": [o for _, o in fields.values()], "itemsize": dtype.itemsize})  # fmt: skip
    if dtype.subdtype is not None:
        return np.dtype((little_endian(dtype.subdtype[0]), dtype.subdtype[1]))
    return dtype.newbyteorder("<")


def numpy_bytes(a: np.ndarray) -> bytes:
    return np.ascontiguousarray(a.astype(little_endian(a.dtype), copy=False)).tobytes()


def numpy_name(dtype: np.dtype) -> str:
    if dtype == np.dtype(ml_dtypes.bfloat16):
        return "bf16"
    return NUMPY_NAMES.get(dtype.str[1:], dtype.str)


# ---------------------------------------------------------------------------------------------------------------------
# Pickles


class PickledSet(list):
    """Stands in for a set: keeps the order in which the pickle lists the elements."""

    def add(self, item: Any) -> None:
        self.append(item)


class OrderedUnpickler(pickle._Unpickler):
    """Python's own unpickler; only sets become lists. Base class of the one that torch.load makes."""

    dispatch = dict(pickle._Unpickler.dispatch)

    def load_empty_set(self) -> None:
        self.append(PickledSet())

    def load_frozenset(self) -> None:
        items = self.pop_mark()  # first: it also changes what self.append is
        self.append(PickledSet(items))

    dispatch[pickle.EMPTY_SET[0]] = load_empty_set
    dispatch[pickle.FROZENSET[0]] = load_frozenset

    def find_class(self, module: str, name: str) -> Any:
        if module in ("builtins", "__builtin__") and name in ("set", "frozenset"):
            return PickledSet
        return super().find_class(module, name)


ORDERED_PICKLE = types.SimpleNamespace(Unpickler=OrderedUnpickler, load=pickle.load, __name__="pickle")


def key_name(key: Any, position: int) -> str:
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, (bool, int, float)):
        return str(key)
    return f"#{position}"


def attributes(value: Any) -> Iterator[tuple[str, Any]]:
    for cls in type(value).__mro__:
        for name in getattr(cls, "__slots__", ()):
            if isinstance(name, str) and hasattr(value, name):
                yield name, getattr(value, name)
    yield from getattr(value, "__dict__", {}).items()


def walk(value: Any, path: tuple[str, ...], parents: tuple[int, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Tensors and arrays below `value`, in the order of the pickle. `parents` ends cycles."""
    if id(value) in parents:
        return
    inside = (*parents, id(value))
    if isinstance(value, torch.Tensor):
        yield path, value
        for name, item in vars(value).items() if hasattr(value, "__dict__") else ():
            yield from walk(item, (*path, name), inside)
    elif isinstance(value, np.ndarray):
        yield path, value
    elif isinstance(value, dict):
        for i, (key, item) in enumerate(value.items()):
            yield from walk(item, (*path, key_name(key, i)), inside)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from walk(item, (*path, str(i)), inside)
    elif isinstance(value, torch.nn.Module):
        for name, item in vars(value).items():
            below = path if name in ("_parameters", "_buffers", "_modules") else (*path, name)
            yield from walk(item, below, inside)
    elif isinstance(getattr(value, "pickled_args", None), tuple):
        # Pickled as a call: the file names no attributes, so the arguments count by position.
        for i, item in enumerate(value.pickled_args):
            yield from walk(item, (*path, str(i)), inside)
    elif isinstance(value, (type, types.FunctionType, np.generic, torch.UntypedStorage, torch.TypedStorage)):
        return
    else:
        for name, item in attributes(value):
            yield from walk(item, (*path, name), inside)


def pickled_rows(name: str, value: Any) -> Iterator[Row]:
    """The rows of one tensor or array, before equal names get their number."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise Refused("array of Python objects")
        yield row(name, numpy_name(value.dtype), value.shape, numpy_bytes(value))
        return
    if value.device.type == "meta":
        raise Refused("meta tensor: shape and dtype without bytes")
    if value.layout == torch.sparse_coo:
        yield from pickled_rows(f"{name}.indices", value._indices())
        yield from pickled_rows(f"{name}.values", value._values())
        return
    if value.layout == torch.sparse_csr:
        for part in ("crow_indices", "col_indices", "values"):
            yield from pickled_rows(f"{name}.{part}", getattr(value, part)())
        return
    dtype = str(value.dtype).removeprefix("torch.")
    if value.is_quantized:
        value = value.int_repr()
    with torch.no_grad():
        plain = value.detach()
        # Conjugation and negation are bits of the view: taking them off again gives the stored bytes.
        if plain.is_conj():
            plain = plain.conj()
        if plain.is_neg():
            plain = torch._neg_view(plain)
    yield row(name, TORCH_NAMES.get(dtype, dtype), tuple(value.shape), torch_bytes(plain))


def read_torch(path: Path) -> Iterator[Row | tuple[str, str]]:
    value = torch.load(path, map_location="cpu", weights_only=False, pickle_module=ORDERED_PICKLE)
    for parts, item in walk(value, (), ()):
        name = ".".join(parts) if parts else path.stem
        try:
            yield from pickled_rows(name, item)
        except Refused as why:
            yield name, str(why)


# ---------------------------------------------------------------------------------------------------------------------
# The other containers


def read_npz(path: Path) -> Iterator[Row | tuple[str, str]]:
    with np.load(path, allow_pickle=False) as archive:
        for member in archive.zip.namelist():
            if not member.endswith(".npy"):
                continue
            name = member.removesuffix(".npy")
            try:
                a = archive[member]
            except ValueError as why:
                yield name, str(why)
                continue
            yield row(name, numpy_name(a.dtype), a.shape, numpy_bytes(a))


def read_npy(path: Path) -> Iterator[Row]:
    a = np.load(path, allow_pickle=False)
    yield row(path.stem, numpy_name(a.dtype), a.shape, numpy_bytes(a))


def read_safetensors(path: Path) -> Iterator[Row]:
    with safetensors.safe_open(path, framework="pt") as f:
        for name in f.keys():
            part = f.get_slice(name)
            yield row(
                name,
                SAFETENSORS_NAMES.get(part.get_dtype(), part.get_dtype()),
                part.get_shape(),
                torch_bytes(f.get_tensor(name)),
            )


def hdf5_datasets(group: h5py.Group, path: str, parents: tuple[Any, ...]) -> Iterator[tuple[str, h5py.Dataset]]:
    """Each data set under each path of hard and soft links. A group inside itself is not entered again."""
    for name in group:
        link = group.get(name, getlink=True)
        if isinstance(link, h5py.ExternalLink):
            continue
        try:
            item = group[name]
        except (KeyError, OSError, RuntimeError):  # a soft link to nowhere, or in a circle
            continue
        if isinstance(item, h5py.Dataset):
            yield path + name, item
        elif isinstance(item, h5py.Group):
            token = h5py.h5o.get_info(item.id).addr
            if token not in parents:
                yield from hdf5_datasets(item, path + name + "/", (*parents, token))


# Sign at the top bit, then exponent and mantissa, with the usual bias: (bytes, exponent, mantissa, bias).
SMALL_FLOATS = {(2, 8, 7, 127): "bf16", (1, 4, 3, 7): "f8_e4m3", (1, 5, 2, 15): "f8_e5m2"}


def hdf5_row(name: str, d: h5py.Dataset) -> Row:
    kind = d.id.get_type()
    if d.shape is None:
        raise Refused("null data space: no elements")
    if isinstance(kind, h5py.h5t.TypeFloatID):
        _, _, exponent, _, mantissa = kind.get_fields()
        small = SMALL_FLOATS.get((kind.get_size(), exponent, mantissa, kind.get_ebias()))
        if small is not None:
            # numpy has no such type and h5py would widen the values: read the stored bits, with the file's type as memory type.
            bits = np.empty(d.shape, f"u{kind.get_size()}")
            d.id.read(h5py.h5s.ALL, h5py.h5s.ALL, bits, mtype=kind)
            if kind.get_order() == h5py.h5t.ORDER_BE:
                bits = bits.byteswap()
            return row(name, small, d.shape, bits.tobytes())
        if d.dtype.itemsize != kind.get_size() or (exponent, mantissa) not in ((5, 10), (8, 23), (11, 52)):
            raise Refused(f"float with {exponent} exponent and {mantissa} mantissa bits, bias {kind.get_ebias()}")
    if d.dtype.hasobject:
        raise Refused("variable-length or reference elements")
    a = np.asarray(d[()])
    # An array type lengthens the shape that h5py gives; the rows keep what h5py gives.
    if a.dtype == np.bool_:
        spelled = "bool"
    elif a.dtype.kind in "iu" and a.dtype.itemsize == 8:
        spelled = "<" + a.dtype.str[1:]  # plain `i8` and `u8` are 8-bit integers in these rows
    elif a.dtype.kind in "iufc":
        spelled = numpy_name(a.dtype).lstrip("<>")
    else:
        spelled = a.dtype.str
    return row(name, spelled, a.shape, numpy_bytes(a))


def read_hdf5(path: Path) -> Iterator[Row | tuple[str, str]]:
    with h5py.File(path) as f:
        root = h5py.h5o.get_info(f["/"].id).addr
        for name, d in hdf5_datasets(f["/"], "", (root,)):
            try:
                yield hdf5_row(name, d)
            except (Refused, OSError) as why:
                yield name, str(why)


def read_gguf(path: Path) -> Iterator[Row | tuple[str, str]]:
    kinds = gguf.GGMLQuantizationType
    plain = {kinds.F64: "f64", kinds.F32: "f32", kinds.F16: "f16", kinds.BF16: "bf16", kinds.I8: "i8", kinds.I16: "I16",
             kinds.I32: "I32", kinds.I64: "I64"}  # fmt: skip
    for t in gguf.GGUFReader(path).tensors:
        shape = tuple(int(n) for n in reversed(t.shape))
        if t.tensor_type in plain:
            yield row(t.name, plain[t.tensor_type], shape, numpy_bytes(np.asarray(t.data)))
            continue
        try:
            with np.errstate(all="ignore"):
                decoded = gguf.quants.dequantize(np.asarray(t.data), t.tensor_type)
        except NotImplementedError as why:
            yield t.name, str(why)
            continue
        assert decoded.dtype == np.float32, (path, t.name)
        yield row(t.name, "f32", shape, numpy_bytes(decoded))


READERS = {
    ".pt": (read_torch, f"torch {torch.__version__.split('+')[0]}"),
    ".npz": (read_npz, f"numpy {np.__version__}"),
    ".npy": (read_npy, f"numpy {np.__version__}"),
    ".safetensors": (read_safetensors, f"safetensors {safetensors.__version__}"),
    ".h5": (read_hdf5, f"h5py {h5py.__version__}"),
    ".hdf5": (read_hdf5, f"h5py {h5py.__version__}"),
    ".gguf": (read_gguf, "gguf"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what make_files.py wrote; expected.json is put here")
    parser.add_argument("formats", type=Path, help="the folder shared/tensors/formats")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    install_stand_ins()
    from importlib.metadata import version

    files = [(f"containers/{p.relative_to(options.folder).as_posix()}", p) for p in options.folder.rglob("*")
             if p.is_file() and "malicious" not in p.relative_to(options.folder).parts]  # fmt: skip
    files += [(f"formats/{p.name}", p) for p in options.formats.iterdir()]
    rows: list[Row] = []
    refused: list[dict[str, str | None]] = []
    for shown, path in sorted(files):
        if path.suffix not in READERS:
            continue
        read, reader = READERS[path.suffix]
        reader = f"gguf {version('gguf')}" if reader == "gguf" else reader
        seen: dict[str, int] = {}
        try:
            for found in read(path):
                name = found[0] if isinstance(found, tuple) else found["tensor"]
                seen[name] = seen.get(name, 0) + 1
                if seen[name] > 1:
                    name = f"{name}#{seen[name]}"
                if isinstance(found, tuple):
                    refused.append({"file": shown, "tensor": name, "why": found[1]})
                else:
                    rows.append({"file": shown, **found, "tensor": name, "reader": reader})
        except Exception as why:  # noqa: BLE001  whatever the reader says is the row
            refused.append({"file": shown, "tensor": None, "why": f"{type(why).__name__}: {why}"})
    rows.sort(key=lambda r: (r["file"], r["tensor"]))
    refused.sort(key=lambda r: (r["file"] or "", r["tensor"] or ""))

    def lines(items: list[Any]) -> str:
        return ",\n".join(json.dumps(i, ensure_ascii=True, sort_keys=True) for i in items)

    text = f'{{\n"refused": [\n{lines(refused)}\n],\n"rows": [\n{lines(rows)}\n]\n}}\n'
    (options.folder / "expected.json").write_text(text, encoding="utf-8")
    print(len(rows), "rows,", len(refused), "refused")


if __name__ == "__main__":
    main()
