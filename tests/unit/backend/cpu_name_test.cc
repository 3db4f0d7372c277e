// SPDX-License-Identifier: MIT
#include "backend/cpu/dispatch.h"
#include "support/test.h"

namespace mainarch::cpu {
namespace {

TEST(a_processor_has_the_name_that_it_is_given) {
  CHECK_EQ(CpuNameOf("processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Some: CPU @ 2 GHz\nmodel name\t: Another\n"),
           "Some: CPU @ 2 GHz");
  CHECK_EQ(CpuNameOf("model name :\n"), "CPU");
  CHECK_EQ(CpuNameOf(""), "CPU");
}

TEST(kernels_fetch_near_on_intels_processors_alone) {
  CHECK_EQ(NearBytes("GenuineIntel"), kNearBytes);
  for (const char* other : {"AuthenticAMD", "Arm", ""}) CHECK_EQ(NearBytes(other), size_t{0});
}

// As Linux writes it on AArch64, where cores may differ: the first.
TEST(a_core_of_arm_is_named_by_its_numbers) {
  constexpr char kBegin[] = "processor\t: 0\nBogoMIPS\t: 2100.00\nFeatures\t: fp asimd bf16\n";
  const auto name = [&](const std::string& lines) { return CpuNameOf(kBegin + lines); };
  CHECK_EQ(name("CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0xd40\nCPU revision\t: 1\n"),
           "Arm Neoverse V1");
  CHECK_EQ(name("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n"), "Arm Neoverse N1");
  // The same part of another maker is another core.
  CHECK_EQ(name("CPU implementer\t: 0x48\nCPU part\t: 0xd40\n"), "Arm CPU, maker 0x48, part 0xd40");
  CHECK_EQ(name("CPU implementer\t: 0xc0\nCPU part\t: 0xac3\n"), "Ampere-1");
}

}  // namespace
}  // namespace mainarch::cpu
