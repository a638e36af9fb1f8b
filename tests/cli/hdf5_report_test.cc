// analyze --out FILE.h5 from the command line, against the JSON of the same run; and HDF5 input.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "analysis/io/hdf5_library.h"
#include "tests/cli/process.h"
#include "tests/support/hdf5_files.h"

using namespace fp4scope;
using namespace fp4scope::test;
using nlohmann::json;

TEST_CASE("the figures and maps of the HDF5 report are those of the JSON report") {
  const TempDir folder;
  const std::string h5 = folder.file("r.h5"), js = folder.file("r.json");
  const Result result = run({"analyze", kSample, "-r", "mxfp4", "-r", "nvfp4:select=mse",
                             "--map-size", "8", "--out", h5, "--out", js, "--threads", "1"});
  REQUIRE(result.code == 0);
  const json report = json::parse(read_file(js));
  const Hid file(H5Fopen(h5.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
  REQUIRE(file);
  const auto check_rows = [&](const std::string& list) {
    int checked = 0, undefined = 0;
    for (std::size_t i = 0; i < report[list].size(); ++i) {
      char name[32];
      std::snprintf(name, sizeof name, "%s/%04zu", list.c_str(), i);
      const Hid group(H5Gopen2(file.get(), name, H5P_DEFAULT));
      REQUIRE(group);
      for (const auto& [key, value] : report[list][i].items()) {
        CAPTURE(key);
        if (value.is_array() || value.is_object() || value.is_string()) continue;
        const Hid attribute(H5Aopen(group.get(), key.c_str(), H5P_DEFAULT));
        REQUIRE(attribute);
        const Hid space(H5Aget_space(attribute.get()));
        if (value.is_null()) {
          CHECK(H5Sget_simple_extent_type(space.get()) == H5S_NULL);
          ++undefined;
        } else if (value.is_number()) {
          double number = 0;
          REQUIRE(H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, &number) >= 0);
          CHECK(number == value.get<double>());
          ++checked;
        }
      }
      for (const char* map : {"elements", "underflow", "squared_error", "scale_code_sum"}) {
        if (!report[list][i].contains("maps")) continue;
        const json& want = report[list][i]["maps"][map];
        const Hid data(H5Dopen2(group.get(), (std::string("maps/") + map).c_str(), H5P_DEFAULT));
        std::vector<double> values(want.size());
        REQUIRE(H5Dread(data.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                        values.data()) >= 0);
        CHECK(values == want.get<std::vector<double>>());
      }
    }
    CHECK(checked > 30 * static_cast<int>(report[list].size()));
    return undefined;
  };
  CHECK(report["results"].size() == 8);
  CHECK(check_rows("results") > 0);
  check_rows("aggregates");
}

TEST_CASE("two runs write the same HDF5 report") {
  const TempDir folder;
  std::string texts[2];
  for (std::string& text : texts) {
    const std::string path = folder.file("r.h5");
    REQUIRE(run({"analyze", kSample, "--map-size", "4", "--out", path}).code == 0);
    text = read_file(path);
  }
  CHECK(texts[0] == texts[1]);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"r.h5"});
}

TEST_CASE("a dataset that needs a missing filter or is damaged does not hide the others") {
  const TempDir folder;
  const std::string path = folder.file("t.h5");
  {
    Hdf5File file(path);
    const std::vector<float> values(64, 1.25f);
    file.write("good", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {2, 32}, values);
    const hsize_t origin[] = {0, 0};
    // A filter that nobody has: optional, so that the library creates the dataset.
    Hid strange = Hdf5File::chunked({2, 32});
    H5Pset_filter(strange.get(), 511, H5Z_FLAG_OPTIONAL, 0, nullptr);
    const Hid filtered = file.create("filtered", H5T_IEEE_F32LE, {2, 32}, strange);
    REQUIRE(H5Dwrite_chunk(filtered.get(), H5P_DEFAULT, 0, origin, 3, "abc") >= 0);
    Hid gzip = Hdf5File::chunked({2, 32});
    H5Pset_deflate(gzip.get(), 1);
    const Hid damaged = file.create("damaged", H5T_IEEE_F32LE, {2, 32}, gzip);
    REQUIRE(H5Dwrite_chunk(damaged.get(), H5P_DEFAULT, 0, origin, 3, "abc") >= 0);
  }
  const Result result = run({"analyze", path, "-r", "mxfp4", "--json"});
  CHECK(result.code == 4);  // the highest
  const json out = json::parse(result.out);
  REQUIRE(out["results"].size() == 1);
  CHECK(out["results"][0]["tensor"] == "good");
  CHECK(out["sources"][0]["container"] == "hdf5");
  REQUIRE(out["errors"].size() == 2);
  CHECK(out["errors"][0]["exit_code"] == 3);
  CHECK(out["errors"][1]["exit_code"] == 4);
  const std::string sentence = out["errors"][1]["message"];
  CHECK(sentence.find("a filter that the HDF5 library does not find here: without a name (number "
                      "511, a plug-in in a folder that HDF5_PLUGIN_PATH names)") !=
        std::string::npos);
  const Result info = run({"info", path});
  CHECK(info.code == 0);
  CHECK(info.out.find("filtered") != std::string::npos);
}
