// SPDX-License-Identifier: MIT
//
// `mainarch probe` on virtual nodes: the answers are pinned by golden files (fingerprints; written
// by `mainarch probe --device sim:<isa> --json --fingerprints`), and a comparison finds what
// differs. Transcendental functions are host arithmetic, so their last bits are the host library's.
#include "cli/probe.h"

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "sim/open.h"
#include "support/test.h"

namespace mainarch::cli {
namespace {

StatusOr<ProbeReport> Probe(const std::string& isa) {
  ASSIGN_OR_RETURN(const auto sys, sim::OpenSim(isa));
  return RunProbe(*sys, 0, "sim:" + isa);
}

TEST(virtual_nodes_answer_as_pinned) {
  for (const std::string isa : {"gfx942", "gfx950"}) {
    const auto report = Probe(isa);
    CHECK_OK(report);
    CHECK_EQ(report->isa, isa);
    CHECK(report->virtual_node);
    const std::string path = test::SourcePath("tests/cli/probe_" + isa + ".json");
    const auto text = ReadWholeFile(path, 1 << 20);
    CHECK_OK(text);
    const auto golden = ParseProbeJson(*text, path);
    CHECK_OK(golden);
    CHECK_EQ(report->answers.size(), golden->answers.size());
    for (size_t i = 0; i < report->answers.size(); ++i) {
      const ProbeAnswer &ours = report->answers[i], &pinned = golden->answers[i];
      CHECK_EQ(ours.name, pinned.name);
      if (ours.statistical || ours.name == "transcendental") continue;
      if (ours.fingerprint != pinned.fingerprint) {
        std::printf("# %s: %s: %s\n", isa.c_str(), ours.name.c_str(), ours.summary.c_str());
      }
      CHECK_EQ(ours.fingerprint, pinned.fingerprint);
      CHECK_EQ(ours.summary, pinned.summary);
    }
  }
}

const LitmusAnswer* Of(const ProbeReport& report, const std::string& name) {
  for (const LitmusAnswer& answer : report.litmus) {
    if (answer.name == name) return &answer;
  }
  return nullptr;
}

TEST(what_the_decoder_rests_on_holds_here) {
  for (const std::string isa : {"gfx942", "gfx950"}) {
    const auto report = Probe(isa + "x2");
    CHECK_OK(report);
    CHECK_EQ(report->litmus.size(), 15u);
    CHECK_EQ(report->Broken(), 0);
    int needed = 0;
    for (const LitmusAnswer& answer : report->litmus) {
      needed += answer.needed;
      CHECK_EQ(answer.needed, !answer.otherwise.empty());
    }
    CHECK_EQ(needed, 9);
    CHECK(absl::StrContains(ProbeText(*report), "words_between_gpus     yes      holds"));
    CHECK(absl::StrContains(Of(*report, "hand_over_xcds")->answer, "; 0 on one XCD"));
    CHECK(absl::StrContains(Of(*report, "hand_over_same_xcd")->answer, "; 16 on one XCD"));
  }
  const auto alone = Probe("gfx950");
  CHECK_OK(alone);
  CHECK(!Of(*alone, "words_between_gpus")->asked);
  CHECK_EQ(alone->Broken(), 0);
}

// A node whose caches keep what they may: fences, uncached words and scopes are right there, and what leaves them
// out is wrong, or waits in vain.
TEST(what_is_left_out_is_seen_where_caches_keep_what_they_may) {
  for (const std::string isa : {"gfx942", "gfx950"}) {
    const auto report = Probe(isa + "x2,check=caches");
    CHECK_OK(report);
    CHECK_EQ(report->Broken(), 0);
    for (const char* name : {"no_fences", "plain_polls", "packets_none"}) {
      if (Of(*report, name)->holds) std::printf("# %s %s: %s\n", isa.c_str(), name, Of(*report, name)->answer.c_str());
      CHECK(!Of(*report, name)->holds);
    }
    CHECK(absl::StrContains(Of(*report, "plain_polls")->answer, "waited in vain"));
  }
}

TEST(a_broken_answer_is_told_and_compared) {
  auto report = Probe("gfx950");
  CHECK_OK(report);
  auto other = ParseProbeJson(ProbeJson(*report, false), "theirs.json");
  CHECK_OK(other);
  CHECK_EQ(other->litmus.size(), report->litmus.size());
  int differences = -1;
  CHECK_EQ(CompareProbes(*report, *other, &differences), "");
  other->litmus[0].holds = false;
  CHECK(absl::StrContains(CompareProbes(*report, *other, &differences), "hand_over_xcds: holds here"));
  CHECK_EQ(differences, 1);
  report->litmus[0].holds = false;
  CHECK_EQ(report->Broken(), 1);
  CHECK(absl::StrContains(ProbeText(*report), "BREAKS US"));
  // A file of a time before there were such says nothing of them.
  other->litmus.clear();
  CHECK_EQ(CompareProbes(*report, *other, &differences), "");
}

// The exact mode gives the published model's sums where the fast one gives a chain of FMAs.
TEST(exact_matrix_mode_is_the_published_model) {
  for (const std::string isa : {"gfx942", "gfx950"}) {
    const auto report = Probe(isa + ",exact=1");
    CHECK_OK(report);
    for (const ProbeAnswer& answer : report->answers) {
      if (answer.name != "matrix_sums") continue;
      for (const char* sum : {"bf16 K=16", "f16 K=16", "fp8 K=32", "bf8 K=32"}) {
        const size_t at = answer.summary.find(sum);
        CHECK(at != std::string::npos);
        CHECK(absl::StrContains(answer.summary.substr(at, 90), "model 256 of 256"));
      }
    }
  }
}

TEST(a_comparison_finds_what_differs) {
  auto report = Probe("gfx942");
  CHECK_OK(report);
  const std::string json = ProbeJson(*report, true);
  const auto again = ParseProbeJson(json, "mine.json");
  CHECK_OK(again);
  int differences = -1;
  CHECK_EQ(CompareProbes(*report, *again, &differences), "");
  CHECK_EQ(differences, 0);
  // One word of one answer.
  ProbeReport other = *again;
  other.answers[2].words[5] ^= 1;
  other.answers[2].fingerprint = "0123456789abcdef";
  const std::string text = CompareProbes(*report, other, &differences);
  CHECK_EQ(differences, 1);
  CHECK(absl::StrContains(text, report->answers[2].name));
  CHECK(absl::StrContains(text, "1 of "));
  CHECK(absl::StrContains(text, "row 0 lane 5"));
  other.answers.pop_back();
  other.isa = "gfx950";
  CompareProbes(*report, other, &differences);
  CHECK_EQ(differences, 3);
}

TEST(bad_files_are_named) {
  for (const char* text :
       {"", "{}", "[1]", "{\"mainarch_probe\":2}",
        "{\"mainarch_probe\":1,\"device\":\"x\",\"isa\":\"gfx942\",\"answers\":[{}]}",
        "{\"mainarch_probe\":1,\"device\":\"x\",\"isa\":\"y\",\"answers\":[{\"name\":\"a\","
        "\"fingerprint\":\"b\",\"summary\":\"c\",\"words\":\"12345\"}]}"}) {
    const auto report = ParseProbeJson(text, "bad.json");
    CHECK(!report.ok());
  }
}

TEST(the_fidelity_report_names_every_instruction) {
  const std::string text = FidelityReport(false);
  CHECK(absl::StrContains(text, "nothing of this has been compared with silicon"));
  CHECK(absl::StrContains(text, "v_mfma_f32_16x16x16_bf16"));
  CHECK(absl::StrContains(text, "v_cvt_scalef32_pk_fp4_f32"));
  CHECK(!absl::StrContains(text, "unaccounted for"));
  CHECK(absl::StrContains(FidelityReport(true), "\"assumed\""));
}

TEST(the_fidelity_report_tells_which_wait_states_hardware_is_known_to_forgive) {
  const std::string text = FidelityReport(false);
  CHECK(absl::StrContains(text, "sgpr-valu"));
  CHECK(absl::StrContains(text, "46,252 places"));
  CHECK(absl::StrContains(FidelityReport(true), "\"dpp-read\""));
}

}  // namespace
}  // namespace mainarch::cli
