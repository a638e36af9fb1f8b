// container_files.h: which files of a directory hold tensors, by the endings of their names. A
// directory is walked with its subfolders, as dump trees need; what a link leads to outside of it
// is not read.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace fp4scope {

// Whether a path lies inside a directory once every link is followed. The blobs/ folder beside
// snapshots/ counts as inside, for that is where the Hugging Face cache keeps the files of a
// snapshot.
class Fence {
 public:
  explicit Fence(const std::string& folder);
  // False for what leads nowhere.
  bool holds(const std::string& path) const;

 private:
  std::vector<std::string> roots_;  // canonical, with a '/' behind them
};

// safetensors (model.safetensors.index.json) or PyTorch (pytorch_model.bin.index.json).
bool is_index_name(std::string_view name);

struct ContainerFiles {
  struct Note {
    std::string path, message;  // one sentence that begins with the path
  };
  std::vector<std::string> files;  // in natural order of their paths (natural_order.h)
  std::vector<Note> skipped;       // containers that are left out
  std::vector<Note> errors;        // folders and links that cannot be read
};
// `path` itself when it is no directory. Otherwise its files, and those of its subfolders, whose
// names end with .safetensors .npy .npz .pt .pth .ckpt .gguf .h5 .hdf5, or .bin where the content
// is one of these. An index stands for its folder and what is below: the files that it names are
// its shards, others are skipped. Hidden files are left out. Links inside the directory give each
// file once; those that leave it are skipped unless `follow_links`. Nothing is opened but .bin
// files and indexes.
ContainerFiles find_containers(const std::string& path, bool follow_links = false);
// The sentence about a directory in which nothing was found.
std::string no_containers_message(const std::string& path, const ContainerFiles& found);

}  // namespace fp4scope
