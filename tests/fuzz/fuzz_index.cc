// fuzz_index.cc: a *.safetensors.index.json with two shards. The input is the text of the index;
// what follows a line "=====" is the second shard. Beside the folder of the index lies a third
// file, which no index may reach.
#include <filesystem>
#include <string>

#include "tests/fuzz/read_everything.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"

namespace fp4scope::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSeparator = "\n=====\n";

std::string one_tensor(const std::string& name) {
  return test::safetensors_bytes(
      "{\"" + name + R"(":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})",
      std::string(24, '\x3f'));
}

// Written once per process.
class Folder {
 public:
  Folder() : folder_(dir_.path() / "set") {
    fs::create_directories(folder_ / "below");
    test::write_file((folder_ / "a.safetensors").string(), one_tensor("a"));
    test::write_file((folder_ / "below/c.safetensors").string(), one_tensor("c"));
    test::write_file(dir_.file("outside.safetensors"), one_tensor("outside"));
    fs::create_symlink("../outside.safetensors", folder_ / "link.safetensors");
    fs::create_symlink("a.safetensors", folder_ / "same.safetensors");
  }
  std::string index() const { return (folder_ / "model.safetensors.index.json").string(); }
  std::string shard() const { return (folder_ / "b.safetensors").string(); }
  const fs::path& path() const { return folder_; }

 private:
  test::TempDir dir_;
  fs::path folder_;
};

}  // namespace

void run_index(std::string_view bytes) {
  static const Folder folder;
  const std::size_t split = bytes.find(kSeparator);
  const bool has_shard = split != std::string_view::npos;
  test::write_file(folder.index(), bytes.substr(0, split));
  test::write_file(folder.shard(), has_shard ? std::string(bytes.substr(split + kSeparator.size()))
                                             : one_tensor("b"));
  (void)accepts([] {
    const auto file = std::make_shared<MappedFile>(folder.index());
    Contents contents;
    contents.info.path = folder.index();
    append_index(*file, OpenOptions{}, contents);
    for (const TensorInfo& tensor : contents.tensors) {
      const fs::path real = fs::weakly_canonical(tensor.file);
      require(real.string().starts_with(fs::canonical(folder.path()).string() + "/"),
              "a shard lies outside the folder of its index");
    }
    read_everything(MappedSource(std::move(contents)));
  });
}

}  // namespace fp4scope::fuzz
