fp4scope_test(render_test LABEL unit SOURCES render_test.cc
  LIBS fp4scope::analysis nlohmann_json::nlohmann_json)
fp4scope_test(float_environment_test LABEL unit SOURCES float_environment_test.cc
  LIBS fp4scope::formats)

# The dependency rules of the folders, and a run on a tree that breaks each of them.
add_test(NAME include_rules
  COMMAND bash ${PROJECT_SOURCE_DIR}/tests/include_rules.sh ${PROJECT_SOURCE_DIR})
add_test(NAME include_rules_sabotage
  COMMAND bash ${PROJECT_SOURCE_DIR}/tests/include_rules_sabotage.sh)
set_tests_properties(include_rules include_rules_sabotage PROPERTIES LABELS unit)
