"""Writes the h5_*.h5 files: layouts, indices of chunks, filters, types, links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import ml_dtypes
import numpy as np

from sample_values import SPECIAL_BF16, SPECIAL_F16, SPECIAL_F32, SPECIAL_F64, values


def custom_float(size: int, exponent: int, mantissa: int, bias: int, big_endian: bool = False) -> h5py.h5t.TypeFloatID:
    """A float type of HDF5 with these fields, from the top bit: sign, exponent, mantissa."""
    made = (h5py.h5t.IEEE_F64BE if big_endian else h5py.h5t.IEEE_F64LE).copy()
    made.set_fields(exponent + mantissa, mantissa, exponent, 0, mantissa)
    made.set_ebias(bias)
    made.set_precision(1 + exponent + mantissa)
    made.set_size(size)
    return made


def write_typed(file: h5py.File, name: str, stored: np.ndarray, kind: h5py.h5t.TypeID, shape: tuple[int, ...]) -> None:
    """Stores these bytes unconverted: memory type and file type are the same."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_obj_track_times(False)
    data = h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple(shape), plist)
    data.write(h5py.h5s.ALL, h5py.h5s.ALL, stored, mtype=kind)


def hdf5_files(out: Path) -> None:
    ragged = (np.arange(10)[:, None] * 33 + np.arange(33)).astype(np.float32)
    integers = (np.arange(10)[:, None] * 7 - np.arange(33)).astype(np.int32)

    def new(name: str, low: str = "earliest", **options: Any) -> h5py.File:
        # The default bound differs between versions of the library: name it. What 1.10 writes as the latest is what most readers
        # know; HDF5 2.0 has a layout of its own for filtered chunks, which older versions cannot read (h5_layout_5.h5).
        return h5py.File(out / name, "w", libver=("v110" if low == "latest" else low, "latest"), **options)

    with h5py.File(out / "h5_layout_5.h5", "w", libver="latest") as f:
        f.create_dataset("gzip", data=ragged, chunks=(4, 16), compression="gzip")
        f["contiguous"] = ragged

    with new("h5_filters.h5") as f:
        f["contiguous"] = ragged
        for name, options in {
            "chunked": {}, "gzip": {"compression": "gzip"},
            "shuffle_gzip": {"compression": "gzip", "shuffle": True},
            "fletcher32": {"fletcher32": True}, "lzf": {"compression": "lzf"},
            "szip_nn": {"compression": "szip", "compression_opts": ("nn", 16)},
        }.items():  # fmt: skip
            if name.startswith("szip") and not h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP):
                continue
            f.create_dataset(name, data=ragged, chunks=(4, 16), **options)
        f.create_dataset("scaleoffset_int", data=integers, chunks=(4, 16), scaleoffset=0)
        narrow = h5py.h5t.STD_I32LE.copy()
        narrow.set_precision(20)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4, 16))
        plist.set_filter(h5py.h5z.FILTER_NBIT, 0, ())
        plist.set_obj_track_times(False)
        data = h5py.h5d.create(f.id, b"nbit", narrow, h5py.h5s.create_simple((10, 33)), plist)
        data.write(h5py.h5s.ALL, h5py.h5s.ALL, integers)

    with new("h5_filters_latest.h5", "latest") as f:
        for name, options in {
            "gzip9": {"compression": "gzip", "compression_opts": 9},
            "shuffle_gzip_fletcher32": {"compression": "gzip", "shuffle": True, "fletcher32": True}, "shuffle": {"shuffle": True},
            "shuffle_lzf": {"compression": "lzf", "shuffle": True}, "szip_ec": {"compression": "szip", "compression_opts": ("ec", 8)},
        }.items():  # fmt: skip
            if name.startswith("szip") and not h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP):
                continue
            f.create_dataset(name, data=ragged, chunks=(4, 16), **options)
        f.create_dataset("big_f4_gzip", data=ragged.astype(">f4"), chunks=(4, 16), compression="gzip", shuffle=True)
        f.create_dataset(
            "scaleoffset_int_extremes", data=np.array([-(2**31), 2**31 - 1, 0], np.int32), chunks=(3,), scaleoffset=0
        )
        f.create_dataset("scaleoffset_float", data=ragged / 4, chunks=(4, 16), scaleoffset=2)
    with new("h5_plugin_filters.h5", "latest") as f:
        for name, option in {
            "bitshuffle": hdf5plugin.Bitshuffle(cname="none"), "bitshuffle_lz4": hdf5plugin.Bitshuffle(cname="lz4"),
            "bitshuffle_zstd": hdf5plugin.Bitshuffle(cname="zstd"), "blosc_lz4": hdf5plugin.Blosc(cname="lz4", shuffle=1),
            "blosc_zstd": hdf5plugin.Blosc(cname="zstd", shuffle=2), "blosc2": hdf5plugin.Blosc2(cname="zstd"),
            "lz4": hdf5plugin.LZ4(), "zstd": hdf5plugin.Zstd(), "bzip2": hdf5plugin.BZip2(),
        }.items():  # fmt: skip
            f.create_dataset(name, data=ragged, chunks=(4, 16), compression=option)

    with new("h5_types.h5") as f:
        f["f2"], f["f4"], f["f8"] = SPECIAL_F16.view(np.float16), SPECIAL_F32.view(np.float32), SPECIAL_F64.view(np.float64)
        for kind in (">f2", ">f4", ">f8", ">i2", ">i4", ">u8"):
            f["big_" + kind[1:]] = values((2, 3), 600).astype(kind) if kind[1] == "f" else np.arange(6).astype(kind)
        for kind in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"):
            f[kind] = (np.arange(6) - 3 * (kind[0] == "i")).astype(kind)
        f["bool"] = np.array([True, False, True])
        f.create_dataset("enum", data=np.array([2, 0, 1], np.int16), dtype=h5py.enum_dtype({"A": 0, "B": 1, "C": 2}, "i2"))
        f["compound"] = np.array([(1, 2.5), (3, -0.5)], dtype=[("n", "<i4"), ("x", "<f8")])
        f["complex64"] = values(4, 601).view(np.complex64)
        f["fixed_string"] = np.array([b"ab", b"cde"])
        f.create_dataset("vlen_string", data=["ab", "größe"], dtype=h5py.string_dtype())
        f.create_dataset("vlen_int", shape=(2,), dtype=h5py.vlen_dtype(np.int32))
        f["vlen_int"][0], f["vlen_int"][1] = np.arange(3), np.arange(2)
        f.create_dataset("array_type", shape=(2,), dtype=np.dtype(("f4", (3,))))[...] = values((2, 3), 602)
        f["opaque"] = np.array([b"\x01\x02", b"\x03\x04"], dtype="V2")
        f.create_dataset("reference", data=f["f4"].ref, dtype=h5py.ref_dtype)
        f["committed_type"] = np.dtype("f4")
        f.create_dataset("with_committed", data=values(3, 604), dtype=f["committed_type"])

    for name, low in (("h5_shapes_earliest.h5", "earliest"), ("h5_shapes_latest.h5", "latest")):
        with new(name, low) as f:
            f["scalar"] = np.float32(2.5)
            f["scalar_i4"] = np.int32(-7)
            f["null"] = h5py.Empty("f4")
            f["zero_extent"] = np.empty((0, 3), np.float32)
            f.create_dataset("zero_extent_chunked", shape=(0, 3), maxshape=(None, 3), chunks=(2, 3), dtype="f4")
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_layout(h5py.h5d.COMPACT)
            plist.set_obj_track_times(False)  # the low-level call records a time by default
            data = h5py.h5d.create(f.id, b"compact", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((3, 4)), plist)
            data.write(h5py.h5s.ALL, h5py.h5s.ALL, values((3, 4), 610))
            grown = f.create_dataset("resized", data=ragged[:4], maxshape=(None, None), chunks=(3, 8), compression="gzip")
            grown.resize((9, 33))
            grown[4:9] = ragged[4:9]
            shrunk = f.create_dataset("shrunk", data=ragged, maxshape=(None, 33), chunks=(4, 16))
            shrunk.resize((5, 33))
            f.create_dataset("never_written", shape=(3, 4), dtype="f4")
            f.create_dataset("never_written_filled", shape=(3, 4), dtype="f4", fillvalue=-1.5)
            holes = f.create_dataset("holes", shape=(10, 33), dtype="f4", chunks=(4, 16), fillvalue=7.25, compression="gzip")
            holes[4:8, 16:32] = ragged[4:8, 16:32]
            f.create_dataset("holes_big", shape=(6,), dtype=">i2", chunks=(2,), fillvalue=258)[2:4] = [5, 6]
            f["one_by_one"] = np.ones((1, 1, 1), np.float64)

    with new("h5_btree_v1.h5") as f:  # more chunks than one node holds
        f.create_dataset("many_chunks", data=np.arange(70, dtype=np.float32), chunks=(1,))

    with new("h5_chunk_index_latest.h5", "latest") as f:  # each way of finding chunks that came with 1.10
        f.create_dataset("single", data=ragged, chunks=(10, 33))
        f.create_dataset("single_filtered", data=ragged, chunks=(10, 33), compression="gzip", shuffle=True)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4, 16))
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        plist.set_obj_track_times(False)
        data = h5py.h5d.create(f.id, b"implicit", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((10, 33)), plist)
        data.write(h5py.h5s.ALL, h5py.h5s.ALL, ragged)
        f.create_dataset("three_d", data=np.arange(60, dtype=np.int16).reshape(3, 4, 5), chunks=(2, 3, 2))
        f.create_dataset("fixed_array", data=ragged, chunks=(4, 16))
        f.create_dataset("fixed_array_filtered", data=ragged, chunks=(4, 16), compression="gzip", fletcher32=True)
        f.create_dataset("extensible_array", data=ragged, chunks=(4, 16), maxshape=(None, 33))
        f.create_dataset("extensible_array_filtered", data=ragged, chunks=(1, 33), maxshape=(None, 33), compression="gzip")
        f.create_dataset("btree_v2", data=ragged, chunks=(4, 16), maxshape=(None, None))
        f.create_dataset("btree_v2_filtered", data=ragged, chunks=(2, 5), maxshape=(None, None), compression="gzip")
    with new("h5_chunk_index_paged.h5", "latest") as f:  # over 1024 chunks: pages of a fixed array
        f.create_dataset("fixed_array_paged", data=np.arange(1030, dtype=np.uint16), chunks=(1,))
    with new("h5_chunk_index_blocks.h5", "latest") as f:  # data and super blocks of an extensible array
        f.create_dataset("extensible_blocks", data=np.arange(500, dtype=np.uint16), chunks=(1,), maxshape=(None,))

    with new("h5_links_target.h5") as f:
        f["other"] = values(3, 620)
    with new("h5_links.h5") as f:
        f["w"] = values((2, 3), 621)
        f["g/inner/x"] = values(4, 622)
        f["hard"] = f["w"]
        f["g/hard_up"] = f["w"]
        f["soft"] = h5py.SoftLink("/g/inner/x")
        f["soft_relative"] = h5py.SoftLink("g/inner/x")
        f["soft_group"] = h5py.SoftLink("/g/inner")
        f["dangling"] = h5py.SoftLink("/nowhere")
        f["cycle_a"], f["cycle_b"] = h5py.SoftLink("/cycle_b"), h5py.SoftLink("/cycle_a")
        f["g/loop"] = f["g"]  # a hard link of a group to itself
        f["g/inner/up"] = h5py.SoftLink("/g")
        f["external"] = h5py.ExternalLink("h5_links_target.h5", "/other")
        f["external_missing"] = h5py.ExternalLink("no_such_file.h5", "/other")
        f["Größe/重み"] = values(2, 623)
        f["with.dot and space"] = values(2, 624)
        f.create_group("empty_group")
    for name, low, count in (("h5_names_earliest.h5", "earliest", 20), ("h5_names_latest.h5", "latest", 14)):
        with new(name, low) as f:  # so many links that the group needs a tree of several nodes, or dense storage
            for i in range(count):
                f[f"tensor_{i:02d}_{'x' * (i % 9)}"] = np.float32(i)
    with new("h5_attributes_only.h5") as f:
        f.attrs["note"] = "no data sets"
        f.create_group("g").attrs["v"] = np.arange(3)
    with new("h5_many_attributes_latest.h5", "latest") as f:
        d = f.create_dataset("w", data=values(3, 625))
        for i in range(20):  # dense attribute storage
            d.attrs[f"a{i}"] = i
        f.create_group("ordered", track_order=True)["b"] = values(2, 626)
        f["ordered"]["a"] = values(2, 627)

    with new("h5_virtual_source.h5", "latest") as f:
        f["rows"] = ragged[:5]
    with new("h5_virtual.h5", "latest") as f:
        f["local"] = ragged[5:]
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_obj_track_times(False)
        plist.set_fill_value(np.array(-1, np.float32))
        for first, file, name in ((0, b"h5_virtual_source.h5", b"/rows"), (5, b".", b"/local")):
            space = h5py.h5s.create_simple((11, 33))  # the last row stays unmapped: fill values
            space.select_hyperslab((first, 0), (5, 33))
            plist.set_virtual(space, file, name, h5py.h5s.create_simple((5, 33)))
        h5py.h5d.create(f.id, b"joined", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((11, 33)), plist)
    ragged[:, :8].tofile(out / "h5_external.raw")
    with new("h5_external.h5") as f:
        f.create_dataset("outside", shape=(10, 8), dtype="f4", external=[("h5_external.raw", 0, 320)])
        f["inside"] = values(2, 630)

    with new("h5_custom_float.h5") as f:
        for name, bits in (("bf16", np.concatenate([SPECIAL_BF16, np.arange(8, dtype=np.uint16) * 4099])),):
            write_typed(f, name, bits, custom_float(2, 8, 7, 127), (4, 4))
            write_typed(f, name + "_big", bits.astype(">u2").view(np.uint16), custom_float(2, 8, 7, 127, True), (4, 4))
        codes = np.arange(256, dtype=np.uint8)
        # By HDF5's own rules an exponent of all ones is Inf or NaN, so "e4m3" here is not the e4m3fn of 8-bit training.
        write_typed(f, "e4m3", codes, custom_float(1, 4, 3, 7), (16, 16))
        write_typed(f, "e5m2", codes, custom_float(1, 5, 2, 15), (16, 16))
        write_typed(f, "bias_off", codes, custom_float(1, 4, 3, 8), (16, 16))
        f["u2_of_ml_dtypes"] = values(4, 640).astype(ml_dtypes.bfloat16).view(np.uint16)
        f["opaque_ml_dtypes"] = values(4, 640).astype(ml_dtypes.bfloat16)  # h5py stores it as an opaque or custom type

    with new("h5_skipped_filters.h5") as f:
        # Every filter skipped in every chunk: filter_mask 3, the chunks hold plain bytes, padded to the full chunk.
        d = f.create_dataset("skipped", shape=(10, 33), dtype="f4", chunks=(4, 16), compression="gzip", shuffle=True)
        padded = np.zeros((12, 48), np.float32)
        padded[:10, :33] = ragged
        for i in range(0, 12, 4):
            for j in range(0, 48, 16):
                d.id.write_direct_chunk((i, j), padded[i : i + 4, j : j + 16].tobytes(), filter_mask=3)
        # Only gzip skipped, in one chunk: that chunk is shuffled but not deflated.
        d = f.create_dataset("one_skipped", data=ragged, chunks=(4, 16), compression="gzip", shuffle=True)
        plain = padded[0:4, 16:32].copy()
        d.id.write_direct_chunk((0, 16), plain.view(np.uint8).reshape(-1, 4).T.tobytes(), filter_mask=2)

    with new("h5_userblock.h5", userblock_size=512) as f:
        f["w"] = values((2, 3), 650)
        f.create_dataset("chunked", data=ragged, chunks=(4, 16), compression="gzip")
    with open(out / "h5_userblock.h5", "r+b") as raw:
        raw.write(b"anything may stand in the user block")
    with new("h5_latest.h5", "latest") as f:
        model = f.create_group("model")  # a group made on the way to a data set records a time
        layer = model.create_group("layer.0")
        layer["weight"] = values((4, 6), 660)
        layer["bias"] = values(4, 661).astype(np.float16)
        model.create_dataset("gz", data=ragged, chunks=(4, 16), compression="gzip", shuffle=True)
