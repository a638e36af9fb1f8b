// safetensors_index.cc: *.safetensors.index.json and PyTorch's *.bin.index.json, a JSON object
// whose "weight_map" maps tensor names to shard files in the same folder. The index is the list:
// tensors of a shard that it does not name are not part of the set. Sets of hundreds of shards keep
// only some of them open.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "analysis/io/container_files.h"
#include "analysis/io/file_identity.h"
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
  IndexSax(std::string file, std::string_view text) : file_(std::move(file)), text_(text) {}
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
    fail(fmt::format("the index is not valid JSON ({})", json_place(text_, position)));
  }

  std::string file_;
  std::string_view text_;
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

[[noreturn]] void fail(const MappedFile& index, const std::string& what) {
  throw Error(ErrorKind::kData, fmt::format("{}: {}", printable(index.path()), what));
}

// Tensor and shard, in order of appearance.
std::vector<std::pair<std::string, std::string>> weight_map_of(const MappedFile& index) {
  if (index.size() > static_cast<std::int64_t>(kMaxSafetensorsHeader)) {
    fail(index, fmt::format("the index has {} bytes, at most {} are allowed", index.size(),
                            kMaxSafetensorsHeader));
  }
  const std::string_view text = index.text(0, index.size());
  IndexSax sax(index.path(), text);
  parse_json_header(text, sax);
  if (!sax.has_weight_map) {
    fail(index, "the JSON object has no weight_map, expected an index of shards");
  }
  for (const auto& [tensor, shard] : sax.weight_map) {
    if (is_inside(shard)) continue;
    fail(index,
         fmt::format("tensor {} is said to be in {}, expected a file in the folder of the index",
                     in_quotes(tensor), in_quotes(shard)));
  }
  return std::move(sax.weight_map);
}

// The shards of one index, of which a few are open at a time.
class OpenShards {
 public:
  std::shared_ptr<const MappedFile> get(const std::string& path,
                                        const std::optional<FileIdentity>& identity) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(open_.begin(), open_.end(),
                                    [&](const auto& file) { return file->path() == path; });
    if (found != open_.end()) {
      std::rotate(open_.begin(), found, found + 1);
      return open_.front();
    }
    if (!is_unchanged(identity, identify_file(path))) {
      throw Error(ErrorKind::kData,
                  fmt::format("{} was changed, replaced or removed after its tensors were listed; "
                              "run again on files that stay as they are",
                              printable(path, 512)));
    }
    return keep(std::make_shared<MappedFile>(path));
  }
  std::shared_ptr<MappedFile> add(const std::string& path) {
    const std::lock_guard lock(mutex_);
    return keep(std::make_shared<MappedFile>(path));
  }

 private:
  static constexpr std::size_t kMost = 8;
  std::shared_ptr<MappedFile> keep(std::shared_ptr<MappedFile> file) {
    open_.push_front(file);
    if (open_.size() > kMost) open_.pop_back();
    return file;
  }
  std::mutex mutex_;
  std::deque<std::shared_ptr<MappedFile>> open_;  // the one used last in front
};

class Shard final : public ByteStore {
 public:
  Shard(std::string path, std::shared_ptr<OpenShards> shards)
      : path_(std::move(path)), identity_(identify_file(path_)), shards_(std::move(shards)) {}
  std::shared_ptr<const MappedFile> bytes() const override {
    return shards_->get(path_, identity_);
  }

 private:
  std::string path_;
  std::optional<FileIdentity> identity_;
  std::shared_ptr<OpenShards> shards_;
};

// The tensors of one shard.
Contents read_shard(const std::string& path, const OpenOptions& options,
                    const std::shared_ptr<OpenShards>& open) {
  Contents contents;
  contents.info.path = path;
  auto store = std::make_shared<Shard>(path, open);
  const std::shared_ptr<MappedFile> file = open->add(path);
  append_shard(file, options, contents);
  file->check();
  // The plain file is opened again when it is needed; members of archives belong to their archive.
  if (contents.info.container == "safetensors") contents.files.front() = std::move(store);
  return contents;
}

// The tensors of an index, of which each shard is read when it is first named.
class IndexedSet {
 public:
  IndexedSet(const MappedFile& index, const OpenOptions& options, Contents& contents)
      : index_(index),
        options_(options),
        contents_(contents),
        folder_(fs::path(index.path()).parent_path()),
        fence_(folder_.string()) {}

  // With options.parts, a tensor that cannot be had counts among the faults of its shard.
  void add(const std::string& tensor, const std::string& name) {
    // "a" and "./a" are one shard.
    const auto [found, is_new] = shards_.try_emplace(fs::path(name).lexically_normal().string());
    Shard& shard = found->second;
    std::vector<SourceFault>& faults = contents_.info.faults;
    try {
      if (is_new) load(shard, tensor, name);
      if (shard.loaded) {
        append(shard, tensor, name);
        return;
      }
    } catch (const Error& error) {
      if (!options_.parts || (options_.stop != nullptr && *options_.stop)) throw;
      if (!shard.fault) {
        shard.fault = faults.size();
        faults.push_back(
            {(folder_ / name).string(), error.what(), error.exit_code(), {}, shard.cause});
      }
    }
    faults[*shard.fault].tensors.push_back(tensor);
  }

  void finish() {
    for (SourceFault& fault : contents_.info.faults) {
      const std::size_t count = fault.tensors.size();
      fault.message += fmt::format("; {} tensor{} of the index {} left out", count,
                                   count == 1 ? "" : "s", printable(index_.path()));
    }
    const bool any_loaded = std::any_of(shards_.begin(), shards_.end(),
                                        [](const auto& shard) { return shard.second.loaded; });
    if (!any_loaded) all_safetensors_ = !index_.path().ends_with(".bin.index.json");
    contents_.info.container = all_safetensors_ ? "safetensors index" : "pytorch index";
  }

 private:
  struct Shard {
    Contents contents;
    std::unordered_map<std::string, std::size_t> positions;  // by name of tensor
    std::size_t first_file = 0;                              // in contents.files of the set
    bool loaded = false;
    SourceFault::Cause cause = SourceFault::Cause::kOther;  // while it is not loaded
    std::optional<std::size_t> fault;                       // index into info.faults
  };

  void load(Shard& shard, const std::string& tensor, const std::string& name) {
    const std::string path = (folder_ / name).string();
    std::error_code ignored;
    if (!fs::exists(path, ignored)) {
      shard.cause = SourceFault::Cause::kMissing;
      fail(index_, fmt::format("tensor {} is said to be in {}, but there is no such file",
                               in_quotes(tensor), printable(path, 512)));
    }
    if (!options_.follow_links && !fence_.holds(path)) {
      shard.cause = SourceFault::Cause::kOutside;
      fail(index_, fmt::format("tensor {} is said to be in {}, which is a link out of the folder "
                               "of the index (--follow-links reads it)",
                               in_quotes(tensor), printable(path, 512)));
    }
    shard.contents = read_shard(path, options_, open_);
    shard.first_file = contents_.files.size();
    for (std::size_t i = 0; i < shard.contents.tensors.size(); ++i) {
      shard.positions.emplace(shard.contents.tensors[i].name, i);
    }
    contents_.files.insert(contents_.files.end(), shard.contents.files.begin(),
                           shard.contents.files.end());
    contents_.info.bytes += shard.contents.info.bytes;
    all_safetensors_ &= shard.contents.info.container == "safetensors";
    shard.loaded = true;
  }

  void append(const Shard& shard, const std::string& tensor, const std::string& name) {
    const auto at = shard.positions.find(tensor);
    if (at == shard.positions.end()) {
      fail(index_, fmt::format("tensor {} is said to be in {}, but that file does not hold it",
                               in_quotes(tensor), in_quotes(name)));
    }
    Storage storage = shard.contents.storage[at->second];
    storage.file += shard.first_file;
    contents_.tensors.push_back(shard.contents.tensors[at->second]);
    contents_.storage.push_back(storage);
  }

  const MappedFile& index_;
  const OpenOptions& options_;
  Contents& contents_;
  const fs::path folder_;
  const Fence fence_;
  const std::shared_ptr<OpenShards> open_ = std::make_shared<OpenShards>();
  std::unordered_map<std::string, Shard> shards_;
  bool all_safetensors_ = true;
};

}  // namespace

std::vector<std::string> index_shards(const MappedFile& index) {
  std::vector<std::string> shards;
  std::unordered_set<std::string> seen;
  for (auto& [tensor, shard] : weight_map_of(index)) {
    if (seen.insert(shard).second) shards.push_back(std::move(shard));
  }
  return shards;
}

void append_index(const MappedFile& index, const OpenOptions& options, Contents& contents) {
  IndexedSet set(index, options, contents);
  for (const auto& [tensor, shard] : weight_map_of(index)) set.add(tensor, shard);
  set.finish();
}

}  // namespace fp4scope
