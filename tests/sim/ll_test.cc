// SPDX-License-Identifier: MIT
//
// All-reduce by {data, flag} pairs between eight virtual GPUs, each of which runs on a thread of its
// own: a pair of eight bytes is never seen with the data of one round and the flag of another.
// MAINARCH_TEST_FULL: 64 seeds of 100,000 rounds on both chips; of these MAINARCH_LL_SEEDS (5-8) alone, so
// that several processes can share them.
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "sim/queue_runner.h"
#include "support/test.h"
#include "unit/kernels/run_fresh.h"

namespace mainarch::kernels_test {
namespace {

constexpr uint32_t kRanks = 8, kLanes = 64, kPairsBytes = 16;
struct Args {
  uint64_t inbox[kRanks];
  uint64_t report;
  uint32_t rank, rounds;
};
struct Report {
  uint32_t torn = 0, wrong = 0, rounds = 0, unused = 0;
};

StatusOr<std::string> Object(const std::string& isa) {
  const char* root = std::getenv("MAINARCH_BUILD_ROOT");
  return ReadWholeFile(
      absl::StrCat(root == nullptr ? "." : root, "/tests/sim/ll_kernels_", isa, ".co"), 1 << 20);
}

// `kernel` on every rank at once; the ranks' reports added up, rounds those of the slowest.
StatusOr<Report> RunRanks(const std::string& isa, uint64_t seed, const std::string& kernel,
                          uint32_t rounds) {
  ASSIGN_OR_RETURN(const std::string object, Object(isa));
  ASSIGN_OR_RETURN(std::unique_ptr<QueueRunner> runner,
                   QueueRunner::Create(isa, kRanks, {}, absl::StrCat(",seed=", seed)));
  const std::vector<uint8_t> zeros(2 * kRanks * kLanes * kPairsBytes);
  Args args = {};
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    ASSIGN_OR_RETURN(args.inbox[rank], runner->Allocate(rank, Home::kUncached, zeros.size()));
    RETURN_IF_ERROR(runner->Write(args.inbox[rank], zeros));
  }
  args.rounds = rounds;
  std::vector<uint64_t> reports;
  std::vector<LaunchRequest> requests;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    ASSIGN_OR_RETURN(args.report, runner->Allocate(rank, Home::kHost, sizeof(Report)));
    RETURN_IF_ERROR(runner->Write(args.report, absl::MakeConstSpan(zeros).first(sizeof(Report))));
    reports.push_back(args.report);
    args.rank = rank;
    LaunchRequest request;
    request.object = {reinterpret_cast<const uint8_t*>(object.data()), object.size()};
    request.kernel = kernel;
    request.device = rank;
    request.workgroups = 1;
    request.threads = kLanes;
    const auto* bytes = reinterpret_cast<const uint8_t*>(&args);
    request.kernarg.assign(bytes, bytes + sizeof args);
    requests.push_back(std::move(request));
  }
  RETURN_IF_ERROR(runner->Launch(requests));
  Report all;
  all.rounds = ~0u;
  for (const uint64_t at : reports) {
    Report one;
    uint8_t bytes[sizeof one];
    RETURN_IF_ERROR(runner->Read(at, absl::MakeSpan(bytes)));
    std::memcpy(&one, bytes, sizeof one);
    all.torn += one.torn;
    all.wrong += one.wrong;
    all.rounds = std::min(all.rounds, one.rounds);
  }
  return all;
}

TEST(pairs_of_data_and_flag_never_come_apart) {
  const bool full = std::getenv("MAINARCH_TEST_FULL") != nullptr;
  const uint32_t rounds = full ? 100'000 : kSanitized ? 200 : 5'000;
  uint64_t first = 1, last = full ? 64 : 2;
  if (const char* some = std::getenv("MAINARCH_LL_SEEDS"); full && some != nullptr) {
    char* end = nullptr;
    first = last = std::strtoull(some, &end, 10);
    if (*end == '-') last = std::strtoull(end + 1, nullptr, 10);
    CHECK(first > 0 && first <= last);
  }
  for (const char* isa : {"gfx942", "gfx950"}) {
    for (uint64_t seed = first; seed <= last; ++seed) {
      const StatusOr<Report> report = RunRanks(isa, seed, "ll_all_reduce", rounds);
      CHECK_OK(report);
      CHECK_EQ(report->torn, 0u);
      CHECK_EQ(report->wrong, 0u);
      CHECK_EQ(report->rounds, rounds);
      if (full) std::cout << "# " << isa << " seed " << seed << std::endl;  // it takes an hour or two
    }
    std::cout << "# " << isa << ": " << last + 1 - first << " seeds of " << rounds << " rounds over "
              << kRanks << " GPUs\n";
  }
}

// That such a thing would be seen: data and flag stored apart come apart.
TEST(what_is_stored_apart_is_seen_apart) {
  uint32_t torn = 0;
  for (uint64_t seed = 1; seed <= 20 && torn == 0; ++seed) {
    const StatusOr<Report> report = RunRanks("gfx950", seed, "ll_apart", 20'000);
    CHECK_OK(report);
    torn += report->torn;
  }
  CHECK_GT(torn, 0u);
}

}  // namespace
}  // namespace mainarch::kernels_test
