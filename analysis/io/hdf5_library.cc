// hdf5_library.cc: see hdf5_library.h.
#include "analysis/io/hdf5_library.h"

#include <array>
#include <cstdio>

namespace fp4scope {

std::string hdf5_reason(std::string_view reason) {
  const std::string text(reason);
  unsigned long long has = 0, base = 0, says = 0;
  if (std::sscanf(text.c_str(),
                  "truncated file: eof = %llu, sblock->base_addr = %llu, "
                  "stored_eof = %llu",
                  &has, &base, &says) == 3) {
    // The header counts from the start of the file, the library's end from behind a user block.
    return "the file has " + std::to_string(has + base) + " bytes, its header says " +
           std::to_string(says) + " (truncated?)";
  }
  if (text.find("already open for") != std::string::npos) {
    return "its writer did not close it, or is still writing to it (if nobody is: h5clear -s FILE)";
  }
  if (text == "bad byte number in an address") return "its header gives no size of addresses";
  if (text.empty()) return "the HDF5 library gives no reason";
  // Names of C: nobody but the library's authors knows them.
  const bool names_code =
      text.find_first_of("_=();>") != std::string::npos || text.find("H5") != std::string::npos;
  if (names_code) return "the HDF5 library gives no reason in plain words";
  static constexpr std::array<std::string_view, 5> kFailures = {"unable to ", "can't ", "cannot ",
                                                                "couldn't ", "could not "};
  for (const std::string_view failure : kFailures) {
    if (text.starts_with(failure)) {
      return "the HDF5 library could not " + text.substr(failure.size());
    }
  }
  return text;
}

std::string hdf5_error() {
  std::string text;
  const auto collect = [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
    auto& reason = *static_cast<std::string*>(out);
    if (reason.empty() && error->desc != nullptr) reason = error->desc;
    return 0;
  };
  // Upward starts at the function that found the error.
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, collect, &text);
  H5Eclear2(H5E_DEFAULT);
  return hdf5_reason(text);
}

}  // namespace fp4scope
