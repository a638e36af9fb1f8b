// hdf5_undo.h: the reverse of the filters that nearly all files use: gzip, shuffle, fletcher32, LZF
// (h5py's own) and bitshuffle. HDF5 1.10 takes a chunk that unpacks to fewer bytes than it should
// for a whole one and reads past its end; here that is an error. LZF and bitshuffle are missing in
// the library; the LZF plug-in of Debian 12 cannot be loaded (undefined symbol lzf_decompress), and
// none of its packages has bitshuffle.
#pragma once
#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fp4scope {

inline constexpr H5Z_filter_t kLzfFilter = 32000, kBitshuffleFilter = 32008;

struct Hdf5Filter {
  H5Z_filter_t number = 0;
  std::vector<unsigned> values;  // its parameters
};

bool can_undo(const std::vector<Hdf5Filter>& filters);
// `data` is a chunk as it is stored, filtered in the order of `filters` without those whose bit is
// set in `mask`; it becomes the `bytes` bytes of the chunk. An empty string, or the reason why not.
std::string undo_filters(const std::vector<Hdf5Filter>& filters, std::uint32_t mask,
                         std::size_t bytes, std::vector<unsigned char>& data);
// Without compression and with LZ4; otherwise a plug-in is needed.
bool can_undo_bitshuffle(const std::vector<unsigned>& values);
// `data` becomes at most `most` bytes.
std::string undo_bitshuffle(const std::vector<unsigned>& values, std::size_t most,
                            std::vector<unsigned char>& data);

}  // namespace fp4scope
