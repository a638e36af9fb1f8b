"""Files in the format of PyTorch before 1.6 that are not what they say."""

from __future__ import annotations

import struct

from malicious_list import Cases
from malicious_pickles import (
    APPEND,
    BINPERSID,
    COMMAND,
    EMPTY_DICT,
    EMPTY_LIST,
    FALSE,
    HOOKS,
    NONE,
    PROTO2,
    REBUILD,
    SETITEM,
    STOP,
    TRUE,
    call,
    global_,
    in_dict,
    number,
    numbers,
    text,
    tuple_,
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
