// SPDX-License-Identifier: MIT
//
// The same sources at every optimisation level, bit for bit. Built with -Dkernel_matrix=true only.
#include <fstream>
#include <iterator>

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

void RunLevel(test::Context& test_context, const std::string& level) {
  std::string failures;
  for (const char* isa : {"gfx942", "gfx950"}) {
    for (const Case& test : AllCases()) {
      if (!IsFor(test, isa) || !Wanted(test)) continue;
      std::map<std::string, Bytes> kept, shipped, here;  // objects by kernel; results
      const auto objects = [&](const std::string& of,
                               const std::string& kernel) -> StatusOr<absl::Span<const uint8_t>> {
        if (kept.count(kernel) == 0) {
          ASSIGN_OR_RETURN(kept[kernel], ObjectAt(level, of, kernel));
        }
        return absl::Span<const uint8_t>(kept[kernel]);
      };
      Status status = RunFresh(test, isa, {}, Shipped, &shipped);
      if (status.ok()) status = RunFresh(test, isa, {}, objects, &here);
      if (status.ok() && here != shipped) {
        status = Error(Code::kInternal, test.name, " (", isa, "): other bits than as shipped");
      }
      if (!status.ok()) absl::StrAppend(&failures, "\n  ", status.message());
    }
  }
  CHECK_EQ(failures, "");
}

TEST(same_bits_at_O0) { RunLevel(test_context, "O0"); }
TEST(same_bits_at_O1) { RunLevel(test_context, "O1"); }
TEST(same_bits_at_O2) { RunLevel(test_context, "O2"); }
TEST(same_bits_at_Os) { RunLevel(test_context, "Os"); }
TEST(same_bits_with_global_isel) { RunLevel(test_context, "gisel"); }

}  // namespace
}  // namespace mainarch::kernels_test
