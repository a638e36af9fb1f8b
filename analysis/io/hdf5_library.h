// hdf5_library.h: the HDF5 library (1.10, C API) with handles that close themselves and its last
// error as text. Where files of others are read, only the process of hdf5_worker.h calls it.
#pragma once
#include <hdf5.h>

#include <string>
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

// What the last failed call says: its innermost reason. Clears it.
inline std::string hdf5_error() {
  std::string text;
  const auto collect = [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
    auto& reason = *static_cast<std::string*>(out);
    if (reason.empty() && error->desc != nullptr) reason = error->desc;
    return 0;
  };
  // Upward starts at the function that found the error.
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, collect, &text);
  H5Eclear2(H5E_DEFAULT);
  return text.empty() ? "the HDF5 library gives no reason" : text;
}

}  // namespace fp4scope
