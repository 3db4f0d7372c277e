// SPDX-License-Identifier: MIT
//
// The same sources at every optimisation level, under every checker: nothing is flagged, and the
// results are those of the shipped objects, bit for bit. Of a few small objects; of all in a build
// with -Dkernel_matrix=true. MAINARCH_KERNEL_LEVELS=O1+Os keeps to these.
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "support/test.h"
#include "unit/kernels/run_fresh.h"

namespace mainarch::kernels_test {
namespace {

// The object of another optimisation level, from the build tree.
StatusOr<Bytes> ObjectAt(const std::string& level, const std::string& isa,
                         const std::string& kernel) {
  ASSIGN_OR_RETURN(const isa::KernelRef found, isa::FindKernel(isa, kernel));
  const char* root = std::getenv("MAINARCH_BUILD_ROOT");
  const std::string path = absl::StrCat(root == nullptr ? "." : root, "/kernels/",
                                        found.image->name, ".", isa, ".", level, ".hsaco");
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error(Code::kNotFound, path, " has not been built");
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

// Names of the objects that the build has at every level.
std::set<std::string> Built() {
  const char* root = std::getenv("MAINARCH_BUILD_ROOT");
  std::ifstream file(absl::StrCat(root == nullptr ? "." : root, "/kernels/levels.txt"));
  return {std::istream_iterator<std::string>(file), {}};
}

bool IsBuilt(const Case& test, const std::string& isa, const std::set<std::string>& built) {
  for (const auto& step : test.steps) {
    for (const LaunchSpec& launch : step) {
      const auto found = isa::FindKernel(isa, launch.kernel);
      if (!found.ok() || built.count(std::string(found->image->name)) == 0) return false;
    }
  }
  return true;
}

void RunLevel(test::Context& test_context, const std::string& level,
              const sim::isa::CheckOptions& checks = sim::isa::CheckOptions::All()) {
  const char* levels = std::getenv("MAINARCH_KERNEL_LEVELS");
  if (levels != nullptr &&
      !absl::StrContains(absl::StrCat("+", levels, "+"), absl::StrCat("+", level, "+"))) {
    SKIP("not asked for");
  }
  std::string failures;
  const std::set<std::string> built = Built();
  for (const char* isa : {"gfx942", "gfx950"}) {
    size_t ran = 0, all = 0;
    for (const Case* test : CasesOf(isa)) {
      ++all;
      if (!IsBuilt(*test, isa, built)) continue;
      ++ran;
      std::map<std::string, Bytes> kept, shipped, here;  // objects by kernel; results
      const auto objects = [&](const std::string& of,
                               const std::string& kernel) -> StatusOr<absl::Span<const uint8_t>> {
        if (kept.count(kernel) == 0) {
          ASSIGN_OR_RETURN(kept[kernel], ObjectAt(level, of, kernel));
        }
        return absl::Span<const uint8_t>(kept[kernel]);
      };
      Status status = RunFresh(*test, isa, {}, Shipped, &shipped);
      if (status.ok()) {
        status = RunFresh(*test, isa, {}, objects, &here, checks);
      }
      if (status.ok() && here != shipped) {
        status = Error(Code::kInternal, test->name, " (", isa, "): other bits than as shipped");
      }
      if (!status.ok()) absl::StrAppend(&failures, "\n  ", status.message());
    }
    std::printf("# %s at %s: %zu of %zu cases, %zu objects\n", isa, level.c_str(), ran, all,
                built.size());
    std::fflush(stdout);
    CHECK(ran > 0 || std::getenv("MAINARCH_KERNEL_CASE") != nullptr);
  }
  CHECK_EQ(failures, "");
}

TEST(same_bits_at_O0) { RunLevel(test_context, "O0"); }
TEST(same_bits_at_O1) { RunLevel(test_context, "O1"); }
TEST(same_bits_at_O2) { RunLevel(test_context, "O2"); }
TEST(same_bits_at_Os) { RunLevel(test_context, "Os"); }
TEST(same_bits_with_global_isel) { RunLevel(test_context, "gisel"); }
// LLVM 22 leaves out wait states of two products here (kernels/README.md, trap 12): the bits are
// the shipped ones as long as nobody looks at the clock.
TEST(same_bits_with_global_isel_at_O2) {
  sim::isa::CheckOptions checks = sim::isa::CheckOptions::All();
  checks.nops = false;
  RunLevel(test_context, "gisel-O2", checks);
}

}  // namespace
}  // namespace mainarch::kernels_test
