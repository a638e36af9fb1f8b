// containers_expected_test.cc: this project's readers against what others wrote and read.
#include "tests/support/expected_containers.h"

using namespace fp4scope;

TEST_CASE("every tensor of data/containers has the bytes that its own reader finds") {
  test::check_folder("containers", test::source_dir() / "data/containers");
}

TEST_CASE("files that their own reader cannot read end in a sentence or leave the tensor out") {
  for (const auto& [file, tensor] : test::refused_there()) {
    CAPTURE(file);
    CAPTURE(tensor);
    if (!file.starts_with("containers/")) continue;
    const auto path = (test::source_dir() / "data" / file).string();
    try {
      const auto source = open_source(path, OpenOptions{});
      for (const TensorInfo& info : source->tensors()) {
        if (info.name != tensor) continue;
        std::vector<unsigned char> bytes(static_cast<std::size_t>(info.bytes) + 8);
        source->read_raw(info, 0, info.rows(), 0, info.cols(), bytes.data());
      }
    } catch (const Error& error) {
      const std::string text = error.what();
      CHECK(text.find('\n') == std::string::npos);
      CHECK(error.exit_code() >= 3);
    }
  }
}
