"""Zip archives, of PyTorch and numpy, that are broken or lie."""

from __future__ import annotations

import struct

from malicious_list import Cases
from malicious_pickles import (
    COMMAND,
    call,
    global_,
    in_dict,
    number,
    numbers,
    storage,
    tensor,
)
from malicious_zips import Zip, archive, deflated, member, npy, rest


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
