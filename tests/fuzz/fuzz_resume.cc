// fuzz_resume.cc: a journal of `analyze --resume`. The first byte says what the rest is: the
// journal as it is, its settings, or what it keeps about one tensor; the latter two get the lengths
// and hashes around them that belong to them. Figures that are read are written and read again.
#include <xxhash.h>

#include <chrono>
#include <string>
#include <thread>

#include "analysis/resume.h"
#include "analysis/totals_record.h"
#include "sim/error.h"
#include "tests/fuzz/target.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"

namespace fp4scope::fuzz {
namespace {

constexpr std::string_view kMagic = "fp4scope resume 1\n";
constexpr std::size_t kRecipes = 3;
const RunSettings kSettings = {{"program", "fuzz"}, {"recipes", "nvfp4"}};

std::string frame(const std::string& payload) {
  const auto hash = [](const std::string& bytes) {
    return test::little_endian(XXH3_64bits(bytes.data(), bytes.size()), 8);
  };
  const std::string start = test::little_endian(payload.size(), 8) + hash(payload);
  return start + hash(start) + payload;
}

class Folder {
 public:
  Folder() {
    tensor_.name = "w";
    tensor_.file = dir_.file("data");
    tensor_.dtype = DType::kF32;
    tensor_.shape = {2, 3};
    test::write_file(tensor_.file, "24 bytes of some data...");
    // The journal keeps only what was not changed since it was opened, by a clock of a few
    // milliseconds.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    {
      ResumeJournal journal(path(), kSettings, [](const std::string&) {});
      journal.add(tensor_, FinishedTensor{});
    }
    // What a journal begins with, and the key of the tensor in the one record behind it.
    const std::string bytes = test::read_file(path());
    const std::size_t settings = frame_bytes(bytes, kMagic.size());
    begin_ = bytes.substr(0, kMagic.size() + settings);
    const std::size_t record = frame_bytes(bytes, begin_.size());
    RecordReader reader(std::string_view(bytes).substr(begin_.size() + 24, record - 24));
    RecordWriter key;
    key.text(reader.text());
    key_ = key.bytes();
  }
  std::string path() const { return dir_.file("report.json.resume"); }
  const TensorInfo& tensor() const { return tensor_; }
  const std::string& begin() const { return begin_; }  // the line and the settings
  const std::string& key() const { return key_; }

 private:
  static std::size_t frame_bytes(const std::string& bytes, std::size_t at) {
    std::size_t payload = 0;
    for (std::size_t i = 8; i-- > 0;) {
      payload = payload << 8 | static_cast<unsigned char>(bytes[at + i]);
    }
    return 24 + payload;
  }

  test::TempDir dir_;
  TensorInfo tensor_;
  std::string begin_, key_;
};

void check_again(const FinishedTensor& finished, std::size_t cells) {
  for (const Totals& totals : finished.totals) {
    RecordWriter written;
    write_totals(totals, written);
    RecordReader reader(written.bytes());
    RecordWriter again;
    write_totals(read_totals(reader, cells), again);
    require(again.bytes() == written.bytes(), "figures that were kept are read as others");
  }
}

}  // namespace

void run_resume(std::string_view bytes) {
  static const Folder folder;
  if (bytes.empty()) return;
  const auto mode = static_cast<unsigned char>(bytes.front()) % 4;
  const std::string rest(bytes.substr(1));
  if (mode == 0) test::write_file(folder.path(), rest);
  if (mode == 1) test::write_file(folder.path(), std::string(kMagic) + frame(rest));
  if (mode >= 2) test::write_file(folder.path(), folder.begin() + frame(folder.key() + rest));
  const std::size_t cells = mode == 3 ? 6 : 0;
  (void)accepts([&] {
    ResumeJournal journal(folder.path(), kSettings, [](const std::string& notice) {
      (void)accepts([&] { throw Error(ErrorKind::kData, notice); });
    });
    const auto found = journal.find(folder.tensor(), kRecipes, [&](std::size_t) { return cells; });
    if (found) check_again(*found, cells);
  });
}

}  // namespace fp4scope::fuzz
