// hdf5_listing.cc: all datasets of a file, one entry per path of hard and soft links, in order of
// name. Groups inside themselves are not entered again; external links are not followed.
#include <string>
#include <unordered_set>

#include "analysis/io/hdf5_dataset.h"
#include "analysis/io/hdf5_worker.h"

namespace fp4scope {
namespace {

struct Link {
  std::string name;
  H5L_type_t type;
};

// A group on the way from the root to where the walk is.
struct Level {
  Hid group;
  haddr_t address;
  std::vector<Link> links;
  std::size_t next = 0;
  std::size_t path_bytes;  // of the path of its members up to their own name
};

bool take_links(hid_t group, std::vector<Link>& links) {
  const auto collect = [](hid_t, const char* name, const H5L_info_t* info, void* out) -> herr_t {
    static_cast<std::vector<Link>*>(out)->push_back({name, info->type});
    return 0;
  };
  hsize_t position = 0;
  return H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, &position, collect, &links) >= 0;
}

class Walk {
 public:
  Walk(hid_t file, std::int64_t file_bytes)
      : file_bytes_(file_bytes),
        // A link takes at least 16 bytes of the file, but groups can be reached in many ways.
        entries_left_(10'000 + file_bytes / 16),
        name_bytes_left_((std::int64_t{1} << 20) + 16 * file_bytes) {
    if (!enter(Hid(H5Gopen2(file, "/", H5P_DEFAULT)), "")) {
      failure_ = "its root group cannot be read: " + hdf5_error();
    }
  }

  // Empty, or why there is no listing.
  const std::string& failure() const { return failure_; }

  std::string run() {
    std::string listing;
    while (!levels_.empty() && failure_.empty()) {
      Level& level = levels_.back();
      path_.resize(level.path_bytes);
      if (level.next == level.links.size()) {
        ancestors_.erase(level.address);
        levels_.pop_back();
        continue;
      }
      const Link link = level.links[level.next++];
      visit(level.group.get(), link, path_ + link.name, listing);
    }
    return listing;
  }

 private:
  // False, with the error of the library pending, for a group that cannot be read.
  bool enter(Hid group, const std::string& path) {
    H5O_info_t info{};
    if (!group || H5Oget_info2(group.get(), &info, H5O_INFO_BASIC) < 0) return false;
    if (ancestors_.count(info.addr) != 0) return true;
    Level level{std::move(group), info.addr, {}, 0, path.size()};
    if (!take_links(level.group.get(), level.links)) return false;
    ancestors_.insert(info.addr);
    path_ = path;
    levels_.push_back(std::move(level));
    return true;
  }

  void visit(hid_t group, const Link& link, const std::string& path, std::string& listing) {
    if (link.type != H5L_TYPE_HARD && link.type != H5L_TYPE_SOFT) return;
    name_bytes_left_ -= static_cast<std::int64_t>(path.size());
    if (--entries_left_ < 0 || name_bytes_left_ < 0) {
      failure_ = "links lead to the same groups on so many paths that they are not listed";
      return;
    }
    if (path.size() > kHdf5LongestPath) {
      return add_damaged(
          path.substr(0, 100) + "...",
          {Hdf5Status::kData, "has a path of " + std::to_string(path.size()) +
                                  " bytes, expected at most " + std::to_string(kHdf5LongestPath)},
          listing);
    }
    const char* name = link.name.c_str();
    H5O_info_t info{};
    if (H5Oget_info_by_name2(group, name, &info, H5O_INFO_BASIC, H5P_DEFAULT) < 0) {
      // A soft link may lead nowhere. What a hard link leads to is there, and damaged.
      const Hdf5Failure failure = cannot_open();
      if (link.type == H5L_TYPE_HARD) add_damaged(path, failure, listing);
    } else if (info.type == H5O_TYPE_DATASET) {
      const Hid dataset(H5Dopen2(group, name, H5P_DEFAULT));
      if (!dataset) return add_damaged(path, cannot_open(), listing);
      Hdf5Dataset described = describe_dataset(dataset.get(), file_bytes_);
      described.name = path;
      append_record(described, listing);
    } else if (info.type == H5O_TYPE_GROUP) {
      // A damaged group is named like a tensor, so that it is no silent loss.
      if (!enter(Hid(H5Gopen2(group, name, H5P_DEFAULT)), path + '/')) {
        add_damaged(path, cannot_open(), listing);
      }
    }
  }

  static void add_damaged(const std::string& path, const Hdf5Failure& failure,
                          std::string& listing) {
    Hdf5Dataset bad = unreadable_dataset(failure.status, failure.reason);
    bad.name = path;
    append_record(bad, listing);
  }

  std::int64_t file_bytes_, entries_left_, name_bytes_left_;
  std::string failure_;
  std::vector<Level> levels_;
  std::unordered_set<haddr_t> ancestors_;
  std::string path_;  // of the group where the walk is
};

}  // namespace

bool list_hdf5(hid_t file, std::int64_t file_bytes, std::string& listing) {
  Walk walk(file, file_bytes);
  listing = walk.run();
  if (walk.failure().empty()) return true;
  listing = walk.failure();
  return false;
}

}  // namespace fp4scope
