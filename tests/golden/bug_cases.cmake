fp4scope_test(golden_bug_cases LABEL golden
  SOURCES bug_cases_test.cc bug_cases_files_test.cc
  LIBS fp4scope::analysis fp4scope_oracle)
