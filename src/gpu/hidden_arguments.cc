// SPDX-License-Identifier: MIT
#include "gpu/hidden_arguments.h"

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace mainarch::gpu {
namespace {

// 0, 1, 2 for a name that ends in _x, _y, _z after `prefix`; -1 for another name.
int Dimension(absl::string_view kind, absl::string_view prefix) {
  if (!absl::ConsumePrefix(&kind, prefix) || kind.size() != 1) return -1;
  return kind[0] >= 'x' && kind[0] <= 'z' ? kind[0] - 'x' : -1;
}

uint64_t ValueOf(absl::string_view kind, const HiddenValues& v) {
  int d;
  const auto size = [&](int i) { return v.workgroup[static_cast<size_t>(i)]; };
  const auto grid = [&](int i) { return v.grid[static_cast<size_t>(i)]; };
  // Whole workgroups; a partial one is in the remainder.
  if ((d = Dimension(kind, "block_count_")) >= 0) return grid(d) / size(d);
  if ((d = Dimension(kind, "group_size_")) >= 0) return size(d);
  if ((d = Dimension(kind, "remainder_")) >= 0) return grid(d) % size(d);
  if (kind == "grid_dims") return v.grid[2] > 1 ? 3 : v.grid[1] > 1 ? 2 : 1;
  if (kind == "dynamic_lds_size") return v.dynamic_lds_bytes;
  if (kind == "queue_ptr") return v.queue;
  if (kind == "shared_base") return v.shared_base >> 32;
  if (kind == "private_base") return v.private_base >> 32;
  return 0;
}

}  // namespace

Status FillHiddenArguments(const CodeKernel& kernel, const HiddenValues& values,
                           absl::Span<uint8_t> kernarg) {
  for (const uint32_t size : values.workgroup) {
    if (size == 0) {
      return Error(Code::kInvalidArgument, "kernel ", kernel.name, ": workgroup size 0");
    }
  }
  for (const CodeArgument& argument : kernel.arguments) {
    absl::string_view kind = argument.kind;
    if (!absl::ConsumePrefix(&kind, "hidden_")) continue;
    const uint64_t end = uint64_t{argument.offset} + argument.size;
    if (end > kernarg.size() || argument.size > sizeof(uint64_t)) {
      return Error(Code::kInvalidArgument, "kernel ", kernel.name, ": argument ", argument.kind,
                   " of ", argument.size, " bytes at ", argument.offset, ", kernarg has ",
                   kernarg.size());
    }
    const uint64_t value = ValueOf(kind, values);
    memcpy(kernarg.data() + argument.offset, &value, argument.size);
  }
  return {};
}

}  // namespace mainarch::gpu
