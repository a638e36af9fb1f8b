// hdf5_library.h: the HDF5 library (1.10, C API) with handles that close themselves and its last
// error as text. Where files of others are read, only the process of hdf5_worker.h calls it.
#pragma once
#include <hdf5.h>

#include <string>
#include <string_view>
#include <utility>

namespace fp4scope {

// Owns a handle of any kind; negative: none.
class Hid {
 public:
  Hid() = default;
  explicit Hid(hid_t id) : id_(id) {}
  ~Hid() { close(); }
  Hid(Hid&& other) noexcept : id_(std::exchange(other.id_, -1)) {}
  Hid& operator=(Hid&& other) noexcept {
    if (this != &other) {
      close();
      id_ = std::exchange(other.id_, -1);
    }
    return *this;
  }
  hid_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }

 private:
  void close() {
    if (id_ >= 0) H5Idec_ref(id_);
  }
  hid_t id_ = -1;
};

// What the last failed call says: its innermost reason as a clause of plain words. Clears it.
std::string hdf5_error();
// Such a clause for what the library calls `reason`; names of its functions and fields stay out.
std::string hdf5_reason(std::string_view reason);

}  // namespace fp4scope
