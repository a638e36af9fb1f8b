fp4scope_test(unit_philox LABEL unit SOURCES philox_test.cc LIBS fp4scope::formats)
fp4scope_test(unit_rounding LABEL unit SOURCES rounding_test.cc LIBS fp4scope::formats)
