// safetensors_index.cc: *.safetensors.index.json, a JSON object whose "weight_map" maps tensor
// names to shard files in the same folder. The index is the list: tensors of a shard that it does
// not name are not part of the set.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <unordered_map>
#include <unordered_set>

#include "analysis/io/header_sax.h"
#include "analysis/io/mapped_source.h"
#include "analysis/io/message.h"
#include "analysis/io/safetensors_format.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

namespace fs = std::filesystem;

class IndexSax final : public HeaderSax {
 public:
  explicit IndexSax(std::string file) : file_(std::move(file)) {}
  std::vector<std::pair<std::string, std::string>> weight_map;  // tensor, shard
  bool has_weight_map = false;

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kData, fmt::format("{}: {}", printable(file_), what));
  }
  bool scalar(const char* what) override {
    if (depth_ == 0) fail(fmt::format("the index is {}, expected an object", what));
    if (depth_ == 2) {
      fail(fmt::format("weight_map gives {} for {}, expected a file name", what, in_quotes(key_)));
    }
    if (key_ == "weight_map") fail(fmt::format("weight_map is {}, expected an object", what));
    return true;
  }
  bool number_unsigned(std::uint64_t) override { return skipping() || scalar("a number"); }
  bool string(std::string& value) override {
    if (skipping()) return true;
    if (depth_ != 2) return scalar("a string");
    weight_map.emplace_back(key_, value);
    return true;
  }
  bool start_object() override {
    if (depth_ == 2) return scalar("an object");
    if (depth_ == 1 && key_ != "weight_map") {
      skip();
    } else {
      has_weight_map |= ++depth_ == 2;
    }
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array() override {
    if (depth_ != 1 || key_ == "weight_map") return scalar("an array");
    skip();
    return true;
  }
  bool end_array() override { return true; }
  bool key(std::string& name) override {
    if (skipping()) return true;
    key_ = name;
    if (!(depth_ == 1 ? top_keys_ : tensor_names_).insert(name).second) {
      fail(fmt::format("the index has the key {} twice", in_quotes(name)));
    }
    return true;
  }
  bool malformed(std::size_t position) override {
    fail(fmt::format("the index is not valid JSON (byte {})", position));
  }

  std::string file_;
  std::string key_;
  std::unordered_set<std::string> top_keys_, tensor_names_;
  int depth_ = 0;
};

// A shard has to lie in the folder of the index, or below it.
bool is_inside(const std::string& name) {
  if (name.empty() || name.find('\0') != std::string::npos) return false;
  const fs::path path(name);
  if (path.is_absolute()) return false;
  return std::none_of(path.begin(), path.end(), [](const fs::path& part) { return part == ".."; });
}

}  // namespace

void append_safetensors_index(const MappedFile& index, Contents& contents) {
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorKind::kData, fmt::format("{}: {}", printable(index.path()), what));
  };
  if (index.size() > static_cast<std::int64_t>(kMaxSafetensorsHeader)) {
    fail(fmt::format("the index has {} bytes, at most {} are allowed", index.size(),
                     kMaxSafetensorsHeader));
  }
  IndexSax sax(index.path());
  parse_json_header(index.text(0, index.size()), sax);
  if (!sax.has_weight_map) fail("the JSON object has no weight_map, expected a safetensors index");

  const fs::path folder = fs::path(index.path()).parent_path();
  Contents shards;  // all tensors of all shards
  std::unordered_map<std::string, std::unordered_map<std::string, std::size_t>> positions;
  for (const auto& [tensor, shard] : sax.weight_map) {
    auto found = positions.find(shard);
    if (found == positions.end()) {
      if (!is_inside(shard)) {
        fail(
            fmt::format("tensor {} is said to be in {}, expected a file in the folder of the index",
                        in_quotes(tensor), in_quotes(shard)));
      }
      const std::string path = (folder / shard).string();
      std::error_code ignored;
      if (!fs::exists(path, ignored)) {
        fail(fmt::format("tensor {} is said to be in {}, but there is no such file",
                         in_quotes(tensor), printable(path)));
      }
      const std::size_t first = shards.tensors.size();
      append_safetensors(std::make_shared<MappedFile>(path), shards);
      found = positions.emplace(shard, std::unordered_map<std::string, std::size_t>{}).first;
      for (std::size_t i = first; i < shards.tensors.size(); ++i) {
        found->second.emplace(shards.tensors[i].name, i);
      }
    }
    const auto at = found->second.find(tensor);
    if (at == found->second.end()) {
      fail(fmt::format("tensor {} is said to be in {}, but that file does not hold it",
                       in_quotes(tensor), in_quotes(shard)));
    }
    Storage storage = shards.storage[at->second];
    storage.file += contents.files.size();
    contents.tensors.push_back(shards.tensors[at->second]);
    contents.storage.push_back(storage);
  }
  contents.info.bytes += shards.info.bytes;
  contents.files.insert(contents.files.end(), shards.files.begin(), shards.files.end());
}

}  // namespace fp4scope
