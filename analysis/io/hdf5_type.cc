// hdf5_type.cc: HDF5 datatypes. Floats are known by their fields (HDF5 File Format, "Floating-Point
// Numbers"), so that BF16 and FP8, for which HDF5 has no names, are found as well. By HDF5's rules
// an exponent of all ones is Inf or NaN; four exponent and three mantissa bits mean E4M3 (fn) here,
// which is what such files hold.
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "analysis/io/hdf5_dataset.h"

namespace fp4scope {
namespace {

// A compound inside a compound inside ...: deeper ones are no numbers.
constexpr int kDeepestCompound = 4;
constexpr std::size_t kLargestElement = 1 << 16;  // bytes, of an opaque, string or compound

struct FloatFields {
  DType dtype;
  std::size_t bytes, exponent, mantissa, bias;
};
constexpr std::array<FloatFields, 6> kFloats = {{{DType::kF64, 8, 11, 52, 1023},
                                                 {DType::kF32, 4, 8, 23, 127},
                                                 {DType::kF16, 2, 5, 10, 15},
                                                 {DType::kBF16, 2, 8, 7, 127},
                                                 {DType::kF8E4M3, 1, 4, 3, 7},
                                                 {DType::kF8E5M2, 1, 5, 2, 15}}};

// Fills `swapped`; false for VAX and mixed order.
bool take_order(hid_t type, Hdf5Type& out) {
  const H5T_order_t order = H5Tget_order(type);
  if (order == H5T_ORDER_BE && out.bytes > 1) out.swapped = out.bytes;
  return order == H5T_ORDER_LE || order == H5T_ORDER_BE ||
         (order == H5T_ORDER_NONE && out.bytes == 1);
}

Hdf5Type unreadable(std::string text, bool known) {
  Hdf5Type out;
  out.text = std::move(text);
  out.known = known;
  return out;
}

Hdf5Type describe_float(hid_t type) {
  std::size_t sign = 0, exponent_at = 0, exponent = 0, mantissa_at = 0, mantissa = 0;
  if (H5Tget_fields(type, &sign, &exponent_at, &exponent, &mantissa_at, &mantissa) < 0) {
    return unreadable("float", false);
  }
  const std::size_t size = H5Tget_size(type), bias = H5Tget_ebias(type);
  const bool fills = H5Tget_precision(type) == 8 * size && H5Tget_offset(type) == 0 &&
                     mantissa_at == 0 && exponent_at == mantissa && sign == mantissa + exponent &&
                     H5Tget_norm(type) == H5T_NORM_IMPLIED;
  for (const FloatFields& known : kFloats) {
    if (!fills || known.bytes != size || known.exponent != exponent || known.mantissa != mantissa ||
        known.bias != bias) {
      continue;
    }
    Hdf5Type out;
    out.dtype = known.dtype;
    out.text = dtype_name(known.dtype);
    out.bytes = static_cast<std::int32_t>(size);
    if (take_order(type, out)) return out;
  }
  return unreadable("float of " + std::to_string(size) + " bytes with " + std::to_string(exponent) +
                        " exponent and " + std::to_string(mantissa) + " mantissa bits, bias " +
                        std::to_string(bias),
                    false);
}

Hdf5Type describe_integer(hid_t type, bool is_signed) {
  const std::size_t size = H5Tget_size(type);
  Hdf5Type out;
  const char letter = is_signed ? 'i' : 'u';
  // Plain i8 and u8 are 8-bit ones here.
  out.text = size == 1 ? fmt::format("{}8", letter)
                       : fmt::format("{}{}{}", size == 8 ? "<" : "", letter, size);
  if (size == 1) out.dtype = is_signed ? DType::kI8 : DType::kU8;
  const bool plain_size = size == 1 || size == 2 || size == 4 || size == 8;
  if (!plain_size) return unreadable(out.text, true);
  out.bytes = static_cast<std::int32_t>(size);
  if (!take_order(type, out)) return unreadable(out.text, true);
  if (H5Tget_precision(type) != 8 * size || H5Tget_offset(type) != 0) {
    out.converts = true;
    out.swapped = 0;
  }
  return out;
}

// h5py stores a bool so.
bool is_bool(hid_t type) {
  if (H5Tget_size(type) != 1 || H5Tget_nmembers(type) != 2) return false;
  for (unsigned i = 0; i < 2; ++i) {
    unsigned char value = 0xFF;
    char* name = H5Tget_member_name(type, i);
    const bool matches = name != nullptr && H5Tget_member_value(type, i, &value) >= 0 &&
                         value == i && std::strcmp(name, i == 0 ? "FALSE" : "TRUE") == 0;
    H5free_memory(name);
    if (!matches) return false;
  }
  return true;
}

Hdf5Type describe_enum(hid_t type) {
  const Hid base(H5Tget_super(type));
  if (!base) return unreadable("enum", true);
  Hdf5Type out = describe_integer(base.get(), H5Tget_sign(base.get()) == H5T_SGN_2);
  if (out.converts) return unreadable("enum", true);
  if (is_bool(type)) {
    out.dtype = DType::kOther;
    out.text = "bool";
  }
  return out;
}

Hdf5Type describe_at(hid_t type, int depth);

// Elements that are copied as they lie, when all their parts are in little-endian order.
Hdf5Type describe_bytes(hid_t type, char letter, bool readable) {
  const std::size_t size = H5Tget_size(type);
  Hdf5Type out;
  out.text = std::string("|") + letter + std::to_string(size);
  if (readable && size <= kLargestElement) out.bytes = static_cast<std::int32_t>(size);
  return out;
}

Hdf5Type describe_compound(hid_t type, int depth) {
  const int members = H5Tget_nmembers(type);
  bool plain = depth < kDeepestCompound;
  std::string names;
  std::vector<DType> dtypes;
  for (int i = 0; plain && i < members; ++i) {
    const Hid member(H5Tget_member_type(type, static_cast<unsigned>(i)));
    if (!member) return unreadable("compound", true);
    const Hdf5Type part = describe_at(member.get(), depth + 1);
    plain = part.bytes != 0 && part.swapped == 0 && !part.converts;
    char* name = H5Tget_member_name(type, static_cast<unsigned>(i));
    if (i < 2 && name != nullptr) names += std::string(name) + ' ';
    H5free_memory(name);
    if (i < 2 && part.inner.empty()) dtypes.push_back(part.dtype);
  }
  Hdf5Type out = describe_bytes(type, 'V', plain);
  // Complex numbers, as h5py stores them.
  if (members == 2 && names == "r i " && dtypes.size() == 2 && dtypes[0] == dtypes[1] &&
      is_real(dtypes[0]) && out.bytes == 2 * dtype_bytes(dtypes[0])) {
    out.text = 'c' + std::to_string(out.bytes);
  }
  return out;
}

Hdf5Type describe_array(hid_t type, int depth) {
  const int rank = H5Tget_array_ndims(type);
  const Hid base(H5Tget_super(type));
  std::vector<hsize_t> dims(rank > 0 ? static_cast<std::size_t>(rank) : 0);
  if (rank <= 0 || !base || depth >= kDeepestCompound ||
      H5Tget_array_dims2(type, dims.data()) < 0) {
    return unreadable("array", true);
  }
  Hdf5Type out = describe_at(base.get(), depth + 1);
  // The dimensions and the elements must be what the size of the type says.
  std::uint64_t bytes = static_cast<std::uint64_t>(out.bytes);
  for (const hsize_t extent : dims) {
    if (extent == 0 || __builtin_mul_overflow(bytes, extent, &bytes)) bytes = 0;
  }
  if (out.bytes == 0 || out.converts || !out.inner.empty() || bytes == 0 ||
      bytes > kLargestElement || bytes != H5Tget_size(type)) {
    return unreadable("array of " + out.text, true);
  }
  out.inner.assign(dims.begin(), dims.end());
  return out;
}

Hdf5Type describe_at(hid_t type, int depth) {
  switch (H5Tget_class(type)) {
    case H5T_FLOAT:
      return describe_float(type);
    case H5T_INTEGER:
      return describe_integer(type, H5Tget_sign(type) == H5T_SGN_2);
    case H5T_BITFIELD:
      return describe_integer(type, false);
    case H5T_ENUM:
      return describe_enum(type);
    case H5T_OPAQUE:
      return describe_bytes(type, 'V', true);
    case H5T_STRING:
      if (H5Tis_variable_str(type) != 0) return unreadable("variable-length string", true);
      return describe_bytes(type, 'S', true);
    case H5T_COMPOUND:
      return describe_compound(type, depth);
    case H5T_ARRAY:
      return describe_array(type, depth);
    case H5T_VLEN:
      return unreadable("variable-length", true);
    case H5T_REFERENCE:
      return unreadable("reference", true);
    case H5T_TIME:
      return unreadable("time", true);
    default:
      return unreadable("unknown", false);
  }
}

hid_t plain_integer(const Hdf5Type& type) {
  const bool is_signed = type.text.find('i') != std::string::npos;
  switch (type.bytes) {
    case 1:
      return is_signed ? H5T_STD_I8LE : H5T_STD_U8LE;
    case 2:
      return is_signed ? H5T_STD_I16LE : H5T_STD_U16LE;
    case 4:
      return is_signed ? H5T_STD_I32LE : H5T_STD_U32LE;
    default:
      return is_signed ? H5T_STD_I64LE : H5T_STD_U64LE;
  }
}

}  // namespace

Hdf5Type describe_type(hid_t type) {
  return describe_at(type, 0);
}

Hid memory_type(hid_t stored, const Hdf5Type& described) {
  return Hid(H5Tcopy(described.converts ? plain_integer(described) : stored));
}

}  // namespace fp4scope
