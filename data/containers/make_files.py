"""Writes small container files with the ecosystem's own writers.

    python3 make_files.py FOLDER

Every value comes from an integer hash or from arange, never from a random generator, whose stream may change
between versions. The same versions of the writers give the same bytes again (README.md lists them).

The classes whose instances are pickled live in this file; the module is imported under its own name before it writes, so
that the pickles name `make_files.Probe` and not `__main__.Probe`, and make_expected.py can load them.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import io
import shutil
import sys
import types
import warnings
import zipfile
from pathlib import Path
from typing import Any

import gguf
import h5py
import hdf5plugin
import ml_dtypes
import numpy as np
import safetensors.numpy
import safetensors.torch
import torch

# ---------------------------------------------------------------------------------------------------------------------
# Values


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


# torch.<class>Storage of each dtype that has one
LEGACY_STORAGE = {"float64": "Double", "float32": "Float", "float16": "Half", "bfloat16": "BFloat16", "uint8": "Byte", "int8": "Char",
                  "int16": "Short", "int32": "Int", "int64": "Long", "bool": "Bool", "complex64": "ComplexFloat",
                  "complex128": "ComplexDouble"}  # fmt: skip


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


Point = collections.namedtuple("Point", ["x", "y"])


@dataclasses.dataclass
class Sample:
    name: str
    activation: torch.Tensor
    scales: list[torch.Tensor] = dataclasses.field(default_factory=list)


class Probe:
    """An ordinary instance: pickled as a class and its __dict__."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.weight = tensor((2, 3), seed)
        self.stats = {"amax": torch.tensor(3.5), "note": "kept"}


class SlotProbe:
    """__slots__: pickled as NEWOBJ and BUILD with (None, {slot: value})."""

    __slots__ = ("left", "right")

    def __init__(self) -> None:
        self.left = tensor(3, 21)
        self.right = tensor(2, 22)


class ReducedProbe:
    """Pickled as a call with arguments: the file has no attribute names, only positions."""

    def __init__(self, *args: Any) -> None:
        self.pickled_args = args

    def __reduce__(self) -> tuple[Any, ...]:
        return ReducedProbe, self.pickled_args


class Hashed:
    """Its hash is fixed, so a set of these has one order in every process."""

    def __init__(self, key: int) -> None:
        self.key = key
        self.tensor = tensor(2, 30 + key)

    def __hash__(self) -> int:
        return self.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hashed) and other.key == self.key


class TaggedTensor(torch.Tensor):
    """A Tensor subclass without own pickling: torch writes it through _rebuild_from_type_v2."""


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = torch.nn.Linear(4, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(3, 2, bias=False), torch.nn.ReLU()])
        self.gain = torch.nn.Parameter(torch.ones(1))
        self.register_buffer("mask", torch.tensor([True, False, True]))
        self.plain = torch.arange(3)  # neither parameter nor buffer: stays in __dict__
        self.register_parameter("absent", None)


def zero_factory() -> torch.Tensor:
    return torch.zeros(1)


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


# ---------------------------------------------------------------------------------------------------------------------
# PyTorch


def rezip(source: Path, target: Path, method: int, rename: str | None = None) -> None:
    """The same members through Python's zipfile: deflated ones are what `zip -r` makes of an unpacked checkpoint."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", method) as new:
        for member in old.infolist():
            name = member.filename if rename is None else rename + member.filename[member.filename.index("/") :]
            new.writestr(zipfile.ZipInfo(name), old.read(member), compress_type=method)


def swap_storages(source: Path, target: Path, widths: dict[str, int]) -> None:
    """The file that a big-endian machine would have written.

    torch.save has no option for the byte order, so the storages are swapped here by hand (`widths`: bytes of an element of
    each storage key) and the `byteorder` record says big. PyTorch's own reader and writer handle the archive.
    """
    reader = torch._C.PyTorchFileReader(str(source))
    writer = torch._C.PyTorchFileWriter(str(target))
    for name in reader.get_all_records():
        data = reader.get_record(name)
        if name == "byteorder":
            data = b"big"
        elif name.startswith("data/"):
            width = widths[name.removeprefix("data/")]
            data = np.frombuffer(data, np.uint8).reshape(-1, width)[:, ::-1].tobytes()
        elif name.startswith(".data/") or name == "version":
            continue  # the writer adds its own
        writer.write_record(name, data, len(data))
    writer.write_end_of_file()


def torch_files(out: Path) -> None:
    def save(name: str, value: Any, **options: Any) -> Path:
        path = out / name
        torch.save(value, path, **options)
        return path

    save("dtypes.pt", every_torch_dtype())
    save("dtypes_odd.pt", odd_torch_dtypes())
    views_path = save("views.pt", views())
    save("shared.pt", shared())
    save("nested.pt", nested())
    save("odd_keys.pt", odd_keys())
    save("single_tensor.pt", tensor((3, 4), 100, torch.bfloat16))
    save("single_parameter.pt", torch.nn.Parameter(tensor((2, 2), 101)))
    list_path = save("tensor_list.pt", [tensor((2, 3), 102), tensor(4, 103, torch.float16), tensor((), 104)])
    save("tensor_tuple.pt", (tensor(2, 105), tensor(3, 106)))
    save("no_tensors.pt", {"epoch": 3, "name": "nothing here"})
    save("empty_dict.pt", {})

    extended = torch.nn.Parameter(tensor(3, 111))
    extended.shard_id = "q"  # python attribute: _rebuild_parameter_with_state
    attributed = tensor(3, 112)
    attributed.extra = tensor(2, 113)  # python attribute on a Tensor: _rebuild_from_type_v2 with a state
    hooked = tensor(3, 114).requires_grad_()
    hooked.register_hook(abs)  # torch warns and writes an empty OrderedDict in its place
    tagged = tensor((2, 2), 115).as_subclass(TaggedTensor)
    tagged.label = "subclass"

    def wide(seed: int) -> torch.Tensor:  # one storage each: torch refuses one storage viewed as two dtypes
        return from_bits(values(6, seed).view(np.uint32), torch.complex64)

    save("tensor_kinds.pt", {
        "parameter": torch.nn.Parameter(tensor((2, 2), 117)), "frozen": torch.nn.Parameter(tensor(2, 118), requires_grad=False),
        "buffer": torch.nn.Buffer(tensor(2, 110)),
        "parameter_with_state": extended, "tensor_with_state": attributed, "hooked": hooked, "subclass": tagged,
        "requires_grad": tensor(2, 119).requires_grad_(), "conj": wide(116).conj(), "conj_slice": wide(109).conj()[1:],
        "neg": wide(108).conj().imag, "real_part": wide(107).real,
    })  # fmt: skip
    save("sparse.pt", {
        "coo": torch.sparse_coo_tensor(torch.tensor([[0, 1, 1], [2, 0, 2]]), tensor(3, 120), (2, 3)),
        "coo_coalesced": torch.sparse_coo_tensor(torch.tensor([[0, 1], [2, 0]]), tensor((2, 2), 121), (2, 3, 2)).coalesce(),
        "csr": torch.sparse_csr_tensor(torch.tensor([0, 1, 3]), torch.tensor([1, 0, 2]), tensor(3, 122), (2, 3)),
    })  # fmt: skip
    save("quantized.pt", {
        "qint8": torch.quantize_per_tensor(tensor((3, 4), 123), 0.25, 3, torch.qint8),
        "quint8": torch.quantize_per_tensor(tensor((3, 4), 124), 0.125, 128, torch.quint8),
        "qint32": torch.quantize_per_tensor(tensor(3, 125), 0.5, 0, torch.qint32),
        "per_channel": torch.quantize_per_channel(
            tensor((2, 3), 126), torch.tensor([0.5, 0.25]), torch.tensor([0, 1]), 0, torch.qint8),
        "transposed": torch.quantize_per_tensor(tensor((3, 4), 127), 0.25, 0, torch.qint8).t(),
    })  # fmt: skip
    save("meta_tensor.pt", {"meta": torch.empty(3, 4, device="meta"), "real": tensor(2, 128)})
    generator = torch.Generator().manual_seed(1234)
    save("rng_state.pt", {"cpu": generator.get_state(), "epoch": 1})
    save("storages.pt", {"untyped": tensor(4, 129).untyped_storage(), "tensor": tensor(2, 130)})

    save(
        "instances.pt",
        {
            "probe": Probe(131),
            "sample": Sample("s", tensor((2, 2), 132), [tensor(1, 133), tensor(2, 134)]),
            "slots": SlotProbe(),
            "namespace": types.SimpleNamespace(w=tensor(2, 135)),
            "list": [Probe(136)],
        },
    )
    save("instance_single.pt", Probe(137))
    save("reduced.pt", {"call": ReducedProbe(tensor(2, 138), "x", [tensor(3, 139)])})
    net = filled(Net(), 140)
    save("module.pt", net)
    save("module_sequential.pt", filled(torch.nn.Sequential(torch.nn.Linear(3, 2)), 150))
    layer = filled(torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 160)
    save("state_dict.pt", layer.state_dict())
    optimizer = torch.optim.Adam(net.parameters(), lr=1 / 1024)
    for i, parameter in enumerate(net.parameters()):
        parameter.grad = tensor(tuple(parameter.shape), 180 + i)
    optimizer.step()
    save("optimizer.pt", {"optimizer": optimizer.state_dict(), "epoch": 3})

    save("numpy_inside.pt", numpy_inside())
    save("numpy_inside_p5.pt", numpy_inside(), pickle_protocol=5)
    save("numpy_ml_dtypes.pt", {"bf16": values(4, 190).astype(ml_dtypes.bfloat16), "t": tensor(1, 191)})
    save("numpy_object.pt", {"objects": np.array([1, "two", None], object), "t": tensor(1, 192)})
    for protocol in (3, 4, 5):
        save(f"nested_p{protocol}.pt", nested(), pickle_protocol=protocol)
    row = torch.arange(70, dtype=torch.float32)  # over 256 memo entries: LONG_BINPUT and LONG_BINGET
    save("many_keys.pt", {f"layer.{i}.weight": row[i] for i in range(70)})

    # Dtypes newer than the typed storage classes: torch 2.15 writes them to the legacy format, with an untyped storage, and
    # then cannot read its own file. One small file keeps that case; the others leave these dtypes out.
    old = {name: t for name, t in every_torch_dtype().items() if hasattr(torch, f"{LEGACY_STORAGE.get(name, '-')}Storage")}
    old_views = {name: t for name, t in views().items() if name != "f8_transposed"}
    legacy = {"views": old_views, "shared": shared(), "nested": nested(), "dtypes": old, "numpy_inside": numpy_inside()}
    for name, value in legacy.items():
        save(f"{name}_legacy.pt", value, _use_new_zipfile_serialization=False)
    save(
        "untyped_legacy.pt",
        {"f8": from_bits(np.arange(4, dtype=np.uint8), torch.float8_e4m3fn), "f32": tensor(2, 193)},
        _use_new_zipfile_serialization=False,
    )
    save("shared_legacy_p4.pt", shared(), _use_new_zipfile_serialization=False, pickle_protocol=4)

    rezip(views_path, out / "views_deflated.pt", zipfile.ZIP_DEFLATED)
    rezip(list_path, out / "stored_renamed.pt", zipfile.ZIP_STORED, rename="my model")
    ordered = {
        "f32": tensor((2, 3), 200),
        "f64": tensor(3, 201, torch.float64),
        "bf16": tensor(4, 202, torch.bfloat16),
        "i16": torch.arange(5, dtype=torch.int16),
        "u8": torch.arange(5, dtype=torch.uint8),
        "sliced": tensor(8, 203)[3:6],
    }
    little = save("byteorder_little.pt", ordered)
    save("byteorder_absent.pt", ordered, _disable_byteorder_record=True)
    swap_storages(little, out / "byteorder_big.pt", {str(i): t.element_size() for i, t in enumerate(ordered.values())})


# ---------------------------------------------------------------------------------------------------------------------
# Dump trees


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


# ---------------------------------------------------------------------------------------------------------------------
# safetensors, npz


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


# ---------------------------------------------------------------------------------------------------------------------
# HDF5


def custom_float(size: int, exponent: int, mantissa: int, bias: int, big_endian: bool = False) -> h5py.h5t.TypeFloatID:
    """A float type of HDF5 with these fields, from the top bit: sign, exponent, mantissa."""
    made = (h5py.h5t.IEEE_F64BE if big_endian else h5py.h5t.IEEE_F64LE).copy()
    made.set_fields(exponent + mantissa, mantissa, exponent, 0, mantissa)
    made.set_ebias(bias)
    made.set_precision(1 + exponent + mantissa)
    made.set_size(size)
    return made


def write_typed(file: h5py.File, name: str, stored: np.ndarray, kind: h5py.h5t.TypeID, shape: tuple[int, ...]) -> None:
    """Stores these bytes unconverted: memory type and file type are the same."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_obj_track_times(False)
    data = h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple(shape), plist)
    data.write(h5py.h5s.ALL, h5py.h5s.ALL, stored, mtype=kind)


def hdf5_files(out: Path) -> None:
    ragged = (np.arange(10)[:, None] * 33 + np.arange(33)).astype(np.float32)
    integers = (np.arange(10)[:, None] * 7 - np.arange(33)).astype(np.int32)

    def new(name: str, low: str = "earliest", **options: Any) -> h5py.File:
        # The default bound differs between versions of the library: name it. What 1.10 writes as the latest is what most readers
        # know; HDF5 2.0 has a layout of its own for filtered chunks, which older versions cannot read (h5_layout_5.h5).
        return h5py.File(out / name, "w", libver=("v110" if low == "latest" else low, "latest"), **options)

    with h5py.File(out / "h5_layout_5.h5", "w", libver="latest") as f:
        f.create_dataset("gzip", data=ragged, chunks=(4, 16), compression="gzip")
        f["contiguous"] = ragged

    with new("h5_filters.h5") as f:
        f["contiguous"] = ragged
        for name, options in {
            "chunked": {}, "gzip": {"compression": "gzip"},
            "shuffle_gzip": {"compression": "gzip", "shuffle": True},
            "fletcher32": {"fletcher32": True}, "lzf": {"compression": "lzf"},
            "szip_nn": {"compression": "szip", "compression_opts": ("nn", 16)},
        }.items():  # fmt: skip
            if name.startswith("szip") and not h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP):
                continue
            f.create_dataset(name, data=ragged, chunks=(4, 16), **options)
        f.create_dataset("scaleoffset_int", data=integers, chunks=(4, 16), scaleoffset=0)
        narrow = h5py.h5t.STD_I32LE.copy()
        narrow.set_precision(20)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4, 16))
        plist.set_filter(h5py.h5z.FILTER_NBIT, 0, ())
        plist.set_obj_track_times(False)
        data = h5py.h5d.create(f.id, b"nbit", narrow, h5py.h5s.create_simple((10, 33)), plist)
        data.write(h5py.h5s.ALL, h5py.h5s.ALL, integers)

    with new("h5_filters_latest.h5", "latest") as f:
        for name, options in {
            "gzip9": {"compression": "gzip", "compression_opts": 9},
            "shuffle_gzip_fletcher32": {"compression": "gzip", "shuffle": True, "fletcher32": True}, "shuffle": {"shuffle": True},
            "shuffle_lzf": {"compression": "lzf", "shuffle": True}, "szip_ec": {"compression": "szip", "compression_opts": ("ec", 8)},
        }.items():  # fmt: skip
            if name.startswith("szip") and not h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP):
                continue
            f.create_dataset(name, data=ragged, chunks=(4, 16), **options)
        f.create_dataset("big_f4_gzip", data=ragged.astype(">f4"), chunks=(4, 16), compression="gzip", shuffle=True)
        f.create_dataset(
            "scaleoffset_int_extremes", data=np.array([-(2**31), 2**31 - 1, 0], np.int32), chunks=(3,), scaleoffset=0
        )
        f.create_dataset("scaleoffset_float", data=ragged / 4, chunks=(4, 16), scaleoffset=2)
    with new("h5_plugin_filters.h5", "latest") as f:
        for name, option in {
            "bitshuffle": hdf5plugin.Bitshuffle(cname="none"), "bitshuffle_lz4": hdf5plugin.Bitshuffle(cname="lz4"),
            "bitshuffle_zstd": hdf5plugin.Bitshuffle(cname="zstd"), "blosc_lz4": hdf5plugin.Blosc(cname="lz4", shuffle=1),
            "blosc_zstd": hdf5plugin.Blosc(cname="zstd", shuffle=2), "blosc2": hdf5plugin.Blosc2(cname="zstd"),
            "lz4": hdf5plugin.LZ4(), "zstd": hdf5plugin.Zstd(), "bzip2": hdf5plugin.BZip2(),
        }.items():  # fmt: skip
            f.create_dataset(name, data=ragged, chunks=(4, 16), compression=option)

    with new("h5_types.h5") as f:
        f["f2"], f["f4"], f["f8"] = SPECIAL_F16.view(np.float16), SPECIAL_F32.view(np.float32), SPECIAL_F64.view(np.float64)
        for kind in (">f2", ">f4", ">f8", ">i2", ">i4", ">u8"):
            f["big_" + kind[1:]] = values((2, 3), 600).astype(kind) if kind[1] == "f" else np.arange(6).astype(kind)
        for kind in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"):
            f[kind] = (np.arange(6) - 3 * (kind[0] == "i")).astype(kind)
        f["bool"] = np.array([True, False, True])
        f.create_dataset("enum", data=np.array([2, 0, 1], np.int16), dtype=h5py.enum_dtype({"A": 0, "B": 1, "C": 2}, "i2"))
        f["compound"] = np.array([(1, 2.5), (3, -0.5)], dtype=[("n", "<i4"), ("x", "<f8")])
        f["complex64"] = values(4, 601).view(np.complex64)
        f["fixed_string"] = np.array([b"ab", b"cde"])
        f.create_dataset("vlen_string", data=["ab", "größe"], dtype=h5py.string_dtype())
        f.create_dataset("vlen_int", shape=(2,), dtype=h5py.vlen_dtype(np.int32))
        f["vlen_int"][0], f["vlen_int"][1] = np.arange(3), np.arange(2)
        f.create_dataset("array_type", shape=(2,), dtype=np.dtype(("f4", (3,))))[...] = values((2, 3), 602)
        f["opaque"] = np.array([b"\x01\x02", b"\x03\x04"], dtype="V2")
        f.create_dataset("reference", data=f["f4"].ref, dtype=h5py.ref_dtype)
        f["committed_type"] = np.dtype("f4")
        f.create_dataset("with_committed", data=values(3, 604), dtype=f["committed_type"])

    for name, low in (("h5_shapes_earliest.h5", "earliest"), ("h5_shapes_latest.h5", "latest")):
        with new(name, low) as f:
            f["scalar"] = np.float32(2.5)
            f["scalar_i4"] = np.int32(-7)
            f["null"] = h5py.Empty("f4")
            f["zero_extent"] = np.empty((0, 3), np.float32)
            f.create_dataset("zero_extent_chunked", shape=(0, 3), maxshape=(None, 3), chunks=(2, 3), dtype="f4")
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_layout(h5py.h5d.COMPACT)
            plist.set_obj_track_times(False)  # the low-level call records a time by default
            data = h5py.h5d.create(f.id, b"compact", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((3, 4)), plist)
            data.write(h5py.h5s.ALL, h5py.h5s.ALL, values((3, 4), 610))
            grown = f.create_dataset("resized", data=ragged[:4], maxshape=(None, None), chunks=(3, 8), compression="gzip")
            grown.resize((9, 33))
            grown[4:9] = ragged[4:9]
            shrunk = f.create_dataset("shrunk", data=ragged, maxshape=(None, 33), chunks=(4, 16))
            shrunk.resize((5, 33))
            f.create_dataset("never_written", shape=(3, 4), dtype="f4")
            f.create_dataset("never_written_filled", shape=(3, 4), dtype="f4", fillvalue=-1.5)
            holes = f.create_dataset("holes", shape=(10, 33), dtype="f4", chunks=(4, 16), fillvalue=7.25, compression="gzip")
            holes[4:8, 16:32] = ragged[4:8, 16:32]
            f.create_dataset("holes_big", shape=(6,), dtype=">i2", chunks=(2,), fillvalue=258)[2:4] = [5, 6]
            f["one_by_one"] = np.ones((1, 1, 1), np.float64)

    with new("h5_btree_v1.h5") as f:  # more chunks than one node holds
        f.create_dataset("many_chunks", data=np.arange(70, dtype=np.float32), chunks=(1,))

    with new("h5_chunk_index_latest.h5", "latest") as f:  # each way of finding chunks that came with 1.10
        f.create_dataset("single", data=ragged, chunks=(10, 33))
        f.create_dataset("single_filtered", data=ragged, chunks=(10, 33), compression="gzip", shuffle=True)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4, 16))
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        plist.set_obj_track_times(False)
        data = h5py.h5d.create(f.id, b"implicit", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((10, 33)), plist)
        data.write(h5py.h5s.ALL, h5py.h5s.ALL, ragged)
        f.create_dataset("three_d", data=np.arange(60, dtype=np.int16).reshape(3, 4, 5), chunks=(2, 3, 2))
        f.create_dataset("fixed_array", data=ragged, chunks=(4, 16))
        f.create_dataset("fixed_array_filtered", data=ragged, chunks=(4, 16), compression="gzip", fletcher32=True)
        f.create_dataset("extensible_array", data=ragged, chunks=(4, 16), maxshape=(None, 33))
        f.create_dataset("extensible_array_filtered", data=ragged, chunks=(1, 33), maxshape=(None, 33), compression="gzip")
        f.create_dataset("btree_v2", data=ragged, chunks=(4, 16), maxshape=(None, None))
        f.create_dataset("btree_v2_filtered", data=ragged, chunks=(2, 5), maxshape=(None, None), compression="gzip")
    with new("h5_chunk_index_paged.h5", "latest") as f:  # over 1024 chunks: pages of a fixed array
        f.create_dataset("fixed_array_paged", data=np.arange(1030, dtype=np.uint16), chunks=(1,))
    with new("h5_chunk_index_blocks.h5", "latest") as f:  # data and super blocks of an extensible array
        f.create_dataset("extensible_blocks", data=np.arange(500, dtype=np.uint16), chunks=(1,), maxshape=(None,))

    with new("h5_links_target.h5") as f:
        f["other"] = values(3, 620)
    with new("h5_links.h5") as f:
        f["w"] = values((2, 3), 621)
        f["g/inner/x"] = values(4, 622)
        f["hard"] = f["w"]
        f["g/hard_up"] = f["w"]
        f["soft"] = h5py.SoftLink("/g/inner/x")
        f["soft_relative"] = h5py.SoftLink("g/inner/x")
        f["soft_group"] = h5py.SoftLink("/g/inner")
        f["dangling"] = h5py.SoftLink("/nowhere")
        f["cycle_a"], f["cycle_b"] = h5py.SoftLink("/cycle_b"), h5py.SoftLink("/cycle_a")
        f["g/loop"] = f["g"]  # a hard link of a group to itself
        f["g/inner/up"] = h5py.SoftLink("/g")
        f["external"] = h5py.ExternalLink("h5_links_target.h5", "/other")
        f["external_missing"] = h5py.ExternalLink("no_such_file.h5", "/other")
        f["Größe/重み"] = values(2, 623)
        f["with.dot and space"] = values(2, 624)
        f.create_group("empty_group")
    for name, low, count in (("h5_names_earliest.h5", "earliest", 20), ("h5_names_latest.h5", "latest", 14)):
        with new(name, low) as f:  # so many links that the group needs a tree of several nodes, or dense storage
            for i in range(count):
                f[f"tensor_{i:02d}_{'x' * (i % 9)}"] = np.float32(i)
    with new("h5_attributes_only.h5") as f:
        f.attrs["note"] = "no data sets"
        f.create_group("g").attrs["v"] = np.arange(3)
    with new("h5_many_attributes_latest.h5", "latest") as f:
        d = f.create_dataset("w", data=values(3, 625))
        for i in range(20):  # dense attribute storage
            d.attrs[f"a{i}"] = i
        f.create_group("ordered", track_order=True)["b"] = values(2, 626)
        f["ordered"]["a"] = values(2, 627)

    with new("h5_virtual_source.h5", "latest") as f:
        f["rows"] = ragged[:5]
    with new("h5_virtual.h5", "latest") as f:
        f["local"] = ragged[5:]
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_obj_track_times(False)
        plist.set_fill_value(np.array(-1, np.float32))
        for first, file, name in ((0, b"h5_virtual_source.h5", b"/rows"), (5, b".", b"/local")):
            space = h5py.h5s.create_simple((11, 33))  # the last row stays unmapped: fill values
            space.select_hyperslab((first, 0), (5, 33))
            plist.set_virtual(space, file, name, h5py.h5s.create_simple((5, 33)))
        h5py.h5d.create(f.id, b"joined", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((11, 33)), plist)
    ragged[:, :8].tofile(out / "h5_external.raw")
    with new("h5_external.h5") as f:
        f.create_dataset("outside", shape=(10, 8), dtype="f4", external=[("h5_external.raw", 0, 320)])
        f["inside"] = values(2, 630)

    with new("h5_custom_float.h5") as f:
        for name, bits in (("bf16", np.concatenate([SPECIAL_BF16, np.arange(8, dtype=np.uint16) * 4099])),):
            write_typed(f, name, bits, custom_float(2, 8, 7, 127), (4, 4))
            write_typed(f, name + "_big", bits.astype(">u2").view(np.uint16), custom_float(2, 8, 7, 127, True), (4, 4))
        codes = np.arange(256, dtype=np.uint8)
        # By HDF5's own rules an exponent of all ones is Inf or NaN, so "e4m3" here is not the e4m3fn of 8-bit training.
        write_typed(f, "e4m3", codes, custom_float(1, 4, 3, 7), (16, 16))
        write_typed(f, "e5m2", codes, custom_float(1, 5, 2, 15), (16, 16))
        write_typed(f, "bias_off", codes, custom_float(1, 4, 3, 8), (16, 16))
        f["u2_of_ml_dtypes"] = values(4, 640).astype(ml_dtypes.bfloat16).view(np.uint16)
        f["opaque_ml_dtypes"] = values(4, 640).astype(ml_dtypes.bfloat16)  # h5py stores it as an opaque or custom type

    with new("h5_skipped_filters.h5") as f:
        # Every filter skipped in every chunk: filter_mask 3, the chunks hold plain bytes, padded to the full chunk.
        d = f.create_dataset("skipped", shape=(10, 33), dtype="f4", chunks=(4, 16), compression="gzip", shuffle=True)
        padded = np.zeros((12, 48), np.float32)
        padded[:10, :33] = ragged
        for i in range(0, 12, 4):
            for j in range(0, 48, 16):
                d.id.write_direct_chunk((i, j), padded[i : i + 4, j : j + 16].tobytes(), filter_mask=3)
        # Only gzip skipped, in one chunk: that chunk is shuffled but not deflated.
        d = f.create_dataset("one_skipped", data=ragged, chunks=(4, 16), compression="gzip", shuffle=True)
        plain = padded[0:4, 16:32].copy()
        d.id.write_direct_chunk((0, 16), plain.view(np.uint8).reshape(-1, 4).T.tobytes(), filter_mask=2)

    with new("h5_userblock.h5", userblock_size=512) as f:
        f["w"] = values((2, 3), 650)
        f.create_dataset("chunked", data=ragged, chunks=(4, 16), compression="gzip")
    with open(out / "h5_userblock.h5", "r+b") as raw:
        raw.write(b"anything may stand in the user block")
    with new("h5_latest.h5", "latest") as f:
        model = f.create_group("model")  # a group made on the way to a data set records a time
        layer = model.create_group("layer.0")
        layer["weight"] = values((4, 6), 660)
        layer["bias"] = values(4, 661).astype(np.float16)
        model.create_dataset("gz", data=ragged, chunks=(4, 16), compression="gzip", shuffle=True)


# ---------------------------------------------------------------------------------------------------------------------
# GGUF


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="output folder; files of the same name are replaced")
    out = parser.parse_args().folder
    out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(out / "dumps", ignore_errors=True)
    warnings.filterwarnings("ignore")  # deprecations of quantised and sparse tensors, and of hooks that are not written
    for write in (torch_files, dump_trees, safetensors_files, npz_files, hdf5_files, gguf_files):
        write(out)
        print(write.__name__, "done")


if __name__ == "__main__":
    import make_files  # under its own name: see the top of the file

    make_files.main()
