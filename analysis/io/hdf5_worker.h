// hdf5_worker.h: the process in which the HDF5 library reads a file. Its files are other people's,
// and the library crashes on some damaged ones; there it takes nothing else with it.
#pragma once
#include <cstdint>
#include <string>

#include "analysis/io/hdf5_library.h"
#include "analysis/io/mmap.h"

namespace fp4scope {

// Answers requests (hdf5_record.h) that come through `socket` until it is closed. To be called in a
// child process right after fork(): takes over signals, descriptors and limits. `file` is read
// where it is mapped, `window` is memory of kHdf5Window bytes shared with the other end.
void serve_hdf5(int socket, const MappedFile& file, unsigned char* window) noexcept;

// The records of all datasets; false: `listing` is the reason why there are none.
bool list_hdf5(hid_t file, std::int64_t file_bytes, std::string& listing);

}  // namespace fp4scope
