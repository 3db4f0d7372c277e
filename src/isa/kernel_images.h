// SPDX-License-Identifier: MIT
//
// The GPU kernels that ship inside the library: code objects as data, with what the build found in
// them. Read-only tables made at build time (kernels/meson.build); any thread. Loading an image on
// a device is gpu/'s business, interpreting it sim/'s.
#ifndef MAINARCH_ISA_KERNEL_IMAGES_H_
#define MAINARCH_ISA_KERNEL_IMAGES_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"

namespace mainarch::isa {

struct KernelInfo {
  absl::string_view name;
  uint32_t vgprs;  // both register files together, as the metadata counts
  uint32_t agprs;  // of these, accumulation registers
  uint32_t sgprs;
  uint32_t lds_bytes;      // static
  uint32_t kernarg_bytes;  // kernels/args.h Kernarg<Args>
  uint32_t threads;        // of a workgroup
  uint32_t code_bytes;
  // In the image's bytes, of a kernel that may be made to jump where it ends: its last instruction,
  // and 20 bytes that nothing runs, in reach of a branch from there; else 0.
  uint32_t end_at, way_back_at;
};

struct KernelImage {
  absl::string_view name;           // the source it was made of: "rows"
  absl::string_view isa;            // "gfx950"
  absl::Span<const uint8_t> bytes;  // an ELF file, 64-byte aligned
  absl::Span<const KernelInfo> kernels;
};

// By ISA, then by name.
absl::Span<const KernelImage> KernelImages();

struct KernelRef {
  const KernelImage* image;
  const KernelInfo* kernel;
};
// kNotFound names the ISA and the kernel.
StatusOr<KernelRef> FindKernel(absl::string_view isa, absl::string_view kernel);

// What one compute unit holds of a kernel at once, from registers, LDS and the chip's limits.
struct Occupancy {
  uint32_t waves_per_simd;
  uint32_t groups_per_cu;
  absl::string_view limit;  // "vgpr", "sgpr", "lds", "waves" or "groups"
};
// kUnsupported for an ISA without facts.
StatusOr<Occupancy> OccupancyOf(absl::string_view isa, const KernelInfo& kernel,
                                uint32_t dynamic_lds_bytes = 0);

// One line of the kernel list, for the command line.
struct KernelRow {
  absl::string_view isa;
  absl::string_view image;
  KernelInfo kernel;
  Occupancy occupancy;
};
// All kernels, or those of one ISA; in the order of KernelImages().
StatusOr<std::vector<KernelRow>> ListKernels(absl::string_view isa = {});

}  // namespace mainarch::isa

#endif  // MAINARCH_ISA_KERNEL_IMAGES_H_
