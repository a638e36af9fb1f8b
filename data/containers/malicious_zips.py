"""Zip archives record by record, as torch.save lays them out or with fields that lie, and npy files."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib


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
