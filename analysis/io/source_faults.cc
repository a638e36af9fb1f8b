// source_faults.cc: see source_faults.h.
#include "analysis/io/source_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace fp4scope {
namespace {

// Of broken shards each has a reason of its own: one more is told in full than of the other causes.
std::size_t most_told(SourceFault::Cause cause) {
  return cause == SourceFault::Cause::kOther ? 2 : 1;
}

std::string_view what_they_are(SourceFault::Cause cause, bool one) {
  switch (cause) {
    case SourceFault::Cause::kMissing:
      return one ? "is missing" : "are missing";
    case SourceFault::Cause::kOutside:
      return one ? "is a link out of the folder" : "are links out of the folder";
    case SourceFault::Cause::kOther:
      break;
  }
  return one ? "is broken or lacks tensors" : "are broken or lack tensors";
}

// Faults of one cause and exit code.
struct Group {
  SourceFault::Cause cause;
  int exit_code;
  std::size_t told = 0, more = 0, more_tensors = 0;
  std::size_t last = 0;  // of those told
};

}  // namespace

std::vector<SourceFault> wanted_faults(const std::vector<SourceFault>& faults,
                                       const std::function<bool(const std::string&)>& is_wanted) {
  std::vector<SourceFault> out;
  std::vector<Group> groups;
  for (const SourceFault& fault : faults) {
    if (std::none_of(fault.tensors.begin(), fault.tensors.end(), is_wanted)) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
      return g.cause == fault.cause && g.exit_code == fault.exit_code;
    });
    if (group == groups.end()) {
      groups.push_back({fault.cause, fault.exit_code});
      group = groups.end() - 1;
    }
    if (group->told < most_told(fault.cause)) {
      ++group->told;
      group->last = out.size();
      out.push_back(fault);
      continue;
    }
    ++group->more;
    group->more_tensors += fault.tensors.size();
    std::vector<std::string>& tensors = out[group->last].tensors;
    tensors.insert(tensors.end(), fault.tensors.begin(), fault.tensors.end());
  }
  for (const Group& group : groups) {
    if (group.more == 0) continue;
    out[group.last].message +=
        fmt::format("; {} more shard{} {}, with {} tensor{}", group.more,
                    group.more == 1 ? "" : "s", what_they_are(group.cause, group.more == 1),
                    group.more_tensors, group.more_tensors == 1 ? "" : "s");
  }
  return out;
}

}  // namespace fp4scope
