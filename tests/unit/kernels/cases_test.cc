// SPDX-License-Identifier: MIT
//
// Every kernel on the interpreter against its reference in double, for both ISAs; the kernels that
// synchronise under many schedules; and, when the build has them (-Dkernel_matrix=true), the same
// sources at every optimisation level, bit for bit.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "isa/kernel_images.h"
#include "sim/isa/executor.h"
#include "support/test.h"
#include "unit/kernels/case.h"
#include "unit/kernels/executor_runner.h"

namespace mainarch {
namespace {

using kernels_test::Bytes;
using kernels_test::Case;
using kernels_test::ExecutorOptions;
using kernels_test::ExecutorRunner;

constexpr const char* kIsas[] = {"gfx942", "gfx950"};

StatusOr<absl::Span<const uint8_t>> Shipped(const std::string& isa, const std::string& kernel) {
  ASSIGN_OR_RETURN(const isa::KernelRef found, isa::FindKernel(isa, kernel));
  return found.image->bytes;
}

bool IsFor(const Case& test, const std::string& isa) {
  return test.isas.empty() || std::count(test.isas.begin(), test.isas.end(), isa) != 0;
}

// A fresh machine for each case.
Status RunFresh(const Case& test, const std::string& isa, const ExecutorOptions& options,
                const kernels_test::ObjectOf& objects, std::map<std::string, Bytes>* contents) {
  ASSIGN_OR_RETURN(
      std::unique_ptr<ExecutorRunner> runner,
      ExecutorRunner::Create(std::make_unique<sim::isa::IsaExecutor>(), isa, options));
  return kernels_test::RunCase(*runner, test, objects, contents);
}

// MAINARCH_KERNEL_CASE=text runs only the cases whose name holds the text.
bool Wanted(const Case& test) {
  const char* only = std::getenv("MAINARCH_KERNEL_CASE");
  return only == nullptr || test.name.find(only) != std::string::npos;
}

void RunAll(test::Context& test_context, const std::string& isa) {
  std::string failures;
  size_t ran = 0;
  for (const Case& test : kernels_test::AllCases()) {
    if (!IsFor(test, isa) || !Wanted(test)) continue;
    ++ran;
    const Status status = RunFresh(test, isa, {}, Shipped, nullptr);
    if (!status.ok()) absl::StrAppend(&failures, "\n  ", status.message());
  }
  CHECK_EQ(failures, "");
  CHECK_GT(ran, std::getenv("MAINARCH_KERNEL_CASE") == nullptr ? 40u : 0u);
}

TEST(kernels_agree_with_double_on_gfx942) { RunAll(test_context, "gfx942"); }
TEST(kernels_agree_with_double_on_gfx950) { RunAll(test_context, "gfx950"); }

TEST(synchronising_kernels_pass_under_many_schedules) {
  std::vector<Case> cases = kernels_test::LinkCases();
  for (Case& test : kernels_test::ResidentCases()) cases.push_back(std::move(test));
  for (const Case& test : cases) {
    for (uint64_t seed = 2; seed < 10; ++seed) {
      ExecutorOptions options;
      options.seed = seed;
      options.slice = 1 + seed * seed * 13;
      CHECK_OK(RunFresh(test, seed % 2 ? "gfx942" : "gfx950", options, Shipped, nullptr));
    }
  }
}

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
  if (!ObjectAt(level, "gfx950", "fill").ok()) SKIP("configure with -Dkernel_matrix=true");
  std::string failures;
  for (const char* isa : kIsas) {
    for (const Case& test : kernels_test::AllCases()) {
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
}  // namespace mainarch
