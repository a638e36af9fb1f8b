"""The list of the files of make_malicious.py, which writes each of them."""

from __future__ import annotations

from pathlib import Path

from malicious_zips import archive


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
