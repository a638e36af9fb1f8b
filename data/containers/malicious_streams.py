"""Pickle streams that are broken, deep or large, or that hold themselves."""

from __future__ import annotations

import struct

from malicious_list import Cases
from malicious_pickles import (
    APPEND,
    BUILD,
    EMPTY_DICT,
    EMPTY_LIST,
    EMPTY_TUPLE,
    MARK,
    NEWOBJ,
    NONE,
    PROTO2,
    REDUCE,
    SETITEM,
    STOP,
    TUPLE,
    TUPLE1,
    TUPLE3,
    global_,
    in_dict,
    number,
    tensor,
    text,
)
from malicious_zips import archive


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
