// SPDX-License-Identifier: MIT
//
// `mainarch probe`: what a GPU answers to questions that documents leave open, as a table of
// fingerprints. On a virtual node the answers are this library's assumptions, pinned by a golden
// file; on a chip they are facts, and `--compare` says where the two differ.
//
// Reports are apart from the command so that tests can make them on a virtual node.
#ifndef MAINARCH_CLI_PROBE_H_
#define MAINARCH_CLI_PROBE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "cli/probe_litmus.h"
#include "isa/chip.h"
#include "kfd/sys.h"

namespace mainarch::cli {

using Words = std::vector<uint32_t>;

// One kernel run and what its output means.
struct ProbeCase {
  std::string name;
  std::string kernel;
  std::string question;
  Words in;
  uint32_t workgroups = 1;
  size_t out_words = 0;
  uint32_t rounds = 0;  // of a litmus kernel, which has other arguments
  // Answers may differ from run to run, so a comparison looks at `summary` only.
  bool statistical = false;
  // Which of two NaNs comes out is not asked: here it is what the host's multiply-adds choose.
  bool nans_alike = false;
  std::function<std::string(const Words& out)> summary;
};

std::vector<ProbeCase> ProbeCases(const isa::ChipFacts& chip);

struct ProbeAnswer {
  std::string name, question, summary;
  std::string fingerprint;  // 16 hexadecimal digits over the output
  bool statistical = false;
  Words words;
};

struct ProbeReport {
  std::string device, isa;
  bool virtual_node = false;
  std::vector<ProbeAnswer> answers;
  std::vector<LitmusAnswer> litmus;

  // How many of those that the decoder rests on do not hold here.
  int Broken() const;
};

// Runs every case on the device of that index.
StatusOr<ProbeReport> RunProbe(kfd::Sys& sys, uint32_t index, absl::string_view device);

std::string ProbeText(const ProbeReport& report);
// With `words`, the outputs whole; else fingerprints only.
std::string ProbeJson(const ProbeReport& report, bool words);
StatusOr<ProbeReport> ParseProbeJson(absl::string_view text, absl::string_view file);

// Lines about answers that differ, and about what the decoder rests on that holds on one side only; empty when
// none does. *differences counts them.
std::string CompareProbes(const ProbeReport& ours, const ProbeReport& theirs, int* differences);

// Every instruction of the ISAs: where its semantics come from, and which tests exercise it.
std::string FidelityReport(bool json);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_PROBE_H_
