// generate_file_test.cc: files of synthetic tensors: the same bytes for any threads, dtypes,
// containers, profiles, hashes and errors. The numbers themselves: generate_streams_test.cc.
#include "analysis/generate_file.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "analysis/analyze.h"
#include "analysis/generate.h"
#include "analysis/generate_profile.h"
#include "analysis/io/sinks.h"
#include "sim/error.h"
#include "tests/support/paths.h"

using namespace fp4scope;

namespace {

constexpr GeneratedKind kAllKinds[] = {GeneratedKind::kNormal,          GeneratedKind::kLaplace,
                                       GeneratedKind::kStudent,         GeneratedKind::kUniform,
                                       GeneratedKind::kOutlierChannels, GeneratedKind::kLogNormal,
                                       GeneratedKind::kTieAligned};

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

GenerateOptions options_for(GeneratedKind kind, DType dtype, std::vector<std::int64_t> shape) {
  GenerateOptions options;
  options.kind = kind;
  options.dtype = dtype;
  options.shape = std::move(shape);
  options.seed = 12345678901234567890u;
  options.threads = 2;
  if (kind == GeneratedKind::kTieAligned) options.recipe = parse_recipe("mxfp4");
  return options;
}

// All values of one tensor of a file, widened.
std::vector<double> values_of(const std::string& path, std::size_t index = 0) {
  const auto source = open_source(path);
  const TensorInfo& tensor = source->tensors()[index];
  std::vector<double> values(static_cast<std::size_t>(tensor.elements));
  if (tensor.dtype == DType::kF64) {
    source->read_f64(tensor, 0, tensor.rows(), 0, tensor.cols(), values.data());
    return values;
  }
  std::vector<float> narrow(values.size());
  source->read_f32(tensor, 0, tensor.rows(), 0, tensor.cols(), narrow.data());
  std::copy(narrow.begin(), narrow.end(), values.begin());
  return values;
}

std::vector<double> generated(const GenerateOptions& options) {
  test::TempDir folder;
  generate_file(folder.file("x.safetensors"), options);
  return values_of(folder.file("x.safetensors"));
}

std::string message_of(const std::string& out, const GenerateOptions& options, ErrorKind kind) {
  try {
    generate_file(out, options);
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    return error.what();
  }
  return "no error";
}
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("files have the same bytes with 1, 2 and 3 threads, for every distribution and dtype") {
  test::TempDir folder;
  // More than a tile of rows, rows of more than a tile, and several dimensions.
  const std::vector<std::int64_t> shapes[] = {{1100, 1024}, {2, 1200000}, {3, 5, 7, 130}};
  for (const GeneratedKind kind : kAllKinds) {
    for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
      for (const auto& shape : shapes) {
        const bool is_wide = shape[0] == 2;
        if (is_wide && dtype != DType::kBF16) continue;  // time
        CAPTURE(generated_name(kind));
        CAPTURE(dtype_name(dtype));
        GenerateOptions options = options_for(kind, dtype, shape);
        std::string first;
        for (int threads = 1; threads <= 3; ++threads) {
          options.threads = threads;
          generate_file(folder.file("x.safetensors"), options);
          const std::string bytes = bytes_of(folder.file("x.safetensors"));
          if (threads == 1) first = bytes;
          CHECK(bytes == first);
        }
      }
    }
  }
}

TEST_CASE("tensor i of a file is the stream of tensor number i") {
  test::TempDir folder;
  GenerateOptions options = options_for(GeneratedKind::kNormal, DType::kF64, {7, 301});
  options.names = {"a", "b", "c"};
  generate_file(folder.file("x.safetensors"), options);
  for (std::uint32_t tensor = 0; tensor < 3; ++tensor) {
    std::vector<double> want(7 * 301);
    generate_f64(Distribution::kNormal, {options.seed, tensor}, 0, want);
    CHECK(values_of(folder.file("x.safetensors"), tensor) == want);
  }
}

TEST_CASE("the first tensor in f32 is generate(), other dtypes are its roundings") {
  const std::pair<GeneratedKind, Distribution> kinds[] = {
      {GeneratedKind::kNormal, Distribution::kNormal},
      {GeneratedKind::kLaplace, Distribution::kLaplace},
      {GeneratedKind::kUniform, Distribution::kUniform},
      {GeneratedKind::kLogNormal, Distribution::kLogNormal},
      {GeneratedKind::kStudent, Distribution::kStudent3}};
  for (const auto& [kind, distribution] : kinds) {
    CAPTURE(generated_name(kind));
    GenerateOptions options = options_for(kind, DType::kF32, {64, 257});
    options.df = 3;
    options.scale = 0.0625f;
    std::vector<float> want(64 * 257);
    generate(distribution, options.seed, 0, options.scale, want);
    const std::vector<double> f32 = generated(options);
    CHECK(std::equal(want.begin(), want.end(), f32.begin(), f32.end()));
    options.dtype = DType::kF64;
    const std::vector<double> f64 = generated(options);
    options.dtype = DType::kF16;
    const std::vector<double> f16 = generated(options);
    options.dtype = DType::kBF16;
    const std::vector<double> bf16 = generated(options);
    for (std::size_t i = 0; i < f32.size(); ++i) {
      CHECK(static_cast<float>(f64[i]) == want[i]);  // the scale is a power of two
      // Half a quantum of the smaller types; the even one of two equally near.
      const int e = f32[i] == 0 ? -200 : std::ilogb(f32[i]);
      const double quantum16 = std::ldexp(1.0, std::max(e, -14) - 10);
      const double quantum_b = std::ldexp(1.0, std::max(e, -126) - 7);
      CHECK(std::abs(f16[i] - f32[i]) * 2 <= quantum16);
      CHECK(std::abs(bf16[i] - f32[i]) * 2 <= quantum_b);
      if (std::abs(f16[i] - f32[i]) * 2 == quantum16)
        CHECK(std::fmod(f16[i] / quantum16, 2.0) == 0);
      if (std::abs(bf16[i] - f32[i]) * 2 == quantum_b)
        CHECK(std::fmod(bf16[i] / quantum_b, 2.0) == 0);
    }
  }
}

TEST_CASE("outlier channels without a profile: a share of columns, each times the factor") {
  GenerateOptions options = options_for(GeneratedKind::kOutlierChannels, DType::kF64, {20, 1000});
  options.outliers = 0.013;
  options.outlier_factor = 37;
  const std::vector<double> values = generated(options);
  options.kind = GeneratedKind::kNormal;
  const std::vector<double> z = generated(options);
  int outliers = 0;
  for (std::size_t c = 0; c < 1000; ++c) {
    const double factor = values[c] == z[c] ? 1 : 37;
    outliers += factor == 37;
    for (std::size_t r = 0; r < 20; ++r) CHECK(values[r * 1000 + c] == z[r * 1000 + c] * factor);
  }
  CHECK(outliers == 13);
  options.kind = GeneratedKind::kOutlierChannels;
  options.outliers = 0.0001;  // at least one
  const std::vector<double> one = generated(options);
  int differ = 0;
  for (std::size_t c = 0; c < 1000; ++c) differ += one[c] != z[c];
  CHECK(differ == 1);
}

TEST_CASE("outlier channels of a profile: x = z * amax / E") {
  test::TempDir folder;
  const std::vector<float> amax = {1.0f, 0.0f, 250.0f, 0.3f};
  {
    SafetensorsWriter writer(
        folder.file("p.safetensors"),
        {{"good", DType::kF32, {4}}, {"square", DType::kF32, {2, 2}}, {"bad", DType::kF32, {4}}},
        {});
    const std::vector<float> bad = {1.0f, -1.0f, 1.0f, 1.0f};
    writer.write(0, 0, amax.data(), 16);
    writer.write(1, 0, amax.data(), 16);
    writer.write(2, 0, bad.data(), 16);
    writer.commit();
  }
  const std::string file = folder.file("p.safetensors");
  GenerateOptions options = options_for(GeneratedKind::kOutlierChannels, DType::kF64, {512, 4});
  const std::vector<double> z = [&] {
    GenerateOptions plain = options;
    plain.kind = GeneratedKind::kNormal;
    return generated(plain);
  }();
  options.profile = file + ":good";
  for (const double e : {3.2515, 0.0}) {
    options.expected_max = e;
    const std::vector<double> values = generated(options);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double want = z[i] * double{amax[i % 4]} / (e > 0 ? e : 3.2483905370824904);
      CHECK(std::abs(values[i] - want) <= (e > 0 ? 1e-15 : 1e-9) * std::abs(want));
    }
  }
  const std::string out = folder.file("x.safetensors");
  const auto message = [&](const std::string& tensor) {
    options.profile = file + tensor;
    return message_of(out, options, ErrorKind::kData);
  };
  CHECK(contains(message(":square"), "expected the shape [4]"));
  CHECK(contains(message(":bad"), "found -1 at channel 1"));
  CHECK(contains(message(":none"), "holds no tensor \"none\""));
  CHECK(contains(message(""), "holds 3 tensors"));
  options.profile = file + ":good";
  CHECK(contains(message_of(file, options, ErrorKind::kUsage), "would replace the input file"));
  CHECK(!std::filesystem::exists(out));
}

TEST_CASE("column maxima of a real profile come back") {
  const std::string name = "tensors/llm_channel_amax_profiles.safetensors";
  if (!test::have_shared(name)) return;
  GenerateOptions options = options_for(GeneratedKind::kOutlierChannels, DType::kF32, {512, 2048});
  const std::string tensor = "opt-1.3b.model.decoder.layers.2.fc1.act_amax";
  options.profile = (test::shared_dir() / name).string() + ":" + tensor;
  const std::vector<double> values = generated(options);
  const ChannelProfile profile = read_profile(options.profile, 2048, "");
  double sum = 0;
  int channels = 0;
  for (std::size_t c = 0; c < 2048; ++c) {
    double largest = 0;
    for (std::size_t r = 0; r < 512; ++r)
      largest = std::max(largest, std::abs(values[r * 2048 + c]));
    if (profile.amax[c] == 0) continue;
    sum += largest / profile.amax[c];
    ++channels;
  }
  // The maximum of 512 normals has a standard deviation of 0.31 around 3.25.
  CHECK(std::abs(sum / channels - 1) <
        5 * (0.31 / 3.25) / std::sqrt(static_cast<double>(channels)));
}

TEST_CASE("the hash is the one that analyze prints, in both containers") {
  test::TempDir folder;
  for (const GeneratedKind kind : {GeneratedKind::kNormal, GeneratedKind::kTieAligned}) {
    for (const std::vector<std::int64_t>& shape :
         {std::vector<std::int64_t>{1030, 1024}, std::vector<std::int64_t>{1, 1200000}}) {
      for (const std::string name : {"x.safetensors", "x.npy"}) {
        const GenerateResult made =
            generate_file(folder.file(name), options_for(kind, DType::kF16, shape));
        AnalyzeOptions analysis;
        analysis.recipes = {parse_recipe("mxfp4")};
        const Report report = analyze({folder.file(name)}, analysis);
        REQUIRE(report.results.size() == 1);
        CHECK(report.results[0].source_hash == made.tensors[0].hash);
      }
    }
  }
}

TEST_CASE("npy and safetensors hold equal bytes, and the file says how it was made") {
  test::TempDir folder;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    GenerateOptions options = options_for(GeneratedKind::kStudent, dtype, {33, 65});
    options.df = 9;
    const GenerateResult made = generate_file(folder.file("x.safetensors"), options);
    generate_file(folder.file("x.npy"), options);
    const std::string a = bytes_of(folder.file("x.safetensors"));
    const std::string b = bytes_of(folder.file("x.npy"));
    const auto bytes = static_cast<std::size_t>(made.tensors[0].bytes);
    CHECK(bytes == 33 * 65 * static_cast<std::size_t>(dtype_bytes(dtype)));
    CHECK(a.substr(a.size() - bytes) == b.substr(b.size() - bytes));
    CHECK((b.size() - bytes) % 64 == 0);
    const auto npy = open_source(folder.file("x.npy"), {dtype == DType::kBF16 ? "bf16" : ""});
    CHECK(npy->tensors()[0].dtype == dtype);
    CHECK(npy->tensors()[0].shape == options.shape);
  }
  std::map<std::string, std::string> metadata;
  const auto source = open_source(folder.file("x.safetensors"));
  for (const auto& [key, value] : source->metadata()) metadata[key] = value;
  CHECK(metadata["distribution"] == "student-t");
  CHECK(metadata["df"] == "9");
  CHECK(metadata["seed"] == "12345678901234567890");
  CHECK(metadata["scale"] == "1");
  CHECK(metadata.count("fp4scope") == 1);
}

TEST_CASE("a one-dimensional npy file") {
  test::TempDir folder;
  generate_file(folder.file("x.npy"), options_for(GeneratedKind::kNormal, DType::kF32, {5}));
  CHECK(open_source(folder.file("x.npy"))->tensors()[0].shape == std::vector<std::int64_t>{5});
}

TEST_CASE("values beyond the dtype and options out of range are usage errors, without a file") {
  test::TempDir folder;
  const std::string out = folder.file("x.safetensors");
  GenerateOptions options = options_for(GeneratedKind::kNormal, DType::kF16, {64, 1024});
  options.scale = 20000;
  CHECK(contains(message_of(out, options, ErrorKind::kUsage), "use a smaller --scale"));
  options.scale = 3e38f;
  options.dtype = DType::kF32;
  CHECK(contains(message_of(out, options, ErrorKind::kUsage), "use a smaller --scale"));
  options.dtype = DType::kBF16;
  CHECK(contains(message_of(out, options, ErrorKind::kUsage), "use a smaller --scale"));
  options.scale = 1;
  CHECK(contains(message_of(folder.file("x.bin"), options, ErrorKind::kUsage), ".npy"));
  options.df = 101;
  CHECK(contains(message_of(out, options, ErrorKind::kUsage), "found 101"));
  options.df = 5;
  options.shape = {std::int64_t{1} << 40, std::int64_t{1} << 20};
  CHECK(contains(message_of(out, options, ErrorKind::kUsage), "2^57"));
  options.shape = {0, 3};
  CHECK(contains(message_of(out, options, ErrorKind::kUsage), "positive"));
  options.shape = {2, 3};
  options.names = {"x", "x"};
  CHECK(contains(message_of(out, options, ErrorKind::kUsage), "occurs twice"));
  CHECK_THROWS_WITH_AS(parse_generated("gauss"), doctest::Contains("normal, laplace, student-t"),
                       Error);
  std::atomic<bool> stop{true};
  options.names = {"x"};
  options.stop = &stop;
  CHECK(message_of(out, options, ErrorKind::kData) == "interrupted");
  CHECK(std::filesystem::is_empty(folder.path()));
}
