// hdf5_files.h: HDF5 files for tests, written through the C API of the library.
#pragma once
#include <doctest/doctest.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "analysis/io/hdf5_library.h"

namespace fp4scope::test {

// 0, 1, 2, ...: values that are their own index.
inline std::vector<float> counted(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

class Hdf5File {
 public:
  explicit Hdf5File(const std::string& path)
      : file_(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)) {
    REQUIRE(file_);
  }
  hid_t get() const { return file_.get(); }

  // Properties of a dataset in chunks; add filters to them.
  static Hid chunked(const std::vector<hsize_t>& chunk) {
    Hid properties(H5Pcreate(H5P_DATASET_CREATE));
    REQUIRE(H5Pset_chunk(properties.get(), static_cast<int>(chunk.size()), chunk.data()) >= 0);
    return properties;
  }
  Hid create(const std::string& name, hid_t type, const std::vector<hsize_t>& shape,
             const Hid& properties = Hid()) {
    const Hid space(shape.empty()
                        ? H5Screate(H5S_SCALAR)
                        : H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr));
    Hid dataset(H5Dcreate2(file_.get(), name.c_str(), type, space.get(), H5P_DEFAULT,
                           properties ? properties.get() : H5P_DEFAULT, H5P_DEFAULT));
    REQUIRE(dataset);
    return dataset;
  }
  // `memory` is the type of the elements of `data`.
  template <class T>
  void write(const std::string& name, hid_t type, hid_t memory, const std::vector<hsize_t>& shape,
             const std::vector<T>& data, const Hid& properties = Hid()) {
    const Hid dataset = create(name, type, shape, properties);
    REQUIRE(H5Dwrite(dataset.get(), memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data.data()) >= 0);
  }

  // A dataset of binary32 numbers that are their own index; returns them.
  std::vector<float> write_counted(const std::string& name, hid_t type,
                                   const std::vector<hsize_t>& shape,
                                   const Hid& properties = Hid()) {
    std::size_t count = 1;
    for (const hsize_t extent : shape) count *= extent;
    std::vector<float> values = counted(count);
    write(name, type, H5T_NATIVE_FLOAT, shape, values, properties);
    return values;
  }

 private:
  Hid file_;
};

}  // namespace fp4scope::test
