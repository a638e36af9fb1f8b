"""Writes malicious/: small pickles and zip archives that a reader has to survive.

    python3 make_malicious.py FOLDER

Everything is assembled from opcodes and zip records; nothing here pickles an object, and nothing may ever unpickle these files.
malicious.json lists them: {file, what, must, opcode, also_ok}.
  must     "refuse": the reader gives an error;  "inert": it opens, runs nothing, and shows no tensor or only a named stub
  opcode   the pickle opcode that the error has to name, or null
  also_ok  the other answer where it would be as safe, or null
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import struct
import zipfile
import zlib
from pathlib import Path

# ---------------------------------------------------------------------------------------------------------------------
# Pickle opcodes

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

# ---------------------------------------------------------------------------------------------------------------------
# PyTorch archives


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


def member(name: str, mode: int = 0o600) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def archive(
    pickle: bytes,
    deflate: bool = False,
    extra: list[tuple[zipfile.ZipInfo, bytes]] | None = None,
    storages: dict[str, bytes] | None = None,
) -> bytes:
    """An archive as torch.save lays it out, without the padding."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED) as z:
        method = zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED
        z.writestr(member("archive/data.pkl"), pickle, compress_type=method)
        z.writestr(member("archive/byteorder"), b"little")
        for key, data in ({"0": bytes(16)} if storages is None else storages).items():
            z.writestr(member(f"archive/data/{key}"), data)
        z.writestr(member("archive/version"), b"3\n")
        for info, data in extra or []:
            z.writestr(info, data)
    return out.getvalue()


class Zip:
    """A zip writer that says what it is told: any field of a local or central header can be given."""

    def __init__(self) -> None:
        self.body = b""
        self.central: list[bytes] = []

    def add(
        self,
        name: str,
        data: bytes,
        *,
        method: int = 0,
        flags: int = 0,
        crc: int | None = None,
        packed: bytes | None = None,
        size: int | None = None,
        packed_size: int | None = None,
        extra: bytes = b"",
        offset: int | None = None,
        local: bool = True,
        mode: int = 0o600,
    ) -> int:
        """Returns where the local header is."""
        packed = data if packed is None else packed
        crc = zlib.crc32(data) if crc is None else crc
        size = len(data) if size is None else size
        packed_size = len(packed) if packed_size is None else packed_size
        at = len(self.body) if offset is None else offset
        raw = name.encode()
        common = struct.pack("<HHHHIII", flags, method, 0, 0x21, crc, packed_size, size) + struct.pack(
            "<HH", len(raw), len(extra)
        )
        if local:
            self.body += b"PK\3\4" + struct.pack("<H", 45) + common + raw + extra + packed
        self.central.append(
            b"PK\1\2" + struct.pack("<HH", 45, 45) + common + struct.pack("<HHHII", 0, 0, 0, mode << 16, at) + raw + extra
        )
        return at

    def finish(
        self, *, count: int | None = None, start: int | None = None, length: int | None = None, before_end: bytes = b""
    ) -> bytes:
        directory = b"".join(self.central)
        count = len(self.central) if count is None else count
        start = len(self.body) if start is None else start
        length = len(directory) if length is None else length
        return self.body + directory + before_end + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, count, count, length, start, 0)


def rest(z: Zip) -> Zip:
    z.add("archive/data/0", bytes(16))
    z.add("archive/version", b"3\n")
    return z


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def npy(shape: str, data: bytes) -> bytes:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


# ---------------------------------------------------------------------------------------------------------------------


class Cases:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.list: list[dict[str, str | None]] = []

    def put(self, file: str, data: bytes, what: str, must: str, opcode: str | None = None, also_ok: str | None = None) -> None:
        assert must in ("refuse", "inert") and also_ok in (None, "refuse", "inert")
        (self.folder / file).write_bytes(data)
        self.list.append({"file": file, "what": what, "must": must, "opcode": opcode, "also_ok": also_ok})

    def pt(self, name: str, pickle: bytes, what: str, must: str, opcode: str | None = None, also_ok: str | None = None) -> None:
        self.put(f"{name}.pt", archive(pickle), what, must, opcode, also_ok)


def calls(c: Cases) -> None:
    system = global_("os", "system")
    protocol0 = b"(dp0\nVx\np1\ncposix\nsystem\np2\n(Vecho this must never run\np3\ntp4\nRp5\ns."
    stack_global = (
        b"\x80\x04\x95" + struct.pack("<Q", 42) + b"}\x94\x8c\x01x\x94\x8c\x05posix\x94\x8c\x06system\x94\x93\x94"
        b"\x8c\x08echo bad\x94\x85\x94R\x94s."
    )
    c.pt("os_system_p0", protocol0, "os.system by GLOBAL and REDUCE, protocol 0", "refuse", "GLOBAL")
    c.pt("os_system_p2", in_dict(call(system, COMMAND)), "os.system by GLOBAL and REDUCE, protocol 2", "refuse", "GLOBAL")
    c.pt("os_system_p4", stack_global, "os.system by STACK_GLOBAL and REDUCE, protocol 4", "refuse", "STACK_GLOBAL")
    c.put("os_system_bare_p0.pkl", protocol0, "the same as a bare pickle", "refuse")
    c.put("os_system_bare_p2.pt", in_dict(call(system, COMMAND)), "the same as a bare pickle named .pt", "refuse", "GLOBAL")
    for module, name, code in (
        ("builtins", "eval", "1/0"),
        ("__builtin__", "eval", "1/0"),
        ("builtins", "exec", "raise SystemExit"),
        ("builtins", "__import__", "this"),
        ("builtins", "open", "never_made"),
        ("runpy", "run_path", "never_run.py"),
        ("importlib", "import_module", "this"),
        ("torch.serialization", "load", "other.pt"),
        ("torch", "load", "other.pt"),
        ("torch.hub", "load", "never/asked"),
        ("pickle", "loads", "."),
    ):
        c.pt(
            f"{module.strip('_')}_{name.strip('_')}".replace(".", "_") + ("_py2" if module[0] == "_" else ""),
            in_dict(call(global_(module, name), text(code))),
            f"{module}.{name} called",
            "refuse",
            "GLOBAL",
        )
    c.pt(
        "getattr_chain",
        in_dict(
            call(
                call(global_("builtins", "getattr"), call(global_("builtins", "__import__"), text("os")), text("system")),
                COMMAND,
            )
        ),
        "getattr(__import__('os'), 'system') called",
        "refuse",
        "GLOBAL",
    )
    c.pt(
        "dotted_global",
        in_dict(call(global_("torch", "serialization.os.system"), COMMAND)),
        "a GLOBAL with a dotted path into os",
        "refuse",
        "GLOBAL",
    )
    c.pt(
        "newobj_popen",
        in_dict(global_("subprocess", "Popen") + tuple_(COMMAND) + NEWOBJ),
        "subprocess.Popen by NEWOBJ",
        "refuse",
        "GLOBAL",
    )
    c.pt(
        "newobj_ex_popen",
        b"\x80\x04"
        + EMPTY_DICT
        + text("x")
        + global_("subprocess", "Popen")
        + tuple_(COMMAND)
        + EMPTY_DICT
        + b"\x92"
        + SETITEM
        + STOP,
        "subprocess.Popen by NEWOBJ_EX",
        "refuse",
        "GLOBAL",
    )
    c.pt(
        "obj_popen",
        in_dict(MARK + global_("subprocess", "Popen") + COMMAND + b"o"),
        "subprocess.Popen by OBJ",
        "refuse",
        "GLOBAL",
    )
    c.pt("inst_popen", in_dict(MARK + COMMAND + b"isubprocess\nPopen\n"), "subprocess.Popen by INST", "refuse", "INST")
    c.pt(
        "build_setstate",
        in_dict(
            global_("os", "system")
            + EMPTY_TUPLE
            + NEWOBJ
            + EMPTY_DICT
            + text("__setstate__")
            + global_("os", "system")
            + SETITEM
            + BUILD
            + COMMAND
            + BUILD
        ),
        "BUILD that plants __setstate__, then BUILD with a command",
        "refuse",
        "GLOBAL",
    )
    c.pt("reduce_on_int", in_dict(number(7) + tuple_(COMMAND) + REDUCE), "REDUCE of an integer", "refuse", "REDUCE")
    c.pt(
        "reduce_args_not_tuple",
        in_dict(global_("a", "b") + COMMAND + REDUCE),
        "REDUCE with text for arguments",
        "refuse",
        "REDUCE",
    )
    for code, raw in (("EXT1", b"\x82\x01"), ("EXT2", b"\x83\x01\x01"), ("EXT4", b"\x84\x01\x00\x00\x7f")):
        c.pt(code.lower(), in_dict(raw), f"{code}: an entry of the extension registry", "refuse", code)
    c.pt("persid_text", in_dict(b"Pstorage\n"), "PERSID with text of a line", "refuse", "PERSID")
    c.pt(
        "next_buffer",
        b"\x80\x05" + EMPTY_DICT + text("x") + b"\x97" + SETITEM + STOP,
        "NEXT_BUFFER without buffers",
        "refuse",
        "NEXT_BUFFER",
    )
    c.pt(
        "readonly_buffer",
        b"\x80\x05" + EMPTY_DICT + text("x") + b"\x97\x98" + SETITEM + STOP,
        "READONLY_BUFFER without buffers",
        "refuse",
        "NEXT_BUFFER",
    )


def tensors(c: Cases) -> None:
    def bad(name: str, value: bytes, what: str, opcode: str = "REDUCE") -> None:
        c.pt(name, in_dict(value), what, "refuse", opcode)

    bad("rebuild_no_args", call(REBUILD), "_rebuild_tensor_v2 without arguments")
    bad("rebuild_three_args", call(REBUILD, storage(), number(0), numbers((2, 2))), "_rebuild_tensor_v2 with 3 arguments")
    bad("rebuild_twenty_args", call(REBUILD, *([storage()] + [number(0)] * 19)), "_rebuild_tensor_v2 with 20 arguments")
    bad("rebuild_storage_is_text", tensor(store=text("storage")), "text in the place of the storage")
    bad("rebuild_storage_is_none", tensor(store=NONE), "None in the place of the storage")
    bad("rebuild_storage_is_stub", tensor(store=call(global_("a", "b"), COMMAND)), "a call in the place of the storage")
    bad("rebuild_size_is_text", tensor(size=text("22")), "text for the size")
    bad("rebuild_size_of_text", tensor(size=tuple_(text("2"), text("2"))), "a size of texts")
    bad("rebuild_size_float", tensor(size=tuple_(b"G" + struct.pack(">d", 2.0), number(2))), "a size of floats")
    bad("rebuild_size_negative", tensor(size=numbers((-2, 2))), "a negative size")
    bad(
        "rebuild_size_huge",
        tensor(size=numbers((2**62, 2**62)), stride=numbers((0, 0))),
        "a size whose product overflows, stride 0",
    )
    bad("rebuild_size_2e64", tensor(size=numbers((2**64 + 2, 2))), "a size over 64 bits")
    bad(
        "rebuild_expand_huge",
        tensor(size=numbers((2**40,)), stride=numbers((0,))),
        "one element expanded to 2^40: 4 TB if it were copied",
    )
    bad("rebuild_stride_none", tensor(stride=NONE), "None for the stride")
    bad("rebuild_stride_short", tensor(stride=numbers((1,))), "fewer strides than sizes")
    bad("rebuild_stride_negative", tensor(stride=numbers((-2, 1))), "a negative stride")
    bad("rebuild_stride_overflow", tensor(stride=numbers((2**62, 2**62))), "strides that overflow")
    bad(
        "rebuild_stride_wraps",
        tensor(size=numbers((3, 2)), stride=numbers((2**63 - 1, 1))),
        "strides whose span wraps around to a small number",
    )
    bad("rebuild_offset_negative", tensor(offset=number(-1)), "a negative offset")
    bad("rebuild_offset_beyond", tensor(offset=number(1)), "one element beyond the storage")
    bad("rebuild_offset_huge", tensor(offset=number(2**62)), "offset 2^62: its bytes wrap to zero")
    bad("rebuild_offset_text", tensor(offset=text("0")), "text for the offset")
    bad(
        "rebuild_v3_no_dtype",
        call(
            global_("torch._utils", "_rebuild_tensor_v3"),
            storage(kind=global_("torch.storage", "UntypedStorage"), count=number(16)),
            number(0),
            numbers((2, 2)),
            numbers((2, 1)),
            FALSE,
            HOOKS,
            text("float32"),
        ),
        "_rebuild_tensor_v3 with text for the dtype",
    )
    bad(
        "rebuild_v3_odd_dtype",
        call(
            global_("torch._utils", "_rebuild_tensor_v3"),
            storage(kind=global_("torch.storage", "UntypedStorage"), count=number(16)),
            number(0),
            numbers((2, 2)),
            numbers((2, 1)),
            FALSE,
            HOOKS,
            global_("torch", "float7"),
        ),
        "_rebuild_tensor_v3 with a dtype that does not exist",
    )
    bad(
        "rebuild_parameter_of_text",
        call(global_("torch._utils", "_rebuild_parameter"), text("data"), TRUE, HOOKS),
        "_rebuild_parameter of text",
    )
    bad(
        "rebuild_sparse_short",
        call(global_("torch._utils", "_rebuild_sparse_tensor"), global_("torch", "sparse_coo"), tuple_(tensor())),
        "_rebuild_sparse_tensor with one part",
    )
    bad(
        "rebuild_qtensor_short",
        call(global_("torch._utils", "_rebuild_qtensor"), storage(kind=global_("torch", "QInt8Storage")), number(0)),
        "_rebuild_qtensor with 2 arguments",
    )
    bad(
        "rebuild_from_type_self",
        global_("torch._tensor", "_rebuild_from_type_v2") + EMPTY_TUPLE + REDUCE,
        "_rebuild_from_type_v2 without arguments",
    )

    bad("storage_key_up", tensor(storage(key=text("../version"))), "storage key ../version", "BINPERSID")
    bad("storage_key_up_far", tensor(storage(key=text("../../../../etc/hostname"))), "storage key out of the archive", "BINPERSID")
    bad("storage_key_absolute", tensor(storage(key=text("/etc/hostname"))), "absolute storage key", "BINPERSID")
    bad("storage_key_missing", tensor(storage(key=text("7"))), "storage key without a member", "BINPERSID")
    bad("storage_key_empty", tensor(storage(key=text(""))), "empty storage key", "BINPERSID")
    bad("storage_key_nul", tensor(storage(key=text("0\0"))), "storage key with NUL", "BINPERSID")
    bad("storage_key_number", tensor(storage(key=number(0))), "storage key that is a number", "BINPERSID")
    bad("storage_size_2e62", tensor(storage(count=number(2**62))), "storage of 2^62 elements: its bytes wrap to zero", "BINPERSID")
    bad("storage_size_negative", tensor(storage(count=number(-4))), "storage of -4 elements", "BINPERSID")
    bad(
        "storage_size_more",
        tensor(storage(count=number(8)), size=numbers((2, 4)), stride=numbers((4, 1))),
        "storage that claims more than its member has",
        "BINPERSID",
    )
    bad("storage_size_text", tensor(storage(count=text("4"))), "text for the number of elements", "BINPERSID")
    bad("storage_class_unknown", tensor(storage(kind=global_("torch", "NoSuchStorage"))), "a storage class that does not exist", "BINPERSID")
    bad("storage_class_os", tensor(storage(kind=global_("os", "system"))), "os.system as storage class", "GLOBAL")
    bad("storage_tag", tensor(storage(tag=text("module"))), "persistent id that is not a storage", "REDUCE")
    bad(
        "storage_tuple_short",
        tensor(tuple_(text("storage"), global_("torch", "FloatStorage")) + BINPERSID),
        "persistent id of two entries",
        "BINPERSID",
    )
    bad("storage_tuple_empty", tensor(EMPTY_TUPLE + BINPERSID), "empty persistent id", "BINPERSID")
    bad("storage_not_tuple", tensor(text("0") + BINPERSID), "persistent id that is text", "BINPERSID")
    bad(
        "storage_two_dtypes_sizes",
        EMPTY_LIST + tensor() + APPEND + tensor(storage(kind=global_("torch", "DoubleStorage"), count=number(4))) + APPEND,
        "one storage key with 4 floats, then with 4 doubles",
        "BINPERSID",
    )


def streams(c: Cases) -> None:
    def broken(name: str, pickle: bytes, what: str, opcode: str | None, also_ok: str | None = None) -> None:
        c.pt(name, pickle, what, "refuse", opcode, also_ok)

    def big(name: str, pickle: bytes, what: str, must: str, opcode: str | None = None) -> None:
        c.put(f"{name}.pt", archive(pickle, deflate=True), what, must, opcode)

    def doubling(leaf: bytes) -> bytes:
        # Memo i holds a list of memo i - 1 twice: 2^40 ways to the leaf by 40 lists. POP, as the memo alone keeps each.
        out = PROTO2 + EMPTY_DICT + text("x") + leaf + b"q\x000"
        for i in range(40):
            out += EMPTY_LIST + b"q" + bytes([i + 1]) + (b"h" + bytes([i]) + APPEND) * 2 + b"0"
        return out + b"h" + bytes([40]) + SETITEM + STOP

    c.pt("memo_bomb", doubling(EMPTY_LIST), "2^40 references by lists of two references; no tensor", "refuse", "EMPTY_LIST")
    c.pt("memo_bomb_tensor", doubling(tensor()), "2^40 names for one tensor", "refuse", "REDUCE")
    laughs = PROTO2 + EMPTY_DICT + text("x") + text("ha") + b"q\x000"
    for i in range(20):
        laughs += MARK + (b"h" + bytes([i])) * 10 + TUPLE + b"q" + bytes([i + 1]) + b"0"
    c.pt(
        "billion_laughs",
        laughs + b"h\x14" + SETITEM + STOP,
        "tuples of ten references, 20 deep; no tensor",
        "refuse",
        "TUPLE",
    )
    depth = 100_000
    big("deep_lists", PROTO2 + EMPTY_LIST * depth + APPEND * (depth - 1) + STOP, "lists 100000 deep", "refuse", "EMPTY_LIST")
    big("deep_tuples", PROTO2 + NONE + TUPLE1 * depth + STOP, "tuples 100000 deep", "refuse", "TUPLE1")
    big("deep_marks", PROTO2 + MARK * depth + TUPLE * depth + STOP, "100000 MARKs, then TUPLEs", "refuse", "TUPLE")
    big("open_marks", PROTO2 + NONE + MARK * depth + STOP, "100000 MARKs that are never used", "refuse", "STOP")
    big(
        "deep_reduce",
        PROTO2 + global_("a", "b") + (EMPTY_TUPLE + REDUCE) * depth + STOP,
        "a call of a call, 100000 deep",
        "refuse",
        "REDUCE",
    )
    big(
        "long_text_number",
        PROTO2 + EMPTY_DICT + text("x") + b"L" + b"9" * 100_000 + b"L\n" + SETITEM + STOP,
        "LONG of 100000 decimal digits",
        "inert",
    )

    for name, raw, opcode in (
        ("long4_2e31", b"\x8b" + struct.pack("<i", 2**31 - 1) + b"\1", "LONG4"),
        ("long4_negative", b"\x8b" + struct.pack("<i", -1) + b"\1", "LONG4"),
        ("long1_short", b"\x8a\xff\1", "LONG1"),
        ("binunicode_4g", b"X" + struct.pack("<I", 2**32 - 1) + b"a", "BINUNICODE"),
        ("binunicode8_2e63", b"\x8d" + struct.pack("<Q", 2**63) + b"a", "BINUNICODE8"),
        ("binbytes_4g", b"B" + struct.pack("<I", 2**32 - 1) + b"a", "BINBYTES"),
        ("binbytes8_2e64", b"\x8e" + struct.pack("<Q", 2**64 - 1) + b"a", "BINBYTES8"),
        ("bytearray8_huge", b"\x96" + struct.pack("<Q", 2**62) + b"a", "BYTEARRAY8"),
        ("binstring_negative", b"T" + struct.pack("<i", -2) + b"ab", "BINSTRING"),
        ("short_binstring_end", b"U\xff" + b"a", "SHORT_BINSTRING"),
    ):
        broken(
            name,
            b"\x80\x05" + EMPTY_DICT + text("x") + raw + SETITEM + STOP,
            f"{opcode} with a length beyond the stream",
            opcode,
        )
    broken("frame_huge", b"\x80\x04\x95" + struct.pack("<Q", 2**63) + EMPTY_DICT + STOP, "FRAME of 2^63 bytes", "FRAME")
    broken(
        "frame_over_end",
        b"\x80\x04\x95" + struct.pack("<Q", 100) + EMPTY_DICT + STOP,
        "FRAME longer than the stream",
        "FRAME",
    )
    broken(
        "frame_in_frame",
        b"\x80\x04\x95" + struct.pack("<Q", 11) + b"\x95" + struct.pack("<Q", 2) + EMPTY_DICT + STOP,
        "a FRAME inside a FRAME",
        "FRAME",
        "inert",
    )
    broken(
        "long_binput_2e32",
        in_dict(number(1) + b"r" + struct.pack("<I", 2**32 - 1)),
        "LONG_BINPUT with index 2^32 - 1",
        "LONG_BINPUT",
    )
    broken("put_huge", in_dict(number(1) + b"p99999999999999999999\n"), "PUT with an index over 64 bits", "PUT")
    broken("put_negative", in_dict(number(1) + b"p-1\n"), "PUT with index -1", "PUT")
    broken("get_missing", in_dict(b"g5\n"), "GET of an index that was never put", "GET")
    broken("binget_missing", in_dict(b"h\x05"), "BINGET of an index that was never put", "BINGET")
    broken(
        "long_binget_missing",
        in_dict(b"j" + struct.pack("<I", 2**32 - 1)),
        "LONG_BINGET of an index that was never put",
        "LONG_BINGET",
    )
    broken("memoize_empty", b"\x80\x04\x94" + STOP, "MEMOIZE of an empty stack", "MEMOIZE")
    broken("no_stop", in_dict(number(1))[:-1], "no STOP", None)
    broken("stop_empty", PROTO2 + STOP, "STOP with an empty stack", "STOP")
    broken("empty_pickle", b"", "data.pkl of zero bytes", None)
    broken("unknown_opcode", in_dict(b"\xff"), "opcode 0xff", "0xff")
    broken("proto_6", b"\x80\x06" + EMPTY_DICT + STOP, "protocol 6", "PROTO")
    broken("tuple_without_mark", in_dict(TUPLE), "TUPLE without MARK", "TUPLE")
    broken("appends_without_mark", PROTO2 + EMPTY_LIST + b"e" + STOP, "APPENDS without MARK", "APPENDS")
    broken("pop_empty", PROTO2 + b"0" + EMPTY_DICT + STOP, "POP of an empty stack", "POP")
    broken("dup_empty", PROTO2 + b"2" + STOP, "DUP of an empty stack", "DUP")
    broken("setitem_on_number", PROTO2 + number(1) + text("k") + NONE + SETITEM + STOP, "SETITEM on a number", "SETITEM")
    broken("setitems_odd", PROTO2 + EMPTY_DICT + MARK + text("k") + b"u" + STOP, "SETITEMS with a key and no value", "SETITEMS")
    broken("append_on_dict", PROTO2 + EMPTY_DICT + NONE + APPEND + STOP, "APPEND on a dict", "APPEND")
    broken("additems_on_list", b"\x80\x04" + EMPTY_LIST + MARK + NONE + b"\x90" + STOP, "ADDITEMS on a list", "ADDITEMS")
    broken("underflow_tuple3", PROTO2 + NONE + TUPLE3 + STOP, "TUPLE3 with one item", "TUPLE3")
    broken(
        "setitem_through_mark",
        PROTO2 + EMPTY_DICT + text("k") + MARK + NONE + SETITEM + STOP,
        "SETITEM reaching below a MARK",
        "SETITEM",
    )
    broken("global_no_newline", PROTO2 + b"cos", "GLOBAL that ends with the stream", "GLOBAL")
    broken(
        "stack_global_numbers", b"\x80\x04" + number(1) + number(2) + b"\x93" + STOP, "STACK_GLOBAL of numbers", "STACK_GLOBAL"
    )
    broken("int_not_a_number", in_dict(b"Iabc\n"), "INT with letters", "INT")
    broken("float_not_a_number", in_dict(b"Fabc\n"), "FLOAT with letters", "FLOAT")
    broken(
        "unicode_not_utf8",
        in_dict(number(1), "k").replace(text("k"), b"X\1\0\0\0\xff"),
        "a key that is not UTF-8",
        "BINUNICODE",
        "inert",
    )
    c.pt(
        "list_in_itself",
        PROTO2 + EMPTY_LIST + b"q\x00" + b"h\x00" + APPEND + STOP,
        "a list that holds itself",
        "inert",
        None,
        "refuse",
    )
    c.pt(
        "dict_in_itself",
        PROTO2 + EMPTY_DICT + b"q\x00" + text("x") + b"h\x00" + SETITEM + STOP,
        "a dict that holds itself",
        "inert",
        None,
        "refuse",
    )
    c.pt(
        "build_cycle",
        PROTO2
        + global_("a", "B")
        + EMPTY_TUPLE
        + NEWOBJ
        + b"q\x00"
        + EMPTY_DICT
        + b"q\x01"
        + text("me")
        + b"h\x00"
        + SETITEM
        + text("state")
        + b"h\x01"
        + SETITEM
        + BUILD
        + STOP,
        "BUILD of a stub whose state holds itself and the stub",
        "inert",
        None,
        "refuse",
    )
    c.pt("text_with_nul", in_dict(number(1), "a\0b"), "a key with NUL", "inert", None, "refuse")
    c.pt(
        "text_with_escape",
        in_dict(number(1), "\x1b]0;title\x07\x1b[2J<script>alert(1)</script>"),
        "a key with terminal and HTML escapes",
        "inert",
    )


def legacy(c: Cases) -> None:
    magic = PROTO2 + number(0x1950A86A20F9469CFC6C) + STOP
    version = PROTO2 + number(1001) + STOP
    info = PROTO2 + EMPTY_DICT + text("little_endian") + TRUE + SETITEM + STOP
    body = (
        PROTO2
        + call(
            REBUILD,
            tuple_(text("storage"), global_("torch", "FloatStorage"), text("k"), text("cpu"), number(4), NONE) + BINPERSID,
            number(0),
            numbers((2, 2)),
            numbers((2, 1)),
            FALSE,
            HOOKS,
        )
        + STOP
    )
    keys = PROTO2 + EMPTY_LIST + text("k") + APPEND + STOP
    data = struct.pack("<q", 4) + bytes(16)

    def bad(name: str, stream: bytes, what: str) -> None:
        c.put(f"legacy_{name}.pt", stream, what, "refuse")

    bad("version", magic + PROTO2 + number(1002) + STOP + info + body + keys + data, "legacy file of version 1002")
    bad(
        "magic",
        PROTO2 + number(0x1950A86A20F9469CFC6D) + STOP + version + info + body + keys + data,
        "legacy file with a wrong magic number",
    )
    bad("only_magic", magic, "legacy file that ends after the magic number")
    bad(
        "size_2e62",
        magic + version + info + body + keys + struct.pack("<q", 2**62) + bytes(16),
        "legacy storage of 2^62 elements",
    )
    bad(
        "size_negative",
        magic + version + info + body + keys + struct.pack("<q", -1) + bytes(16),
        "legacy storage of -1 elements",
    )
    bad(
        "size_differs",
        magic + version + info + body + keys + struct.pack("<q", 2) + bytes(8),
        "legacy storage shorter than its persistent id says",
    )
    bad("data_short", magic + version + info + body + keys + data[:-1], "legacy storage that ends one byte early")
    bad(
        "key_missing", magic + version + info + body + PROTO2 + EMPTY_LIST + STOP, "legacy file whose list of storages is empty"
    )
    bad(
        "keys_not_list",
        magic + version + info + body + PROTO2 + number(1) + STOP + data,
        "legacy file whose list of storages is a number",
    )
    c.put(
        "legacy_os_system.pt",
        magic + version + info + in_dict(call(global_("os", "system"), COMMAND)) + PROTO2 + EMPTY_LIST + STOP,
        "legacy file that calls os.system",
        "refuse",
        "GLOBAL",
    )


def zips(c: Cases) -> None:
    plain = in_dict(number(1))

    def put(name: str, data: bytes, what: str, must: str = "refuse", also_ok: str | None = None) -> None:
        c.put(name, data, what, must, None, also_ok)

    def changed(name: str, what: str, must: str = "refuse", also_ok: str | None = None, **fields: object) -> None:
        z = Zip()
        z.add("archive/data.pkl", plain, **fields)  # type: ignore[arg-type]
        put(name, rest(z).finish(), what, must, also_ok)

    changed("zip_pickle_claims_less.pt", "data.pkl whose headers claim 5 bytes of more", size=5, packed_size=5)
    changed("zip_pickle_claims_more.pt", "data.pkl whose headers claim 2^31 bytes", size=2**31, packed_size=2**31)
    changed("zip_pickle_sizes_differ.pt", "stored data.pkl with two different sizes", size=len(plain) + 9)
    changed("zip_encrypted.pt", "data.pkl with the encrypted flag", flags=1)
    changed("zip_strong_encryption.pt", "data.pkl with the flags of strong encryption", flags=0x41)
    changed("zip_method.pt", "data.pkl with compression method 99", method=99)
    changed("zip_crc.pt", "data.pkl with a wrong CRC", crc=1, also_ok="inert")
    changed(
        "zip_deflate_garbage.pt", "data.pkl deflated, but the stream is not", method=8, packed=b"\xff" * 20, size=len(plain)
    )
    packed = deflated(plain)
    changed("zip_deflate_short.pt", "deflate stream cut off", method=8, packed=packed[:-3])
    changed(
        "zip_deflate_claims_less.pt",
        "deflate stream of 1 MB whose headers claim 30 bytes",
        method=8,
        packed=deflated(bytes(10**6)),
        size=30,
    )
    changed(
        "zip_deflate_claims_more.pt",
        "deflate stream of some bytes whose headers claim 2^31",
        method=8,
        packed=packed,
        size=2**31,
    )
    changed(
        "zip64_sizes.pt",
        "zip64 field that claims 2^63 bytes",
        extra=struct.pack("<HHQQ", 1, 16, 2**63, 2**63),
        size=2**32 - 1,
        packed_size=2**32 - 1,
    )
    changed("zip64_missing.pt", "sizes of 2^32 - 1 without a zip64 field", size=2**32 - 1, packed_size=2**32 - 1)
    changed(
        "zip64_short.pt", "zip64 field of 4 bytes", extra=struct.pack("<HHI", 1, 4, 5), size=2**32 - 1, packed_size=2**32 - 1
    )
    changed(
        "zip_extra_overrun.pt",
        "extra field longer than its header says",
        extra=struct.pack("<HH", 0x7777, 60000),
        also_ok="inert",
    )
    changed("zip_offset_beyond.pt", "local header beyond the file", offset=2**31)
    changed("zip_offset_in_data.pt", "local header that is not one", offset=7)

    for name, inner in (
        ("zip_name_up", "../../never_made"),
        ("zip_name_absolute", "/never_made"),
        ("zip_name_backslash", "..\\never_made"),
        ("zip_name_drive", "C:\\never_made"),
        ("zip_name_root_up", "archive/../../never_made"),
    ):
        put(f"{name}.pt", archive(plain, extra=[(member(inner), b"x")]), f"another member named {inner}", "inert", "refuse")
    put(
        "zip_symlink.pt",
        archive(plain, extra=[(member("archive/data/9", 0o120777), b"/etc/hostname")]),
        "another member that is a symbolic link",
        "inert",
        "refuse",
    )
    put(
        "zip_symlink_storage.pt",
        archive(
            in_dict(
                tensor(
                    storage(kind=global_("torch", "ByteStorage"), count=number(13)), size=numbers((13,)), stride=numbers((1,))
                )
            ),
            storages={},
            extra=[(member("archive/data/0", 0o120777), b"/etc/hostname")],
        ),
        "a storage that is a symbolic link",
    )
    z = Zip()
    z.add("archive/data.pkl", in_dict(tensor()))
    z.add("archive/data/0", bytes(16))
    put("zip_duplicate_storage.pt", rest(z).finish(), "archive/data/0 twice")
    z = Zip()
    z.add("archive/data.pkl", plain)
    z.add("archive/data.pkl", in_dict(call(global_("os", "system"), COMMAND)))
    put("zip_duplicate_pickle.pt", rest(z).finish(), "archive/data.pkl twice, with different bytes")
    z = Zip()
    z.add("archive/data.pkl", plain)
    at = z.add("archive/data/0", bytes(16))
    z.add("archive/data/1", bytes(16), offset=at, local=False)
    put("zip_overlap_same.pt", z.finish(), "two members with one local header", also_ok="inert")
    z = Zip()
    z.add("archive/data.pkl", plain)
    inner = Zip()
    inner.add("archive/data/1", bytes(16))
    at = len(z.body) + 30 + len("archive/data/0")
    z.add("archive/data/0", inner.body)
    z.add("archive/data/1", bytes(16), offset=at, local=False)
    put("zip_overlap_inside.pt", z.finish(), "a member inside the data of another", also_ok="inert")
    z = Zip()
    z.add("archive/data.pkl", plain)
    z.central[0] = z.central[0].replace(b"archive/data.pkl", b"archive/data.pkL")
    put("zip_names_differ.pt", rest(z).finish(), "central and local header with different names")
    z = Zip()
    z.add("one/data.pkl", plain)
    z.add("two/data.pkl", plain)
    put("zip_two_roots.pt", z.finish(), "two roots with a data.pkl each")
    put("zip_no_pickle.pt", rest(Zip()).finish(), "no data.pkl")
    z = Zip()
    z.add("archive/data.pkl", plain)
    z.add("archive/byteorder", b"middle")
    put("zip_byteorder.pt", rest(z).finish(), "byteorder says middle")
    z = Zip()
    z.add("archive/data.pkl", plain)
    good = rest(z)
    put("zip_count_more.pt", good.finish(count=60000), "end record that claims 60000 members")
    put("zip_count_less.pt", good.finish(count=1), "end record that claims one member of three", also_ok="inert")
    put("zip_directory_beyond.pt", good.finish(start=2**31), "central directory beyond the file")
    put("zip_directory_length.pt", good.finish(length=2**31), "central directory longer than the file")
    directory = b"".join(good.central)
    end64 = struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 2**60, 2**60, len(directory), len(good.body))
    at = len(good.body) + len(directory)
    locator = b"PK\6\7" + struct.pack("<IQI", 0, at, 1)
    put(
        "zip64_count.pt",
        good.finish(count=0xFFFF, start=0xFFFFFFFF, length=0xFFFFFFFF, before_end=b"PK\6\6" + end64 + locator),
        "zip64 end record that claims 2^60 members",
    )
    put(
        "zip64_locator.pt",
        good.finish(count=0xFFFF, start=0xFFFFFFFF, length=0xFFFFFFFF, before_end=b"PK\6\7" + struct.pack("<IQI", 0, 2**62, 1)),
        "zip64 locator that points beyond the file",
    )
    put("zip_no_end.pt", good.finish()[:-22], "no end record")
    put("zip_only_end.pt", Zip().finish(), "an archive without members, which numpy takes for an empty npz", also_ok="inert")
    put(
        "zip_comment_end.pt",
        good.finish()[:-2] + struct.pack("<H", 22) + Zip().finish(),
        "a second end record in the comment",
        also_ok="inert",
    )

    for name, shape, what in (
        ("npz_bomb_less", "(10,)", "10 MB of zeros deflated; the npy header claims 10 elements"),
        ("npz_bomb_more", f"({2**40},)", "10 MB of zeros deflated; the npy header claims 2^40 elements"),
        ("npz_bomb_overflow", f"({2**32}, {2**32})", "10 MB of zeros deflated; the npy header claims 2^64 elements"),
    ):
        z, content = Zip(), npy(shape, bytes(10**7))
        z.add("w.npy", content, method=8, packed=deflated(content))
        put(f"{name}.npz", z.finish(), what)
    z, content = Zip(), npy("(4,)", bytes(10**7))
    z.add("w.npy", content, method=8, packed=deflated(content), size=len(npy("(4,)", bytes(16))))
    put("npz_bomb_size_lies.npz", z.finish(), "10 MB of zeros deflated; zip and npy headers claim 16 bytes of data")
    objects = npy("(1,)", b"").replace(b"'<f4'", b"'|O' ") + in_dict(call(global_("os", "system"), COMMAND))
    z = Zip()
    z.add("w.npy", objects)
    put("npz_objects.npz", z.finish(), "an object array whose pickle calls os.system")
    for name, header in (
        ("negative", "(-4,)"),
        ("float", "(4.0,)"),
        ("expression", "(2**2,)"),
        ("call", "(__import__('os'),)"),
        ("nested", "(" * 500 + ")" * 500),
    ):
        z = Zip()
        z.add("w.npy", npy(header, bytes(16)))
        put(
            f"npz_shape_{name}.npz",
            z.finish(),
            f"npy header with the shape {header if len(header) < 40 else '500 parentheses deep'}",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder `malicious` in it is replaced")
    folder = parser.parse_args().folder / "malicious"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cases = Cases(folder)
    for make in (calls, tensors, streams, legacy, zips):
        make(cases)
    assert len({c["file"] for c in cases.list}) == len(cases.list)
    rows = ",\n".join(json.dumps(c) for c in cases.list)
    (folder / "malicious.json").write_text(f"[\n{rows}\n]\n", encoding="utf-8")
    print(len(cases.list), "files")


if __name__ == "__main__":
    main()
