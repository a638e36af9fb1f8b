fp4scope_test(recipe_test LABEL unit SOURCES recipe_test.cc LIBS fp4scope::sim)
fp4scope_test(generate_test LABEL unit SOURCES generate_test.cc
  LIBS fp4scope_generate Threads::Threads)
