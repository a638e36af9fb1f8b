fp4scope_test(readers_test LABEL unit SOURCES readers_test.cc LIBS fp4scope_io)
fp4scope_test(readers_malformed_test LABEL unit SOURCES readers_malformed_test.cc LIBS fp4scope_io)
fp4scope_test(sinks_test LABEL unit SOURCES sinks_test.cc LIBS fp4scope_io
  nlohmann_json::nlohmann_json)
fp4scope_test(quantize_file_test LABEL unit SOURCES quantize_file_test.cc LIBS fp4scope::analysis
  fp4scope_oracle nlohmann_json::nlohmann_json)
