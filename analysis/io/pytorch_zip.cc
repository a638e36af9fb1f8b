// pytorch_zip.cc: the zip format of torch.save (since 1.6) and of TorchScript. ROOT/data.pkl is the
// pickle, ROOT/data/KEY are the storages, ROOT/byteorder says "little" or "big" (little where it is
// absent). TorchScript keeps constants in ROOT/constants.pkl and ROOT/constants/KEY; its code/ is
// never looked at.
#include <fmt/format.h>

#include <filesystem>
#include <unordered_map>

#include "analysis/io/message.h"
#include "analysis/io/pytorch_walk.h"
#include "analysis/io/zip_archive.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr std::string_view kPickleName = "data.pkl";
// A pickle may be compressed; its objects take about a hundred bytes of memory each, so their
// number is bounded by the size of the archive.
constexpr std::int64_t kValuesPerByte = 4, kLeastValues = 1'000'000;

class ZipStorages final : public TorchStorages {
 public:
  ZipStorages(const ZipArchive& archive, std::string folder, bool big_endian)
      : archive_(archive), folder_(std::move(folder)), big_endian_(big_endian) {}

  TorchStoragePlace find(const Pickle& pickle, const PickleObject& persistent,
                         const TorchStorageId& id, Contents& contents) override {
    const auto [known, is_new] = places_.try_emplace(std::string(id.key));
    TorchStoragePlace& whole = known->second;
    if (is_new) {
      const std::string name = folder_ + std::string(id.key);
      const auto member = archive_.find(name);
      if (!member) {
        fail_at(pickle, persistent,
                fmt::format("names the storage {}, but the archive has no member {}",
                            in_quotes(id.key), in_quotes(name)));
      }
      const ZipArchive::Data data = archive_.data(*member, false);
      contents.files.push_back(data.store);
      whole = {contents.files.size() - 1, data.offset, archive_.members()[*member].size,
               big_endian_};
    }
    TorchStoragePlace place = whole;
    const std::int64_t size = id.dtype->bytes;
    std::int64_t claimed = 0;
    if (__builtin_mul_overflow(id.elements, size, &claimed) || claimed > whole.bytes) {
      fail_at(pickle, persistent,
              fmt::format("gives the storage {} {} elements of {}, but its member has only {} "
                          "bytes",
                          in_quotes(id.key), id.elements, id.dtype->text, whole.bytes));
    }
    place.offset += id.first * size;
    place.bytes = id.count * size;
    return place;
  }

 private:
  const ZipArchive& archive_;
  std::string folder_;
  bool big_endian_;
  std::unordered_map<std::string, TorchStoragePlace> places_;
};

bool is_big_endian(const ZipArchive& archive, const std::string& root, const std::string& path) {
  const auto member = archive.find(root + "byteorder");
  if (!member) return false;
  std::string order = archive.read_start(*member, 64);
  while (order.ends_with('\n')) order.pop_back();
  if (order == "big") return true;
  if (order == "little") return false;
  throw Error(ErrorKind::kData,
              fmt::format("{}: the byteorder record says {}, expected \"little\" or \"big\"",
                          printable(path), in_quotes(order, 20)));
}

struct Part {
  std::size_t pickle;  // member
  std::string folder;  // of the storages
  std::string prefix;  // of the names
  bool big_endian;
  const std::atomic<bool>* stop;  // of OpenOptions
};

void append_part(const ZipArchive& archive, const Part& part,
                 const std::shared_ptr<MappedFile>& file, TensorNames& names, Contents& contents) {
  const ZipMember& member = archive.members()[part.pickle];
  PicklePlace place;
  std::shared_ptr<const MappedFile> mapped;
  if (member.size > 0) {
    const ZipArchive::Data data = archive.data(part.pickle, true);
    contents.files.push_back(data.store);
    place.file = contents.files.size() - 1;
    place.offset = data.offset;
    mapped = data.store->bytes();
    place.bytes = mapped->text(data.offset, member.size);
  }
  PickleInput input;
  input.where = fmt::format("{}: {}", printable(file->path()), printable(member.name, 60));
  input.bytes = place.bytes;
  input.most_values = kLeastValues + kValuesPerByte * file->size();
  input.stop = part.stop;
  const Pickle pickle = read_pickle(input);
  ZipStorages storages(archive, part.folder, part.big_endian);
  TorchTensors tensors(pickle, place, storages, contents);
  append_pickled_tensors({pickle, tensors, file->path(), part.prefix,
                          std::filesystem::path(file->path()).stem().string(), part.stop},
                         names, contents);
  if (mapped) mapped->check();  // a page that could not be read was taken for zeros
}

}  // namespace

void append_pytorch_zip(const ZipArchive& archive, std::size_t pickle,
                        const std::shared_ptr<MappedFile>& file, const OpenOptions& options,
                        Contents& contents) {
  contents.info.bytes += file->size();
  const std::string& name = archive.members()[pickle].name;
  const std::string root = name.substr(0, name.size() - kPickleName.size());
  TensorNames names;
  const bool big_endian = is_big_endian(archive, root, file->path());
  append_part(archive, {pickle, root + "data/", "", big_endian, options.stop}, file, names,
              contents);
  if (const auto constants = archive.find(root + "constants.pkl")) {
    append_part(archive, {*constants, root + "constants/", "constants", big_endian, options.stop},
                file, names, contents);
  }
}

}  // namespace fp4scope
