// Until the reader is there.
#include "analysis/io/hdf5_source.h"
#include "sim/error.h"
namespace fp4scope {
std::unique_ptr<TensorSource> open_hdf5(const std::string&, const std::shared_ptr<MappedFile>&) {
  throw Error(ErrorKind::kUnsupported, "this reader does not exist yet");
}
}  // namespace fp4scope
