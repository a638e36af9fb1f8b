"""Pickles that call what must never run."""

from __future__ import annotations

import struct

from malicious_list import Cases
from malicious_pickles import (
    BUILD,
    COMMAND,
    EMPTY_DICT,
    EMPTY_TUPLE,
    MARK,
    NEWOBJ,
    REDUCE,
    SETITEM,
    STOP,
    call,
    global_,
    in_dict,
    number,
    text,
    tuple_,
)


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
