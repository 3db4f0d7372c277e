// SPDX-License-Identifier: MIT
//
// A code object: the ELF file with the machine code of some kernels, parsed and checked, not yet
// anywhere. Parsing trusts nothing; what it accepts can be placed in memory without further checks
// of bounds. loader.h places it.
#ifndef MAINARCH_GPU_CODE_OBJECT_H_
#define MAINARCH_GPU_CODE_OBJECT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "isa/chip.h"
#include "isa/code_object.h"

namespace mainarch::gpu {

// One argument of a kernel, as its metadata lists them: the explicit ones, then those that the
// compiler adds ("hidden_block_count_x" and so on; hidden_arguments.h fills them).
struct CodeArgument {
  std::string kind;  // .value_kind
  uint32_t offset = 0;
  uint32_t size = 0;
};

struct CodeKernel {
  std::string name;
  uint64_t descriptor_vaddr = 0;  // from the image's start
  isa::KernelDescriptor descriptor = {};
  // From the metadata.
  uint32_t kernarg_bytes = 0;
  uint32_t max_workgroup = 1024;
  uint32_t sgpr_count = 0;
  uint32_t vgpr_count = 0;  // accumulators included
  uint32_t sgpr_spills = 0;
  uint32_t vgpr_spills = 0;
  std::vector<CodeArgument> arguments;
};

class CodeObject {
 public:
  // `name` is what errors call it. `bytes` may go afterwards.
  static StatusOr<CodeObject> Parse(absl::string_view name, absl::Span<const uint8_t> bytes);

  const std::string& name() const { return name_; }
  uint32_t elf_flags() const { return elf_flags_; }
  const std::string& target() const { return target_; }  // "amdgcn-amd-amdhsa--gfx950"
  absl::Span<const CodeKernel> kernels() const { return kernels_; }

  // Ok if this chip, with its ECC on and page retry off, can run it, and no kernel wants more
  // scratch a work-item than `scratch_bytes_per_lane`.
  Status CheckRunsOn(const isa::ChipFacts& chip, uint32_t scratch_bytes_per_lane) const;

  uint64_t image_size() const { return image_.size(); }
  // The image as it must stand at address `base`.
  std::vector<uint8_t> Relocate(uint64_t base) const;

 private:
  friend class CodeObjectParser;

  struct Relocation {
    uint64_t offset = 0;
    uint32_t type = 0;
    uint64_t value = 0;     // symbol + addend
    bool add_base = false;  // absolute symbols stay where they are
  };

  std::string name_;
  std::string target_;
  uint32_t elf_flags_ = 0;
  std::vector<uint8_t> image_;  // all segments in place, zeroes between
  std::vector<CodeKernel> kernels_;
  std::vector<Relocation> relocations_;
};

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_CODE_OBJECT_H_
