fp4scope_test(golden_distributions LABEL golden SOURCES distributions_test.cc
  LIBS fp4scope::sim fp4scope_generate TIMEOUT 300)
