// malformed_archives.cc: npz, PyTorch and HDF5 files. Most are the files of
// data/containers/malicious, which make_malicious.py puts together from opcodes and zip records.
// See malformed_table.h.
#include <algorithm>

#include "tests/unit/malformed_table.h"

namespace fp4scope::test {
namespace {

std::string committed(const std::string& file) {
  return read_file((data_dir() / "containers" / file).string());
}
// The file of data/containers/malicious whose name ends so, as FILE.
MalformedCase malicious_case(const char* kind, const char* name, const std::string& file) {
  return file_case(std::string(kind) + ": " + name, committed("malicious/" + file));
}
MalformedCase zip_case(const char* name, const std::string& file) {
  return malicious_case("zip", name, file);
}
MalformedCase pickle_case(const char* name, const std::string& file) {
  return malicious_case("PyTorch", name, file);
}

}  // namespace

MalformedCases malformed_archives() {
  const std::string npz = committed("mixed_stored.npz"), pt = committed("single_tensor.pt");
  std::string damaged = npz;
  damaged[damaged.find("NUMPY") + 100] ^= 1;  // in the padding of the first npy header
  const std::string h5 = committed("h5_types.h5");
  std::string zeros = h5.substr(0, 2048);
  std::fill(zeros.begin() + 8, zeros.begin() + 96, '\0');
  std::string header = committed("h5_links_target.h5");  // one dataset, whose header is at 800
  std::fill(header.begin() + 816, header.begin() + 900, '\xff');
  return {
      file_case("zip: cut in the directory", npz.substr(0, npz.size() - 30)),
      file_case("zip: cut in the first member", npz.substr(0, 200)),
      file_case("zip: a byte of a member changed", damaged),
      zip_case("neither npz nor PyTorch", "zip_no_pickle.pt"),
      zip_case("encrypted", "zip_encrypted.pt"),
      zip_case("unknown compression", "zip_method.pt"),
      zip_case("no deflate stream", "zip_deflate_garbage.pt"),
      zip_case("deflate stream cut", "zip_deflate_short.pt"),
      zip_case("unpacks to more than it claims", "zip_deflate_claims_less.pt"),
      zip_case("claims 2^31 bytes out of a few", "zip_deflate_claims_more.pt"),
      zip_case("ZIP64 field of 2^63 bytes", "zip64_sizes.pt"),
      zip_case("local header beyond the file", "zip_offset_beyond.pt"),
      zip_case("local header with another name", "zip_names_differ.pt"),
      zip_case("a member inside another", "zip_overlap_inside.pt"),
      zip_case("a member twice", "zip_duplicate_pickle.pt"),
      zip_case("60000 members claimed", "zip_count_more.pt"),
      zip_case("directory beyond the file", "zip_directory_beyond.pt"),
      malicious_case("npz", "objects", "npz_objects.npz"),
      malicious_case("npz", "a call in the shape", "npz_shape_call.npz"),
      malicious_case("npz", "10 MB for 10 elements", "npz_bomb_less.npz"),
      malicious_case("npz", "2^40 elements claimed", "npz_bomb_more.npz"),
      file_case("PyTorch: cut in the archive", pt.substr(0, pt.size() / 2)),
      pickle_case("os.system by GLOBAL", "os_system_p2.pt"),
      pickle_case("os.system by STACK_GLOBAL", "os_system_p4.pt"),
      pickle_case("os.system in a legacy file", "legacy_os_system.pt"),
      pickle_case("builtins.eval", "builtins_eval.pt"),
      pickle_case("subprocess.Popen by INST", "inst_popen.pt"),
      pickle_case("torch.load", "torch_load.pt"),
      pickle_case("a bare pickle", "os_system_bare_p2.pt"),
      pickle_case("extension registry", "ext1.pt"),
      pickle_case("unknown opcode", "unknown_opcode.pt"),
      pickle_case("protocol 6", "proto_6.pt"),
      pickle_case("no STOP", "no_stop.pt"),
      pickle_case("an empty pickle", "empty_pickle.pt"),
      pickle_case("a text of 2^63 bytes", "binunicode8_2e63.pt"),
      pickle_case("LONG4 of 2^31-1 bytes", "long4_2e31.pt"),
      pickle_case("a frame of 2^63 bytes", "frame_huge.pt"),
      pickle_case("memo index 2^32-1", "long_binput_2e32.pt"),
      pickle_case("memo index never put", "binget_missing.pt"),
      pickle_case("2^40 names for one tensor", "memo_bomb_tensor.pt"),
      pickle_case("lists 100000 deep", "deep_lists.pt"),
      pickle_case("APPEND on a dict", "append_on_dict.pt"),
      pickle_case("a tensor made without arguments", "rebuild_no_args.pt"),
      pickle_case("text for the storage", "rebuild_storage_is_text.pt"),
      pickle_case("negative size", "rebuild_size_negative.pt"),
      pickle_case("one element beyond the storage", "rebuild_offset_beyond.pt"),
      pickle_case("strides that overflow", "rebuild_stride_overflow.pt"),
      pickle_case("one element expanded to 2^40", "rebuild_expand_huge.pt"),
      pickle_case("storage outside the archive", "storage_key_up_far.pt"),
      pickle_case("storage without a member", "storage_key_missing.pt"),
      pickle_case("storage of 2^62 elements", "storage_size_2e62.pt"),
      pickle_case("unknown storage class", "storage_class_unknown.pt"),
      pickle_case("byteorder is neither", "zip_byteorder.pt"),
      pickle_case("legacy version 1002", "legacy_version.pt"),
      pickle_case("legacy file cut behind its start", "legacy_only_magic.pt"),
      pickle_case("legacy storage one byte short", "legacy_data_short.pt"),
      pickle_case("legacy storage of another length", "legacy_size_differs.pt"),
      file_case("HDF5: cut in half", h5.substr(0, h5.size() / 2)),
      file_case("HDF5: the signature alone", h5.substr(0, 8)),
      file_case("HDF5: superblock of zeros", zeros),
      file_case("HDF5: a dataset without a header", header),
      file_case("HDF5: data in another file", committed("h5_external.h5")),
      file_case("HDF5: a virtual dataset", committed("h5_virtual.h5")),
  };
}

}  // namespace fp4scope::test
