// doctest_main.cc: main of every test program. Exit code 0: all passed; 77: nothing failed and a
// test case said that it could not run (paths.h); 1: a check failed, or no test case was selected,
// so that a misspelt filter cannot pass.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "tests/support/paths.h"

namespace {

unsigned selected = 0;

struct CountSelected : doctest::IReporter {
  explicit CountSelected(const doctest::ContextOptions&) {}
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats& stats) override {
    selected = stats.numTestCasesPassingFilters;
  }
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};
REGISTER_LISTENER("selected", 1, CountSelected);

}  // namespace

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int failed = context.run();
  if (context.shouldExit()) return failed;  // a query such as --list-test-cases
  if (failed != 0) return 1;
  if (selected == 0) {
    std::printf("no test case was selected\n");
    return 1;
  }
  return fp4scope::test::any_skipped ? fp4scope::test::kSkippedExitCode : 0;
}
