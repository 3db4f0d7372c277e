// SPDX-License-Identifier: MIT
//
// The embedded kernels: the index agrees with the objects, and occupancy follows from the facts. (kernels_cases sees that
// each has a case.)
#include <cstring>
#include <string>
#include <utility>

#include "isa/chip.h"
#include "isa/kernel_images.h"
#include "kernels/common/philox.h"
#include "kernels/gfx942/facts.h"
#include "kernels/gfx950/facts.h"
#include "kernels/resident_args.h"
#include "support/test.h"

namespace mainarch {
namespace {

using isa::KernelImage;
using isa::KernelInfo;

TEST(images_are_elf_files_for_their_chip) {
  CHECK_GT(isa::KernelImages().size(), 10u);
  for (const KernelImage& image : isa::KernelImages()) {
    CHECK_GT(image.bytes.size(), 4096u);
    CHECK_EQ(reinterpret_cast<uintptr_t>(image.bytes.data()) % 64, 0u);
    CHECK_EQ(std::memcmp(image.bytes.data(),
                         "\x7f"
                         "ELF\x02\x01\x01\x40\x04",
                         9),
             0);
    uint32_t flags;  // e_flags
    std::memcpy(&flags, image.bytes.data() + 48, 4);
    const kernels::Facts& facts =
        image.isa == "gfx942" ? kernels::gfx942::kFacts : kernels::gfx950::kFacts;
    CHECK_EQ(image.isa, facts.isa);
    CHECK_EQ(flags & 0xff, facts.elf_mach);
    CHECK(!image.kernels.empty());
  }
}

TEST(images_name_no_path_of_the_machine) {
  const std::string root = test::SourcePath("");
  if (root.size() < 4) SKIP("run by meson test, which names the source tree");
  for (const KernelImage& image : isa::KernelImages()) {
    const absl::string_view bytes(reinterpret_cast<const char*>(image.bytes.data()),
                                  image.bytes.size());
    CHECK(bytes.find(root) == absl::string_view::npos);
    CHECK(bytes.find("kernels/ops") != absl::string_view::npos);  // line tables are there
  }
}

TEST(kernels_are_found_by_name) {
  for (const KernelImage& image : isa::KernelImages()) {
    for (const KernelInfo& kernel : image.kernels) {
      const auto found = isa::FindKernel(image.isa, kernel.name);
      CHECK_OK(found);
      CHECK(found->image == &image);  // no two images hold a kernel of one name
      CHECK_EQ(kernel.threads, kernels::kThreads);
      CHECK_GT(kernel.code_bytes, 0u);
    }
  }
  const auto missing = isa::FindKernel("gfx942", "mxfp4_scaled");
  CHECK(!missing.ok());
  CHECK(CodeOf(missing.status()) == Code::kNotFound);
}

TEST(kernarg_sizes_are_those_of_the_structs) {
  using namespace kernels;
  const std::pair<const char*, size_t> sizes[] = {
      {"stream_read", sizeof(Kernarg<StreamReadArgs>)},
      {"fill", sizeof(Kernarg<FillArgs>)},
      {"copy", sizeof(Kernarg<CopyArgs>)},
      {"rmsnorm", sizeof(Kernarg<RmsNormArgs>)},
      {"rope", sizeof(Kernarg<RopeArgs>)},
      {"swiglu", sizeof(Kernarg<SwigluArgs>)},
      {"softmax", sizeof(Kernarg<SoftmaxArgs>)},
      {"pick", sizeof(Kernarg<PickArgs>)},
      {"bf16_gemv", sizeof(Kernarg<Bf16MatrixArgs>)},
      {"router", sizeof(Kernarg<RouterArgs>)},
      {"bf16_mfma", sizeof(Kernarg<Bf16MatrixArgs>)},
      {"mxfp4_gemv", sizeof(Kernarg<Mxfp4MatrixArgs>)},
      {"mxfp4_mfma", sizeof(Kernarg<Mxfp4MatrixArgs>)},
      {"quantize_mxfp4", sizeof(Kernarg<QuantizeMxfp4Args>)},
      {"pick_merge", sizeof(Kernarg<PickMergeArgs>)},
      {"ping_pong", sizeof(Kernarg<PingPongArgs>)},
      {"resident", sizeof(Kernarg<ResidentArgs>)},
      {"lds_dma_copy", sizeof(Kernarg<LdsDmaCopyArgs>)},
      {"probe_lanes", sizeof(Kernarg<ProbeArgs>)},
  };
  for (const char* isa : {"gfx942", "gfx950"}) {
    for (const auto& [name, size] : sizes) {
      const auto found = isa::FindKernel(isa, name);
      CHECK_OK(found);
      CHECK_EQ(found->kernel->kernarg_bytes, size);
    }
  }
}

KernelInfo Uses(uint32_t vgprs, uint32_t sgprs, uint32_t lds, uint32_t threads = 256) {
  return {.name = "k",
          .vgprs = vgprs,
          .agprs = 0,
          .sgprs = sgprs,
          .lds_bytes = lds,
          .kernarg_bytes = 0,
          .threads = threads,
          .code_bytes = 0,
          .end_at = 0,
          .way_back_at = 0};
}

TEST(occupancy_follows_from_registers_and_lds) {
  struct Row {
    const char* isa;
    KernelInfo kernel;
    uint32_t waves, groups;
    const char* limit;
  };
  const Row rows[] = {
      {"gfx942", Uses(24, 32, 0), 8, 8, "waves"},
      {"gfx942", Uses(64, 96, 0), 8, 8, "waves"},
      {"gfx942", Uses(65, 32, 0), 7, 7, "vgpr"},   // 72 of 512
      {"gfx942", Uses(129, 32, 0), 3, 3, "vgpr"},  // 136 of 512
      {"gfx942", Uses(512, 32, 0), 1, 1, "vgpr"},
      {"gfx942", Uses(24, 106, 0), 7, 7, "sgpr"},    // 112 of 800
      {"gfx942", Uses(24, 32, 16385), 3, 3, "lds"},  // 16896 of 65536
      {"gfx942", Uses(24, 32, 65536), 1, 1, "lds"},
      {"gfx950", Uses(24, 32, 16385), 8, 8, "waves"},  // 16640 of 163840: nine would fit
      {"gfx950", Uses(24, 32, 163840), 1, 1, "lds"},
      {"gfx950", Uses(24, 32, 0, 64), 8, 32, "waves"},
      {"gfx950", Uses(24, 32, 0, 128), 8, 16, "waves"},
      {"gfx950", Uses(24, 32, 81920, 1024), 8, 2, "waves"},
  };
  for (const Row& row : rows) {
    const auto got = isa::OccupancyOf(row.isa, row.kernel);
    CHECK_OK(got);
    CHECK_EQ(got->waves_per_simd, row.waves);
    CHECK_EQ(got->groups_per_cu, row.groups);
    CHECK_EQ(got->limit, row.limit);
  }
  const auto large = isa::OccupancyOf("gfx942", Uses(24, 32, 65536), 1);
  CHECK(CodeOf(large.status()) == Code::kInvalidArgument);
  CHECK(CodeOf(isa::OccupancyOf("gfx803", Uses(1, 1, 0)).status()) == Code::kUnsupported);
}

// The driver's facts and the kernels' are two tables, because one is compiled for the device.
TEST(facts_agree_with_those_of_the_driver) {
  for (const kernels::Facts& facts : {kernels::gfx942::kFacts, kernels::gfx950::kFacts}) {
    const isa::ChipFacts* chip = isa::ChipByName(facts.isa);
    CHECK(chip != nullptr);
    CHECK_EQ(chip->elf_mach, facts.elf_mach);
    CHECK_EQ(chip->lds_bytes, facts.lds_bytes);
    CHECK_EQ(chip->lds_granule, facts.lds_granule);
    CHECK_EQ(chip->max_vgprs, facts.vgprs_per_simd);
    CHECK_EQ(chip->has_ocp_fp8, facts.has_ocp_fp8);
  }
}

TEST(the_list_has_every_kernel_once) {
  const auto all = isa::ListKernels();
  CHECK_OK(all);
  size_t count = 0;
  for (const KernelImage& image : isa::KernelImages()) count += image.kernels.size();
  CHECK_EQ(all->size(), count);
  const auto some = isa::ListKernels("gfx950");
  CHECK_OK(some);
  CHECK(some->size() < all->size());
  for (const isa::KernelRow& row : *some) {
    CHECK_EQ(row.isa, "gfx950");
    CHECK_GE(row.occupancy.groups_per_cu, 1u);
  }
  CHECK(CodeOf(isa::ListKernels("gfx803").status()) == Code::kNotFound);
}

// Known answers of Random123, kat_vectors.
TEST(philox_gives_the_known_answers) {
  const auto check = [&](kernels::PhiloxBlock counter, uint32_t key0, uint32_t key1,
                         kernels::PhiloxBlock want) {
    const kernels::PhiloxBlock got = kernels::Philox(key0, key1, counter);
    for (int i = 0; i < 4; ++i) CHECK_EQ(got.word[i], want.word[i]);
  };
  check({{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  check({{~0u, ~0u, ~0u, ~0u}}, ~0u, ~0u, {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  check({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0,
        {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

}  // namespace
}  // namespace mainarch
