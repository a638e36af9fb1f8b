"""Pickles put together opcode by opcode, and the tensors of PyTorch in them. Nothing here pickles an object."""

from __future__ import annotations

import struct

STOP = b"."
EMPTY_DICT, EMPTY_LIST, EMPTY_TUPLE, MARK = b"}", b"]", b")", b"("
REDUCE, BUILD, NEWOBJ, BINPERSID, SETITEM, APPEND = b"R", b"b", b"\x81", b"Q", b"s", b"a"
TUPLE, TUPLE1, TUPLE2, TUPLE3 = b"t", b"\x85", b"\x86", b"\x87"
NONE, TRUE, FALSE = b"N", b"\x88", b"\x89"
PROTO2 = b"\x80\x02"


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value: int) -> bytes:
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def global_(module: str, name: str) -> bytes:
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def tuple_(*items: bytes) -> bytes:
    return MARK + b"".join(items) + TUPLE


def numbers(values: tuple[int, ...]) -> bytes:
    return tuple_(*(number(v) for v in values))


def call(function: bytes, *arguments: bytes) -> bytes:
    return function + tuple_(*arguments) + REDUCE


def in_dict(value: bytes, key: str = "x") -> bytes:
    """A whole protocol 2 pickle: {key: value}."""
    return PROTO2 + EMPTY_DICT + text(key) + value + SETITEM + STOP


COMMAND = text("echo this must never run")


def storage(
    key: bytes = text("0"),
    kind: bytes = global_("torch", "FloatStorage"),
    count: bytes = number(4),
    tag: bytes = text("storage"),
    location: bytes = text("cpu"),
) -> bytes:
    return tuple_(tag, kind, key, location, count) + BINPERSID


REBUILD = global_("torch._utils", "_rebuild_tensor_v2")
HOOKS = global_("collections", "OrderedDict") + EMPTY_TUPLE + REDUCE


def tensor(
    store: bytes | None = None, offset: bytes = number(0), size: bytes = numbers((2, 2)), stride: bytes = numbers((2, 1))
) -> bytes:
    return call(REBUILD, storage() if store is None else store, offset, size, stride, FALSE, HOOKS)
