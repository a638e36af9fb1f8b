"""Writes the .pt files: the zip format of torch.save, and the legacy one of torch before 1.6."""

from __future__ import annotations

import types
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch

from make_files import Net, Probe, ReducedProbe, Sample, SlotProbe, TaggedTensor
from sample_values import values
from torch_contents import filled, nested, numpy_inside, odd_keys, shared, views
from torch_values import every_torch_dtype, from_bits, odd_torch_dtypes, tensor

# torch.<class>Storage of each dtype that has one
LEGACY_STORAGE = {"float64": "Double", "float32": "Float", "float16": "Half", "bfloat16": "BFloat16", "uint8": "Byte", "int8": "Char",
                  "int16": "Short", "int32": "Int", "int64": "Long", "bool": "Bool", "complex64": "ComplexFloat",
                  "complex128": "ComplexDouble"}  # fmt: skip


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
