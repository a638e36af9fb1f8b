// container_files.cc: see container_files.h. The walk keeps its own stack: how deep folders nest is
// up to the tree.
#include "analysis/io/container_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "analysis/io/mapped_source.h"
#include "analysis/io/message.h"
#include "analysis/io/natural_order.h"
#include "analysis/io/tensor_source.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSafetensorsIndex = ".safetensors.index.json";
constexpr std::string_view kPytorchIndex = ".bin.index.json";

bool has_container_ending(std::string_view name) {
  static constexpr std::array<std::string_view, 10> kEndings = {
      ".safetensors", ".npy", ".npz", ".pt", ".pth", ".bin", ".ckpt", ".gguf", ".h5", ".hdf5"};
  return std::any_of(kEndings.begin(), kEndings.end(), [&](std::string_view ending) {
    return name.size() > ending.size() && name.ends_with(ending);
  });
}

// Many programs name files .bin. False also for a file that cannot be opened.
bool starts_like_container(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  std::array<char, 8> start{};
  const ssize_t got = ::read(fd, start.data(), start.size());
  ::close(fd);
  const std::string_view text(start.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  const bool is_pickle = text.size() > 1 && text[0] == '\x80' && text[1] >= 2 && text[1] <= 5;
  return is_pickle || text.starts_with("PK\x03\x04") || text.starts_with("PK\x05\x06") ||
         text.starts_with("GGUF") || text.starts_with("\x93NUMPY") || text.starts_with("\x89HDF");
}

using Id = std::pair<dev_t, ino_t>;
std::optional<Id> id_of(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return Id{status.st_dev, status.st_ino};
}

// An index and the paths that it names: they govern a folder and everything below.
struct Governor {
  std::string index;
  std::unordered_set<std::string> shards;
};

class Walk {
 public:
  Walk(const std::string& root, bool follow_links)
      : fence_(root), follows_links_(follow_links), root_(root) {}

  ContainerFiles run() {
    pending_.push_back({root_, nullptr});
    walk_folders();
    // Real files come first, so that a link to one of them adds nothing.
    while (!links_.empty()) {
      follows_ = true;
      std::vector<Link> links = std::exchange(links_, {});
      std::sort(links.begin(), links.end(), [](const Link& a, const Link& b) {
        return natural_less(a.path.native(), b.path.native());
      });
      for (const Link& link : links) follow(link);
      walk_folders();
    }
    std::sort(found_.files.begin(), found_.files.end(), natural_less);
    for (auto* notes : {&found_.skipped, &found_.errors}) {
      std::sort(notes->begin(), notes->end(),
                [](const auto& a, const auto& b) { return natural_less(a.path, b.path); });
    }
    return std::move(found_);
  }

 private:
  using Govern = std::shared_ptr<const Governor>;
  struct Folder {
    fs::path path;
    Govern governor;
  };
  struct Link {
    fs::path path;
    Govern governor;
  };
  struct Listing {
    std::vector<fs::path> files, folders, links, indexes;
  };

  void skip(const fs::path& path, const std::string& why) {
    found_.skipped.push_back({path.string(), printable(path.native()) + ": " + why});
  }
  void fail(const fs::path& path, const std::string& why) {
    found_.errors.push_back({path.string(), why});
  }

  std::optional<Listing> list(const fs::path& folder) {
    Listing listing;
    std::error_code error;
    fs::directory_iterator it(folder, error);
    for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
      const fs::path& path = it->path();
      const std::string name = path.filename().string();
      if (name.starts_with('.')) continue;
      std::error_code unknown;
      if (it->is_symlink(unknown)) {
        const bool is_index = is_index_name(name) && may_follow(path);
        (is_index ? listing.indexes : listing.links).push_back(path);
      } else if (it->is_directory(unknown)) {
        listing.folders.push_back(path);
      } else if (is_index_name(name)) {
        listing.indexes.push_back(path);
      } else if (has_container_ending(name)) {
        if (it->is_regular_file(unknown)) {
          listing.files.push_back(path);
        } else {
          skip(path, "not read, it is a pipe, socket or device");
        }
      }
    }
    if (!error) return listing;
    fail(folder, fmt::format("cannot read the directory {}: {}", printable(folder.native()),
                             error.message()));
    return std::nullopt;
  }

  // The index that governs `folder` from here on.
  Govern governor_of(const fs::path& folder, std::vector<fs::path> indexes) {
    const auto is_safetensors = [](const fs::path& index) {
      return index.native().ends_with(kSafetensorsIndex);
    };
    // Both hold the same weights; safetensors is preferred, as by transformers.
    const auto first_other = std::stable_partition(indexes.begin(), indexes.end(), is_safetensors);
    if (first_other != indexes.begin()) {
      for (auto other = first_other; other != indexes.end(); ++other) {
        skip(*other, fmt::format("not read, {} stands for this folder",
                                 printable(indexes.front().native())));
      }
      indexes.erase(first_other, indexes.end());
    }
    if (indexes.size() > 1) {
      std::sort(indexes.begin(), indexes.end());
      fail(folder,
           fmt::format("directory {} holds {} index files, expected one: name {} or another",
                       printable(folder.native()), indexes.size(),
                       printable(indexes.front().native())));
      return nullptr;
    }
    auto governor = std::make_shared<Governor>();
    governor->index = indexes.front().string();
    found_.files.push_back(governor->index);
    try {
      for (const std::string& shard : index_shards(MappedFile(governor->index))) {
        governor->shards.insert((folder / fs::path(shard).lexically_normal()).string());
      }
    } catch (const Error&) {
      // It is said where the index is opened.
    }
    return governor;
  }

  void walk_folders() {
    while (!pending_.empty()) {
      Folder folder = std::move(pending_.back());
      pending_.pop_back();
      const auto id = id_of(folder.path);
      if (id && !visited_.insert(*id).second) continue;
      std::optional<Listing> listing = list(folder.path);
      if (!listing) continue;
      if (!listing->indexes.empty() && folder.governor == nullptr) {
        folder.governor = governor_of(folder.path, std::move(listing->indexes));
        if (folder.governor == nullptr) continue;
      }
      for (const fs::path& file : listing->files) {
        if (!follows_ || is_new(file)) take(file, folder.governor);
      }
      for (fs::path& below : listing->folders) {
        pending_.push_back({std::move(below), folder.governor});
      }
      for (fs::path& link : listing->links) links_.push_back({std::move(link), folder.governor});
    }
  }

  // A file with the ending of a container.
  void take(const fs::path& file, const Govern& governor) {
    if (governor != nullptr) {
      if (!governor->shards.contains(file.string())) {
        skip(file, fmt::format("not read, the index {} of its folder does not name it",
                               printable(governor->index)));
      }
      return;
    }
    if (file.extension() == ".bin" && !starts_like_container(file)) {
      skip(file, "not read, its content is no container of tensors");
      return;
    }
    found_.files.push_back(file.string());
  }

  bool may_follow(const fs::path& link) const {
    return follows_links_ || fence_.holds(link.string());
  }

  void follow(const Link& link) {
    // A shard's link is judged where the index is opened.
    if (link.governor != nullptr && link.governor->shards.contains(link.path.string())) return;
    std::error_code error;
    const fs::file_status status = fs::status(link.path, error);
    const bool is_folder = fs::is_directory(status);
    if (!is_folder && !has_container_ending(link.path.native()) &&
        !is_index_name(link.path.native())) {
      return;
    }
    if (!fs::exists(status)) {
      fail(link.path,
           fmt::format("cannot read {}: the link leads nowhere ({})", printable(link.path.native()),
                       error ? error.message() : system_message(ENOENT)));
      return;
    }
    if (!may_follow(link.path)) {
      skip(link.path,
           "not read, the link leads out of the directory (--follow-links reads it too)");
      return;
    }
    if (is_folder) {
      pending_.push_back({link.path, link.governor});
      return;
    }
    if (!fs::is_regular_file(status)) {
      skip(link.path, "not read, it is a pipe, socket or device");
      return;
    }
    if (is_new(link.path)) take(link.path, link.governor);
  }

  // Not one of the files found so far by another path; asked for only when there is a link.
  bool is_new(const fs::path& file) {
    for (; ids_known_ < found_.files.size(); ++ids_known_) {
      if (const auto id = id_of(found_.files[ids_known_])) ids_.insert(*id);
    }
    const auto id = id_of(file);
    return !id || ids_.insert(*id).second;
  }

  Fence fence_;
  bool follows_links_;
  bool follows_ = false;  // the real files are done
  fs::path root_;
  std::vector<Folder> pending_;
  std::vector<Link> links_;
  std::set<Id> visited_;  // folders
  std::set<Id> ids_;
  std::size_t ids_known_ = 0;
  ContainerFiles found_;
};

}  // namespace

Fence::Fence(const std::string& folder) {
  std::error_code unknown;
  const fs::path root = fs::canonical(folder.empty() ? "." : folder, unknown);
  if (unknown) return;
  const auto add = [&](const fs::path& path) {
    roots_.push_back(path == "/" ? "/" : path.string() + '/');
  };
  add(root);
  for (const fs::path& repository : {root.parent_path(), root.parent_path().parent_path()}) {
    const fs::path blobs = repository / "blobs";
    const std::string snapshots = (repository / "snapshots").string();
    if ((root.string() + '/').starts_with(snapshots + '/') && fs::is_directory(blobs, unknown)) {
      // Not where a link of the tree leads.
      const fs::path real = fs::canonical(blobs, unknown);
      if (!unknown && real == repository / "blobs") add(real);
    }
  }
}

bool Fence::holds(const std::string& path) const {
  std::error_code unknown;
  const std::string real = fs::canonical(path, unknown).string();
  return !unknown && std::any_of(roots_.begin(), roots_.end(), [&](const std::string& root) {
    return (real + '/').starts_with(root);
  });
}

bool is_index_name(std::string_view name) {
  return name.ends_with(kSafetensorsIndex) || name.ends_with(kPytorchIndex);
}

ContainerFiles find_containers(const std::string& path, bool follow_links) {
  std::error_code unknown;
  if (!fs::is_directory(path, unknown)) return {{path}, {}, {}};
  return Walk(path, follow_links).run();
}

std::vector<std::string> container_files(const std::string& path, bool follow_links) {
  ContainerFiles found = find_containers(path, follow_links);
  if (!found.errors.empty()) throw Error(ErrorKind::kData, found.errors.front().message);
  if (!found.files.empty()) return std::move(found.files);
  throw Error(ErrorKind::kData, no_containers_message(path, found));
}

std::string no_containers_message(const std::string& path, const ContainerFiles& found) {
  if (!found.skipped.empty()) {
    return fmt::format("directory {} holds no tensors that can be read: {}", printable(path),
                       found.skipped.front().message);
  }
  return fmt::format(
      "directory {} holds no tensors, expected *.safetensors, *{}, *.npy, *.npz, *.pt, *.pth, "
      "*.bin, *.ckpt, *.gguf, *.h5 or *.hdf5 in it or below",
      printable(path), kSafetensorsIndex);
}

}  // namespace fp4scope
