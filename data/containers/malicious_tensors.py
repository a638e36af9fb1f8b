"""Tensors whose storage, sizes, strides or offset are not what they have to be."""

from __future__ import annotations

import struct

from malicious_list import Cases
from malicious_pickles import (
    APPEND,
    BINPERSID,
    COMMAND,
    EMPTY_LIST,
    EMPTY_TUPLE,
    FALSE,
    HOOKS,
    NONE,
    REBUILD,
    REDUCE,
    TRUE,
    call,
    global_,
    in_dict,
    number,
    numbers,
    storage,
    tensor,
    text,
    tuple_,
)


def tensors(c: Cases) -> None:
    def bad(name: str, value: bytes, what: str, opcode: str = "REDUCE") -> None:
        c.pt(name, in_dict(value), what, "refuse", opcode)

    def tensor_v3(dtype: bytes) -> bytes:
        untyped = storage(kind=global_("torch.storage", "UntypedStorage"), count=number(16))
        rebuild = global_("torch._utils", "_rebuild_tensor_v3")
        return call(rebuild, untyped, number(0), numbers((2, 2)), numbers((2, 1)), FALSE, HOOKS, dtype)

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
    bad("rebuild_v3_no_dtype", tensor_v3(text("float32")), "_rebuild_tensor_v3 with text for the dtype")
    bad(
        "rebuild_v3_odd_dtype",
        tensor_v3(global_("torch", "float7")),
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
    bad(
        "storage_key_up_far",
        tensor(storage(key=text("../../../../etc/hostname"))),
        "storage key out of the archive",
        "BINPERSID",
    )
    bad("storage_key_absolute", tensor(storage(key=text("/etc/hostname"))), "absolute storage key", "BINPERSID")
    bad("storage_key_missing", tensor(storage(key=text("7"))), "storage key without a member", "BINPERSID")
    bad("storage_key_empty", tensor(storage(key=text(""))), "empty storage key", "BINPERSID")
    bad("storage_key_nul", tensor(storage(key=text("0\0"))), "storage key with NUL", "BINPERSID")
    bad("storage_key_number", tensor(storage(key=number(0))), "storage key that is a number", "BINPERSID")
    bad(
        "storage_size_2e62",
        tensor(storage(count=number(2**62))),
        "storage of 2^62 elements: its bytes wrap to zero",
        "BINPERSID",
    )
    bad("storage_size_negative", tensor(storage(count=number(-4))), "storage of -4 elements", "BINPERSID")
    bad(
        "storage_size_more",
        tensor(storage(count=number(8)), size=numbers((2, 4)), stride=numbers((4, 1))),
        "storage that claims more than its member has",
        "BINPERSID",
    )
    bad("storage_size_text", tensor(storage(count=text("4"))), "text for the number of elements", "BINPERSID")
    bad(
        "storage_class_unknown",
        tensor(storage(kind=global_("torch", "NoSuchStorage"))),
        "a storage class that does not exist",
        "BINPERSID",
    )
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
