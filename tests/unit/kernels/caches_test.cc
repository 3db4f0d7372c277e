// SPDX-License-Identifier: MIT
//
// The cache mode: shipped kernels cannot tell that it is there; kernels that lack a fence, a scope
// bit or the right kind of memory get wrong data or wait for ever. Each kernel and every other case on one ISA,
// with MAINARCH_TEST_FULL all on both.
#include <cstring>

#include "absl/strings/match.h"
#include "sim/isa/decode.h"
#include "support/test.h"
#include "unit/kernels/run_fresh.h"

namespace mainarch::kernels_test {
namespace {

sim::isa::CheckOptions Caches() {
  sim::isa::CheckOptions options;
  options.caches = true;
  return options;
}

void RunAll(test::Context& test_context, const std::string& isa) {
  std::string failures;
  for (const Case* test : CasesInTurn(isa, "gfx942", 4, true)) {
    const Status status = RunFresh(*test, isa, {}, Shipped, nullptr, Caches());
    if (!status.ok()) absl::StrAppend(&failures, "\n  ", status.message());
  }
  CHECK_EQ(failures, "");
}

TEST(shipped_kernels_are_right_behind_caches_on_gfx942) { RunAll(test_context, "gfx942"); }
TEST(shipped_kernels_are_right_behind_caches_on_gfx950) { RunAll(test_context, "gfx950"); }

// The object of `kernel` with each instruction that `breaks` knows changed in every place.
template <class Breaks>
Bytes Broken(const std::string& isa, const std::string& kernel, Breaks breaks) {
  const auto found = isa::FindKernel(isa, kernel);
  Bytes object(found->image->bytes.begin(), found->image->bytes.end());
  const auto chip = isa == "gfx942" ? sim::isa::Isa::kGfx942 : sim::isa::Isa::kGfx950;
  for (size_t at = 0; at + 8 <= object.size(); at += 4) {
    sim::isa::Inst inst;
    // Fences and flags are two dwords that look like nothing else in our objects.
    if (!sim::isa::Decode(chip, absl::MakeConstSpan(object).subspan(at, 16), &inst)) continue;
    if (inst.size != 8) continue;
    uint32_t words[2] = {inst.words[0], inst.words[1]};
    if (!breaks(inst, words)) continue;
    std::memcpy(object.data() + at, words, 8);
  }
  return object;
}

// Whether some case of the ping-pong goes wrong with this object.
bool GoesWrong(const std::string& isa, const Bytes& object, std::vector<Case> cases) {
  const auto objects = [&](const std::string&,
                           const std::string&) -> StatusOr<absl::Span<const uint8_t>> {
    return absl::Span<const uint8_t>(object);
  };
  ExecutorOptions options;
  options.limit = 1'000'000;
  for (const Case& test : cases) {
    if (!RunFresh(test, isa, options, objects, nullptr, Caches()).ok()) return true;
  }
  return false;
}

constexpr uint32_t kNop = 0xbf800000;

TEST(a_missing_fence_or_scope_is_seen_in_the_data) {
  using sim::isa::Inst;
  for (const char* isa : {"gfx942", "gfx950"}) {
    const auto same = [](const Inst&, uint32_t*) { return false; };
    CHECK(!GoesWrong(isa, Broken(isa, "ping_pong", same), LinkCases()));
    const auto no_inv = [](const Inst& inst, uint32_t* words) {
      if (inst.name() != "buffer_inv") return false;
      words[0] = words[1] = kNop;
      return true;
    };
    CHECK(GoesWrong(isa, Broken(isa, "ping_pong", no_inv), LinkCases()));
    const auto no_wbl2 = [](const Inst& inst, uint32_t* words) {
      if (inst.name() != "buffer_wbl2") return false;
      words[0] = words[1] = kNop;
      return true;
    };
    CHECK(GoesWrong(isa, Broken(isa, "ping_pong", no_wbl2), LinkCases()));
    // Agent scope where another GPU reads: sc0 gone, sc1 left.
    const auto agent_wbl2 = [](const Inst& inst, uint32_t* words) {
      if (inst.name() != "buffer_wbl2") return false;
      words[0] &= ~(1u << 14);
      return true;
    };
    CHECK(GoesWrong(isa, Broken(isa, "ping_pong", agent_wbl2), LinkCases()));
  }
}

// A flag in GTT: uncached on gfx942 whatever one asks for, cached on gfx950. Without scope bits on
// the polling load a flag in cached memory is never seen to change; in uncached memory it is.
TEST(memory_that_is_not_uncached_needs_scope_bits) {
  using sim::isa::Inst;
  const auto plain_poll = [](const Inst& inst, uint32_t* words) {
    if (inst.name() != "global_load_dword" || !inst.sc0 || !inst.sc1) return false;
    words[0] &= ~(1u << 16 | 1u << 25);
    return true;
  };
  const auto with_flags = [](Home home) {
    std::vector<Case> cases = LinkCases();
    for (Case& test : cases) {
      for (Buffer& buffer : test.buffers) {
        if (absl::StartsWith(buffer.name, "flag")) buffer.home = home;
      }
    }
    return cases;
  };
  for (const char* isa : {"gfx942", "gfx950"}) {
    const Bytes object = Broken(isa, "ping_pong", plain_poll);
    CHECK(!GoesWrong(isa, object, with_flags(Home::kUncached)));
    CHECK_EQ(GoesWrong(isa, object, with_flags(Home::kHost)), std::string(isa) == "gfx950");
    const auto same = [](const Inst&, uint32_t*) { return false; };
    CHECK(!GoesWrong(isa, Broken(isa, "ping_pong", same), with_flags(Home::kHost)));
  }
}

}  // namespace
}  // namespace mainarch::kernels_test
