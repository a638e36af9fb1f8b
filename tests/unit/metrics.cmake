fp4scope_test(unit_metrics LABEL unit
  SOURCES metrics_test.cc metrics_runs_test.cc metrics_reference.cc metrics_compare.cc
  LIBS fp4scope::analysis fp4scope_oracle TIMEOUT 300)
