// natural_order.cc: see natural_order.h.
#include "analysis/io/natural_order.h"

#include <cstddef>

namespace fp4scope {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
// '/' comes first, behind it the bytes by value.
int rank_of(char c) {
  return c == '/' ? -1 : static_cast<unsigned char>(c);
}
// Takes the run of digits at the start of `rest`, without its leading zeros.
std::string_view take_number(std::string_view& rest) {
  std::size_t end = 0;
  while (end < rest.size() && is_digit(rest[end])) ++end;
  std::string_view number = rest.substr(0, end);
  rest.remove_prefix(end);
  while (number.size() > 1 && number.front() == '0') number.remove_prefix(1);
  return number;
}

}  // namespace

bool natural_less(std::string_view a, std::string_view b) {
  std::string_view x = a, y = b;
  while (!x.empty() && !y.empty()) {
    if (is_digit(x.front()) && is_digit(y.front())) {
      const std::string_view m = take_number(x), n = take_number(y);
      if (m.size() != n.size()) return m.size() < n.size();
      if (m != n) return m < n;
      continue;
    }
    if (x.front() != y.front()) return rank_of(x.front()) < rank_of(y.front());
    x.remove_prefix(1);
    y.remove_prefix(1);
  }
  if (x.empty() != y.empty()) return x.empty();
  return a < b;
}

}  // namespace fp4scope
