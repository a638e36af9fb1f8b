"""Writes small container files with the ecosystem's own writers.

    python3 make_files.py FOLDER

Every value comes from an integer hash or from arange, never from a random generator, whose stream may change
between versions. The same versions of the writers give the same bytes again (README.md lists them).

The classes whose instances are pickled live in this file, what writes each container in write_*.py. The module is imported
under its own name before it writes, so that the pickles name `make_files.Probe` and not `__main__.Probe`, and
make_expected.py can load them.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch

from torch_values import tensor

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="output folder; files of the same name are replaced")
    out = parser.parse_args().folder
    out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(out / "dumps", ignore_errors=True)
    warnings.filterwarnings("ignore")  # deprecations of quantised and sparse tensors, and of hooks that are not written
    # Here and not above: they import the classes of this file.
    from write_dumps import dump_trees
    from write_gguf import gguf_files
    from write_hdf5 import hdf5_files
    from write_npz import npz_files
    from write_safetensors import safetensors_files
    from write_torch import torch_files

    for write in (torch_files, dump_trees, safetensors_files, npz_files, hdf5_files, gguf_files):
        write(out)
        print(write.__name__, "done")


if __name__ == "__main__":
    import make_files  # under its own name: see the top of the file

    make_files.main()
