// pytorch_test.cc: PyTorch files assembled by hand: values through views of every kind, names of
// nested objects, stubs of unknown classes, numpy arrays, and files of torch.save.
#include <doctest/doctest.h>

#include <map>

#include "analysis/io/tensor_source.h"
#include "sim/error.h"
#include "tests/support/paths.h"
#include "tests/unit/pytorch_support.h"

using namespace fp4scope;
using namespace fp4scope::test::torch;
using fp4scope::test::little_endian;
using fp4scope::test::TempDir;
using Floats = std::vector<float>;

namespace {

// One storage "k" of `count` floats 0, 1, 2, ...
std::unique_ptr<TensorSource> opened(const TempDir& dir, const std::string& body, int count = 24) {
  const std::string path = dir.file("file.pt");
  test::write_file(path, legacy_file(body, {{"k", count, counting_floats(count)}}));
  return open_source(path);
}
// The first mention of the storage; later ones may be the same text.
std::string floats(int count = 24) {
  return storage_id("k", "FloatStorage", count);
}
std::string scalar(std::int64_t index) {
  return tensor(floats(), index, {}, {});
}

Floats values(const TensorSource& source, const std::string& name) {
  for (const TensorInfo& info : source.tensors()) {
    if (info.name != name) continue;
    Floats out(static_cast<std::size_t>(info.elements));
    source.read_f32(info, 0, info.rows(), 0, info.cols(), out.data());
    return out;
  }
  FAIL_CHECK("no tensor " << name);
  return {};
}

std::vector<std::string> names(const TensorSource& source) {
  std::vector<std::string> all;
  for (const TensorInfo& info : source.tensors()) all.push_back(info.name);
  return all;
}

// Names with the one value that each tensor holds.
std::map<std::string, float> scalars(const TensorSource& source) {
  std::map<std::string, float> all;
  for (const TensorInfo& info : source.tensors()) {
    float value = -1;
    source.read_f32(info, 0, 1, 0, 1, &value);
    all[info.name] = value;
  }
  return all;
}

std::string object(const std::string& name, const std::string& state) {
  return global("anybody", name) + ")\x81" + state + "b";
}

}  // namespace

TEST_CASE("views: whole, transposed, sliced, expanded, overlapping, 0-d and empty") {
  const TempDir dir;
  const struct {
    const char* name;
    std::int64_t offset;
    std::vector<std::int64_t> size, stride;
    Floats want;
  } cases[] = {
      {"whole", 0, {2, 3}, {3, 1}, {0, 1, 2, 3, 4, 5}},
      {"transposed", 0, {3, 2}, {1, 3}, {0, 3, 1, 4, 2, 5}},
      {"sliced", 13, {2, 2}, {6, 2}, {13, 15, 19, 21}},
      {"expanded rows", 4, {3, 2}, {0, 1}, {4, 5, 4, 5, 4, 5}},
      {"expanded columns", 4, {2, 3}, {1, 0}, {4, 4, 4, 5, 5, 5}},
      {"one value often", 23, {2, 2}, {0, 0}, {23, 23, 23, 23}},
      {"overlapping", 7, {3, 3}, {1, 1}, {7, 8, 9, 8, 9, 10, 9, 10, 11}},
      {"permuted", 0, {2, 2, 2}, {1, 4, 2}, {0, 2, 4, 6, 1, 3, 5, 7}},
      {"diagonal", 0, {4}, {5}, {0, 5, 10, 15}},
      {"last", 23, {}, {}, {23}},
      {"one row of a wild stride", 3, {1, 2}, {std::int64_t{1} << 61, 1}, {3, 4}},
      {"one column of a wild stride", 3, {2, 1}, {2, std::int64_t{1} << 61}, {3, 5}},
      {"empty", 24, {0, 5}, {5, 1}, {}},
      {"empty behind the end", 1000, {3, 0}, {1, 1}, {}},
  };
  std::vector<std::string> entries;
  for (const auto& c : cases) {
    entries.push_back(text(c.name));
    entries.push_back(tensor(floats(), c.offset, c.size, c.stride));
  }
  const auto source = opened(dir, dict(entries));
  CHECK(source->info().container == "pytorch legacy");
  REQUIRE(source->tensors().size() == std::size(cases));
  std::size_t i = 0;
  for (const auto& c : cases) {
    CAPTURE(std::string(c.name));
    const TensorInfo& info = source->tensors()[i++];
    CHECK(info.name == c.name);
    CHECK(info.shape == c.size);
    CHECK(info.dtype == DType::kF32);
    CHECK(values(*source, c.name) == c.want);
  }
}

TEST_CASE("a view of a storage, as the oldest files have it, counts from its start") {
  const TempDir dir;
  const std::string view = tuple({text("v"), number(10), number(4)});
  const auto source =
      opened(dir, dict({text("root"), scalar(1), text("view"),
                        tensor(storage_id("k", "FloatStorage", 24, view), 1, {3}, {1})}));
  CHECK(values(*source, "view") == Floats{11, 12, 13});
  CHECK_THROWS_WITH_AS(opened(dir, tensor(storage_id("k", "FloatStorage", 24, view), 2, {3}, {1})),
                       doctest::Contains("reach beyond the 4 elements of the storage"), Error);
}

TEST_CASE("names are the way to a tensor") {
  const TempDir dir;
  const struct {
    const char* what;
    std::string body;
    std::map<std::string, float> want;
  } cases[] = {
      {"a tensor alone has the name of the file", scalar(5), {{"file", 5}}},
      {"dict, list, tuple",
       dict({text("a"), list({scalar(1), tuple({kNone, scalar(2)})}), text("b.c"), scalar(3)}),
       {{"a.0", 1}, {"a.1.1", 2}, {"b.c", 3}}},
      {"keys that are no text",
       dict({number(7), scalar(1), kNone, scalar(2), kTrue, scalar(3),
             std::string("G\x3f\xe0") + std::string(6, '\0'), scalar(4), tuple({number(1)}),
             scalar(5), "C\x01k", scalar(6), text("\xff"), scalar(7), number(-3), scalar(8)}),
       {{"7", 1},
        {"None", 2},
        {"True", 3},
        {"0.5", 4},
        {"#4", 5},
        {"#5", 6},
        {"#6", 7},
        {"-3", 8}}},
      {"empty keys", dict({text(""), dict({text(""), scalar(1)})}), {{".", 1}}},
      {"a key that comes again replaces the value",
       dict({text("a"), scalar(1), text("b"), scalar(2), text("a"), scalar(3), number(1), scalar(4),
             kTrue, scalar(5)}),
       {{"a", 3}, {"b", 2}, {"1", 5}}},
      {"one name twice",
       dict({text("a.b"), scalar(1), text("a"), dict({text("b"), scalar(2)}), text("a.b#2"),
             scalar(3)}),
       {{"a.b", 1}, {"a.b#2", 2}, {"a.b#2#2", 3}}},
      {"sets",
       dict({text("s"), std::string("\x8f(") + scalar(1) + scalar(2) + "\x90"}),
       {{"s.0", 1}, {"s.1", 2}}},
      {"OrderedDict by items",
       global("collections", "OrderedDict") + ")R(" + text("w") + scalar(1) + "u" +
           dict({text("_metadata"), scalar(9)}) + "b",
       {{"w", 1}}},
      {"OrderedDict of pairs, as Python 2 wrote it",
       call(global("collections", "OrderedDict"), {list({tuple({text("w"), scalar(1)})})}),
       {{"w", 1}}},
      {"defaultdict",
       call(global("collections", "defaultdict"), {global("builtins", "list")}) + text("w") +
           scalar(1) + "s",
       {{"w", 1}}},
      {"set of protocol 2",
       call(global("__builtin__", "set"), {list({scalar(1), scalar(2)})}),
       {{"0", 1}, {"1", 2}}},
      {"an object by its attributes",
       object("Probe", dict({text("w"), scalar(1), text("inner"),
                             object("Probe", dict({text("x"), scalar(2)}))})),
       {{"w", 1}, {"inner.x", 2}}},
      {"slots",
       object("Slots", tuple({dict({text("d"), scalar(1)}), dict({text("s"), scalar(2)})})),
       {{"d", 1}, {"s", 2}}},
      {"a state of another kind", object("Odd", list({scalar(1)})), {{"0", 1}}},
      {"a module: the parts have no names",
       object("Net", dict({text("_parameters"), dict({text("w"), scalar(1)}), text("_buffers"),
                           dict({text("b"), scalar(2)}), text("_modules"),
                           dict({text("sub"),
                                 object("Net", dict({text("_parameters"), dict({}),
                                                     text("_buffers"), dict({}), text("_modules"),
                                                     dict({}), text("own"), scalar(3)}))})})),
       {{"w", 1}, {"b", 2}, {"sub.own", 3}}},
      {"no module: the parts keep their names",
       object("Net", dict({text("_parameters"), dict({text("w"), scalar(1)})})),
       {{"_parameters.w", 1}}},
      {"a call by the positions of its arguments",
       call(global("anybody", "make"), {scalar(1), text("x"), list({scalar(2)})}),
       {{"0", 1}, {"2.0", 2}}},
      {"Transformer Engine: a class method by getattr",
       call(call(global("builtins", "getattr"),
                 {global("transformer_engine.pytorch", "NVFP4Tensor"), text("_make_in_reduce_ex")}),
            {numbers({2, 2}), scalar(1)}),
       {{"1", 1}}},
      {"keyword arguments",
       global("anybody", "Class") + tuple({scalar(1)}) + dict({text("k"), scalar(2)}) + "\x92",
       {{"0", 1}, {"k", 2}}},
      {"OBJ and INST",
       list({std::string("(") + global("anybody", "C") + scalar(1) + "o",
             std::string("(") + scalar(2) + "ianybody\nC\n"}),
       {{"0.0", 1}, {"1.0", 2}}},
      {"a list object", global("anybody", "List") + ")\x81(" + scalar(1) + "e", {{"0", 1}}},
      {"TorchScript's lists",
       call(global("torch.jit._pickle", "build_tensorlist"), {list({scalar(1)})}),
       {{"0", 1}}},
      {"python attributes of a tensor",
       dict({text("t"),
             call(global("torch._tensor", "_rebuild_from_type_v2"),
                  {global("torch._utils", "_rebuild_tensor_v2"), global("anybody", "Tensor"),
                   tuple({floats(), number(1), ")", ")", kFalse, hooks()}),
                   dict({text("extra"), scalar(2)})})}),
       {{"t", 1}, {"t.extra", 2}}},
      {"parameters",
       list({call(global("torch._utils", "_rebuild_parameter"), {scalar(1), kTrue, hooks()}),
             call(global("torch._utils", "_rebuild_parameter_with_state"),
                  {scalar(2), kTrue, hooks(), dict({text("a"), scalar(3)})})}),
       {{"0", 1}, {"1", 2}, {"1.a", 3}}},
      {"the first version of the function",
       call(global("torch._utils", "_rebuild_tensor"), {floats(), number(4), ")", ")"}),
       {{"file", 4}}},
      {"torch.Size as the size",
       call(global("torch._utils", "_rebuild_tensor_v2"),
            {floats(), number(4), call(global("torch", "Size"), {numbers({1})}), numbers({1}),
             kFalse, hooks()}),
       {{"file", 4}}},
      {"sparse",
       call(global("torch._utils", "_rebuild_sparse_tensor"),
            {call(global("torch.serialization", "_get_layout"), {text("torch.sparse_coo")}),
             tuple({scalar(1), scalar(2), numbers({3})})}),
       {{"file.indices", 1}, {"file.values", 2}}},
      {"a list that holds itself",
       std::string("]q\x01") + scalar(1) +
           "ah\x01"
           "a",
       {{"0", 1}}},
      {"one list under two keys",
       dict({text("a"), std::string("]q\x01") + scalar(1) + "a", text("b"), "h\x01"}),
       {{"a.0", 1}, {"b.0", 1}}},
  };
  for (const auto& c : cases) {
    CAPTURE(std::string(c.what));
    CHECK(scalars(*opened(dir, c.body)) == c.want);
  }
}

TEST_CASE("numpy arrays inside a pickle are tensors") {
  const TempDir dir;
  const auto dtype = [](const char* type, const char* order) {
    return call(global("numpy", "dtype"), {text(type), kFalse, kTrue}) +
           tuple({number(3), text(order), kNone, kNone, kNone, number(-1), number(-1), number(0)}) +
           "b";
  };
  const auto array = [&](const std::string& shape, const std::string& type,
                         const std::string& fortran, const std::string& data) {
    return call(global("numpy.core.multiarray", "_reconstruct"),
                {global("numpy", "ndarray"), numbers({0}),
                 "C\x01"
                 "b"}) +
           tuple({number(1), shape, type, fortran, data}) + "b";
  };
  const auto bytes = [](const std::string& raw) {
    return joined({"B", little_endian(raw.size(), 4), raw});
  };
  const std::string six = counting_floats(6);
  // 1.0 and -2.0 in binary16 and big-endian binary32.
  const std::string halves("\x00\x3c\x00\xc0", 4);
  const std::string big("\x3f\x80\x00\x00\xc0\x00\x00\x00", 8);
  // The same halves as one character per byte: 0xC0 is U+00C0.
  const std::string latin =
      call(global("_codecs", "encode"), {text(std::string("\0<\0\xc3\x80", 5)), text("latin1")});
  const auto source = opened(
      dir,
      dict({text("c"),
            array(numbers({2, 3}), dtype("f4", "<"), kFalse, bytes(six)),
            text("fortran"),
            array(numbers({2, 3}), dtype("f4", "<"), kTrue, bytes(six)),
            text("half"),
            array(numbers({2}), dtype("f2", "<"), kFalse, bytes(halves)),
            text("latin1"),
            array(numbers({2}), dtype("f2", "<"), kFalse, latin),
            text("python2"),
            array(numbers({2}), dtype("f2", "<"), kFalse, std::string("U\x04") + halves),
            text("escaped"),
            array(numbers({2}), dtype("f2", "<"), kFalse, "S'\\x00<\\x00\\xc0'\n"),
            text("big"),
            array(numbers({2}), dtype("f4", ">"), kFalse, bytes(big)),
            text("empty"),
            array(numbers({0, 3}), dtype("f4", "<"), kFalse, bytes("")),
            text("buffer"),
            call(global("numpy._core.numeric", "_frombuffer"),
                 {std::string("\x96") + little_endian(six.size(), 8) + six, dtype("f4", "<"),
                  numbers({3, 2}), text("F")}),
            text("i8"),
            array(numbers({1}), dtype("i8", "<"), kFalse, bytes("12345678")),
            text("objects"),
            array(numbers({2}), dtype("O8", "|"), kFalse, list({kNone, scalar(9)})),
            text("scalar"),
            call(global("numpy.core.multiarray", "scalar"), {dtype("f4", "<"), bytes("abcd")})}));
  CHECK(values(*source, "c") == Floats{0, 1, 2, 3, 4, 5});
  CHECK(values(*source, "fortran") == Floats{0, 2, 4, 1, 3, 5});
  for (const char* name : {"half", "latin1", "python2", "escaped", "big"}) {
    CAPTURE(std::string(name));
    CHECK(values(*source, name) == Floats{1, -2});
  }
  CHECK(values(*source, "empty").empty());
  CHECK(values(*source, "buffer") == Floats{0, 3, 1, 4, 2, 5});
  CHECK(values(*source, "objects.1") == Floats{9});
  CHECK(names(*source) == std::vector<std::string>{"c", "fortran", "half", "latin1", "python2",
                                                   "escaped", "big", "empty", "buffer", "i8",
                                                   "objects", "objects.1"});
  std::map<std::string, std::string> texts;
  for (const TensorInfo& info : source->tensors()) texts[info.name] = info.dtype_text;
  CHECK(texts["big"] == ">f4");
  CHECK(texts["i8"] == "<i8");
  CHECK(texts["objects"] == "|O");
  for (const TensorInfo& info : source->tensors()) {
    if (info.name != "objects") continue;
    std::uint8_t out[64];
    CHECK_THROWS_AS(source->read_raw(info, 0, 1, 0, 2, out), Error);
  }

  const struct {
    std::string array;
    const char* fragment;
  } bad[] = {
      {array(numbers({3}), dtype("f4", "<"), kFalse, bytes("12345678")),
       "8 bytes of data, expected 12 for shape [3] of \"<f4\""},
      {array(numbers({std::int64_t{1} << 62, 4}), dtype("f4", "<"), kFalse, bytes("")),
       "whose size exceeds 64 bits"},
      {array(numbers({1}), dtype("f4", "<"), kFalse, number(4)), "an integer for the data"},
      {array(numbers({1}), text("f4"), kFalse, bytes("1234")), "a text for the dtype"},
      {array(numbers({-1}), dtype("f4", "<"), kFalse, bytes("1234")), "-1 for the shape"},
      {array(numbers({1}), dtype("u1", "|"), kFalse,
             call(global("_codecs", "encode"), {text("\xe2\x82\xac"), text("latin1")})),
       "character 0 is none of Latin-1"},
      {call(global("numpy._core.numeric", "_frombuffer"), {bytes("1234")}),
       "with 1 arguments, expected 4 or 5"},
  };
  for (const auto& c : bad) {
    CHECK_THROWS_WITH_AS(opened(dir, dict({text("t"), scalar(1), text("a"), c.array})),
                         doctest::Contains(c.fragment), Error);
  }
}

TEST_CASE("dtypes: by the storage class, by name, and what cannot be read") {
  const TempDir dir;
  const std::string path = dir.file("file.pt");
  const auto v3 = [](const std::string& dtype, std::int64_t elements) {
    return call(global("torch._utils", "_rebuild_tensor_v3"),
                {storage_id("k", "UntypedStorage", 8), number(0), numbers({elements}), numbers({1}),
                 kFalse, hooks(), global("torch", dtype)});
  };
  const struct {
    const char* name;
    std::int64_t elements;
    DType dtype;
  } cases[] = {{"float64", 1, DType::kF64},
               {"float32", 2, DType::kF32},
               {"float16", 4, DType::kF16},
               {"bfloat16", 4, DType::kBF16},
               {"float8_e4m3fn", 8, DType::kF8E4M3},
               {"float8_e5m2", 8, DType::kF8E5M2},
               {"float8_e8m0fnu", 8, DType::kF8E8M0},
               {"uint8", 8, DType::kU8},
               {"int8", 8, DType::kI8},
               {"int64", 1, DType::kOther},
               {"uint16", 4, DType::kOther},
               {"complex64", 1, DType::kOther},
               {"float8_e4m3fnuz", 8, DType::kOther},
               {"float4_e2m1fn_x2", 8, DType::kU8}};
  for (const auto& c : cases) {
    CAPTURE(std::string(c.name));
    test::write_file(path, legacy_file(v3(c.name, c.elements), {{"k", 8, "abcdefgh"}}));
    const auto source = open_source(path);
    REQUIRE(source->tensors().size() == 1);
    const TensorInfo& info = source->tensors()[0];
    CHECK(info.dtype == c.dtype);
    CHECK(info.dtype_text == c.name);
    CHECK(info.bytes == 8);
    std::string raw(8, '\0');
    source->read_raw(info, 0, 1, 0, c.elements, raw.data());
    CHECK(raw == "abcdefgh");
    // One element more than the storage has.
    test::write_file(path, legacy_file(v3(c.name, c.elements + 1), {{"k", 8, "abcdefgh"}}));
    CHECK_THROWS_AS(open_source(path), Error);
  }
  test::write_file(path, legacy_file(v3("float7", 1), {{"k", 8, "abcdefgh"}}));
  try {
    open_source(path);
    FAIL_CHECK("accepted");
  } catch (const Error& error) {
    CHECK(error.exit_code() == 4);
    CHECK(std::string(error.what()).find("the unknown dtype \"torch.float7\"") !=
          std::string::npos);
  }

  // Without bytes: listed, not readable.
  const auto source =
      opened(dir, dict({text("meta"),
                        call(global("torch._utils", "_rebuild_meta_tensor_no_storage"),
                             {global("torch", "float32"), numbers({1 << 20, 1 << 20}),
                              numbers({1 << 20, 1}), kFalse}),
                        text("real"), scalar(1)}));
  CHECK(names(*source) == std::vector<std::string>{"meta", "real"});
  CHECK(source->tensors()[0].shape == std::vector<std::int64_t>{1 << 20, 1 << 20});
  float out = 0;
  CHECK_THROWS_WITH_AS(source->read_f32(source->tensors()[0], 0, 1, 0, 1, &out),
                       doctest::Contains("\"float32 (meta)\""), Error);
}

TEST_CASE("files of torch.save: views and shared storages hold what the script put there") {
  const std::string folder = (test::source_dir() / "data/containers").string();
  for (const char* file : {"/views.pt", "/views_legacy.pt", "/views_deflated.pt"}) {
    CAPTURE(std::string(file));
    const auto source = open_source(folder + file);
    const Floats base = values(*source, "base");
    REQUIRE(base.size() == 60);
    for (std::size_t i = 0; i < 60; ++i) CHECK(base[i] == static_cast<float>(i));
    const Floats transposed = values(*source, "transposed");
    for (std::size_t i = 0; i < 60; ++i) {
      CHECK(transposed[i] == static_cast<float>(i % 5 * 12 + i / 5));
    }
    // base[1:4, 2:11:3]
    CHECK(values(*source, "sliced") == Floats{14, 17, 20, 26, 29, 32, 38, 41, 44});
    CHECK(values(*source, "scalar") == Floats{-1.25});
    CHECK(values(*source, "expanded_0d") == Floats(6, 2.5));
  }
  const auto shared = open_source(folder + "/shared.pt");
  CHECK(values(*shared, "tied_a") == values(*shared, "tied_b"));
  CHECK(names(*shared) ==
        std::vector<std::string>{"tied_a", "tied_b", "first_half", "second_half", "inner.again"});
}

TEST_CASE("the PyTorch files of ../shared hold the values of its safetensors file") {
  if (!test::have_shared("tensors/formats/w_zip.pt")) return;
  const std::string folder = (test::shared_dir() / "tensors/formats").string();
  const auto plain = open_source(folder + "/w_f32.safetensors");
  REQUIRE(plain->tensors().size() == 1);
  const Floats want = values(*plain, plain->tensors()[0].name);
  for (const char* file : {"/w_zip.pt", "/w_legacy.pt"}) {
    CAPTURE(std::string(file));
    const auto source = open_source(folder + file);
    CHECK(source->tensors().size() == 9);
    CHECK(values(*source, "w") == want);
    const Floats transposed = values(*source, "w_transposed");
    REQUIRE(transposed.size() == want.size());
    std::size_t different = 0;
    for (std::size_t r = 0; r < 172; ++r) {
      for (std::size_t c = 0; c < 64; ++c) {
        different += transposed[r * 64 + c] != want[c * 172 + r] ? 1 : 0;
      }
    }
    CHECK(different == 0);
  }
}
