// name_pattern_test.cc: what file and tensor names say. The names are those that the programs write
// (data/containers/README.md and analysis/name_pattern.cc say where that is documented); the values
// were read off by hand.
#include "analysis/name_pattern.h"

#include <doctest/doctest.h>

#include "analysis/io/natural_order.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

TEST_CASE("natural order counts, keeps folders together and is strict") {
  const std::vector<std::string> ordered = {"",
                                            "a",
                                            "a/9",
                                            "a/10",
                                            "a.b",
                                            "a01",
                                            "a1",
                                            "a2",
                                            "a10",
                                            "a10b",
                                            "b",
                                            "iter_2/x",
                                            "iter_10/x",
                                            "iter_10/x2",
                                            "iter_99999999999999999998",
                                            "iter_99999999999999999999",
                                            "\x80"};
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    for (std::size_t k = 0; k < ordered.size(); ++k) {
      CAPTURE(ordered[i]);
      CAPTURE(ordered[k]);
      CHECK(natural_less(ordered[i], ordered[k]) == (i < k));
    }
  }
}

struct Case {
  const char *below, *tensor;
  const char* text;  // name_fields_text()
};

TEST_CASE("the built-in rules read the names of common dump trees") {
  const NamePatterns patterns;
  for (const Case& c : std::initializer_list<Case>{
           // TransformerEngine
           {"tensor_dumps/rank_0/decoder.layers.12.mlp.fc1_activation_iter_000005.pt",
            "high_precision", "layer 12, step 5, rank 0, role activation.high_precision"},
           {"rank_3/decoder.layers.0.mlp.fc1_gradient_iter_000010.pt", "quantized.0",
            "layer 0, step 10, rank 3, role gradient.quantized"},
           {"rank_0/decoder.layers.0.mlp.fc2_weight_iter_000005.pt", "rowwise_data",
            "layer 0, step 5, rank 0, role weight.rowwise_data"},
           {"rank_1/iter_000005/decoder.layers.0.mlp.fc1_activation.pt", "high_precision",
            "layer 0, step 5, rank 1, role activation.high_precision"},
           {"rank_1/decoder.layers.7.fc1_wgrad_iter_3.npy", "decoder.layers.7.fc1_wgrad_iter_3",
            "layer 7, step 3, rank 1, role wgrad"},
           // SGLang, and the capture hook for vLLM
           {"TP0_PP1_Rank5_pid4242/Pass00007.pt", "model.layers.3.self_attn.qkv_proj",
            "layer 3, step 7, rank 5"},
           {"TP0_PP0_Rank0_pid4242/Pass00000.pt", "lm_head", "step 0, rank 0"},
           {"dump_1700000000/step=4___rank=2___dump_index=1___name=layer_start__hidden_states___"
            "recompute_status=disabled___layer_id=9.pt",
            "value", "layer 9, step 4, rank 2, role layer_start__hidden_states"},
           {"sglang_dump_1700000000.5_6/forward_pass_id=1___name=residual.pt", "x",
            "step 1, rank 6, role residual"},
           {"Pass0.pt", "model.layers.1.mlp.0", "layer 1, step 0"},
           // Megatron
           {"iter_0000100/mp_rank_03/model_optim_rng.pt",
            "model.decoder.layers.11.mlp.linear_fc1.weight", "layer 11, step 100, rank 3"},
           {"iter_0000005/mp_rank_00_001/model_optim_rng.pt", "x", "step 5, rank 00_001"},
           {"iter_0000005/mp_rank_00_000_000/decoder_layers_4_mlp_linear_fc1__activation__mb00.pt",
            "x", "layer 4, step 5, rank 00_000_000, role activation"},
           // transformers and what trains with it
           {"checkpoint-500/model.safetensors", "model.layers.12.mlp.down_proj.weight",
            "layer 12, step 500"},
           {"model.safetensors", "model.layers.2.mlp.experts.5.up_proj.weight",
            "layer 2, expert 5"},
           {"global_step_20/actor/model_world_size_8_rank_3.pt",
            "transformer.h.3.attn.c_attn.weight", "layer 3, step 20, rank 3"},
           {"global_step1000/x.pt", "visual.blocks.7.norm1.weight", "layer 7, step 1000"},
           {"m.gguf", "blk.9.ffn_down.weight", "layer 9"},
           {"m.safetensors", "encoder.layer.11.output.dense.weight", "layer 11"},
           // Nothing to be read there.
           {"model.safetensors", "lm_head.weight", ""},
           {"w.npy", "w", ""},
           {"stepped/iterate.pt", "graph.0.blockset.3.players.4.weight", ""},
           {"lora_rank_16/a.pt", "branch.3.weight", ""},
           // The tensor's own number before that of its file.
           {"layers.5.pt", "layers.6.w", "layer 6"},
           {"layers.5.pt", "w", "layer 5"},
           // A number that no integer holds stays text.
           {"x.pt", "layers.99999999999999999999.w", "layer 99999999999999999999"},
       }) {
    CAPTURE(c.below);
    CAPTURE(c.tensor);
    CHECK(name_fields_text(patterns.fields({c.below, c.below, c.tensor})) == c.text);
  }
}

TEST_CASE("what stands above the named directory counts only where nothing below does") {
  const NamePatterns patterns;
  CHECK(name_fields_text(patterns.fields({"a_weight.pt", "/x/iter_7/rank_2/a_weight.pt", "w"})) ==
        "step 7, rank 2, role weight");
  CHECK(name_fields_text(patterns.fields({"iter_8/a.pt", "/x/iter_7/iter_8/a.pt", "w"})) ==
        "step 8");
}

TEST_CASE("expressions of the user come before the rules, field by field") {
  const TensorPath path{"it7/L3.weird_weight.pt", "/d/it7/L3.weird_weight.pt", "layers.9.w\n\xff"};
  const auto text = [&](const std::vector<std::string>& expressions) {
    return name_fields_text(NamePatterns(expressions).fields(path));
  };
  CHECK(text({R"(it(?P<step>\d+)/)"}) == "layer 9, step 7, role weight");
  CHECK(text({R"(L(?P<layer>\d+)\.)"}) == "layer 3, role weight");
  // The first that captures something wins; one that matches emptily gives nothing.
  CHECK(text({R"((?P<layer>x?)it)", R"(it(?P<layer>\d+))", R"(L(?P<layer>\d+))"}) ==
        "layer 7, role weight");
  CHECK(text({R"(^it(?P<step>\d)/(?P<expert>L\d)\.(?P<role>[a-z]+)_.*:(?P<rank>.))"}) ==
        "layer 9, step 7, rank l, expert L3, role weird");
  // ^ is the start of the path below the directory, else of the whole one.
  CHECK(text({"^/d/(?P<role>it.)"}) == "layer 9, role it7");
  // A role is text, even of digits.
  const NameFields fields = NamePatterns({R"(it(?P<role>\d))"}).fields(path);
  CHECK(std::holds_alternative<std::string>(fields[4]));
  CHECK(std::holds_alternative<std::int64_t>(fields[0]));
}

TEST_CASE("expressions without known groups are refused with the names that exist") {
  struct Bad {
    const char *expression, *sentence;
  };
  for (const Bad& bad : std::initializer_list<Bad>{
           {"(?P<layers>x)", "has the group 'layers', expected layer, step, rank, expert, role"},
           {"(x)", "has no named group"},
           {"(", "is not a regular expression"},
       }) {
    CAPTURE(bad.expression);
    try {
      const NamePatterns patterns({bad.expression});
      FAIL_CHECK("accepted");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kUsage);
      CHECK(std::string(error.what()).find(bad.sentence) != std::string::npos);
      CHECK(std::string(error.what()).find("--name-pattern '") == 0);
    }
  }
}

TEST_CASE("numbers stay numbers only when 64 bits hold them") {
  CHECK(name_value("007") == Value(std::int64_t{7}));
  CHECK(name_value("-1") == Value(std::int64_t{-1}));
  CHECK(name_value("9223372036854775807") == Value(std::int64_t{9223372036854775807}));
  CHECK(name_value("9223372036854775808") == Value(std::string("9223372036854775808")));
  CHECK(name_value("1x") == Value(std::string("1x")));
  CHECK(name_value("") == Value(std::string()));
}

}  // namespace
}  // namespace fp4scope
