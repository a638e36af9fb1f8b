fp4scope_test(shared_oracle_vectors LABEL shared SOURCES oracle_vectors_test.cc
  LIBS fp4scope::oracle nlohmann_json::nlohmann_json TIMEOUT 120)
