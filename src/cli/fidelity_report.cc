// SPDX-License-Identifier: MIT
//
// The fidelity report: what the virtual node takes each instruction's meaning from, out of the
// descriptors themselves, and which tests exercise it (tests/unit/sim_isa/coverage_test.cc fails
// when a mnemonic is in none).
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/json_writer.h"
#include "cli/probe.h"
#include "sim/isa/absent.h"
#include "sim/isa/check/hazards.h"
#include "sim/isa/program.h"

namespace mainarch::cli {
namespace {

using sim::isa::Family;
using sim::isa::Isa;
using sim::isa::Origin;

const char* OriginName(Origin origin) {
  switch (origin) {
    case Origin::kManual:
      return "manual";
    case Origin::kLlvm:
      return "llvm";
    case Origin::kPaper:
      return "paper";
    case Origin::kAssumed:
      return "assumed";
  }
  return "";
}

const char* TestsOf(const sim::isa::OpRow& row) {
  const absl::string_view name = row.name;
  if (absl::StrContains(name, "mfma") || absl::StrContains(name, "smfmac")) {
    return "sim_isa_matrix sim_isa_kernels kernels_cases";
  }
  if (absl::StartsWith(name, "v_cvt_")) return "sim_isa_convert sim_isa_vectors kernels_cases";
  switch (row.family) {
    case Family::kDs:
    case Family::kFlat:
    case Family::kGlobal:
    case Family::kScratch:
    case Family::kMubuf:
    case Family::kMtbuf:
    case Family::kSmem:
      return "sim_isa_memory sim_isa_hip_block kernels_cases";
    case Family::kSopp:
      return "sim_isa_coverage sim_isa_hip_work sim_isa_hip_block";
    default:
      return "sim_isa_vectors sim_isa_coverage sim_isa_hip_work";
  }
}

// What no descriptor can say.
constexpr const char* kModels[] = {
    "nothing of this has been compared with silicon",
    "matrix sums: the fast mode, which is the default, is one FMA a product, and is not what "
    "silicon "
    "gives: only the exact mode (exact=1) may be compared with it; that is the published CDNA3 "
    "model, "
    "equal to mmasim in all finite results of 32 sets of 20,000, on gfx950 assumed to hold too",
    "v_pk_fma_f32 op_sel:[0,1,0] of gfx950, an erratum: stops the wave (errata=0), or runs as "
    "documented and is noted (errata=1, the default of programs from outside)",
    "scaled matrix products: each block of 32 is summed, then scaled; how CDNA4 aligns is unknown",
    "checkers with hazards=known: forgiven are also what LDS was asked for 128 instructions ago and "
    "nobody waited for, and scalar loads and stores with glc as flags of agent scope; noted are LDS "
    "overwritten behind its readers with no barrier, and VALU over a load of 40 instructions ago: all "
    "in kernels of AMD's with right results on silicon",
    "packed integers take an inline constant of 0.5 to 1/(2 pi) as f32, a half of which op_sel picks",
    "fp6 operands lie contiguous in a lane (one older source says two runs of 16)",
    "sparse products of gfx950: B contiguous in a lane, indices as on gfx942",
    "transcendental instructions: host arithmetic in double, rounded once; a chip is within 1 ULP",
    "v_dot2 of f16 and bf16: two FMAs in order; flushing of denormals is not modelled",
    "stochastic rounding: the top 20 bits of the random word, added below the kept mantissa",
    "MODE: rounding other than nearest even and flushing of denormals are not modelled",
    "out of range: LDS and scratch accesses stop the wave; a chip reads zero and drops stores",
    "time: s_memtime and s_memrealtime count, they do not measure",
};

struct Entry {
  std::string isas;
  std::set<std::string> families;
  const char* origin = "";
  const char* tests = "";
  const char* absent = nullptr;
};

std::map<std::string, Entry> Collect() {
  std::map<std::string, Entry> entries;
  for (const Isa isa : {Isa::kGfx942, Isa::kGfx950}) {
    const sim::isa::InstructionSet set(isa, sim::isa::LaneCode::kPortable);
    for (const sim::isa::OpRow& row : sim::isa::Rows()) {
      if (!(row.isas & static_cast<int>(isa))) continue;
      Entry& entry = entries[row.name];
      const char* name = isa == Isa::kGfx942 ? "gfx942" : "gfx950";
      if (!absl::StrContains(entry.isas, name)) {
        absl::StrAppend(&entry.isas, entry.isas.empty() ? "" : " ", name);
      }
      entry.families.insert(std::string(sim::isa::FamilyName(row.family)));
      const sim::isa::Descriptor* descriptor = set.Find(row);
      entry.absent = descriptor == nullptr ? sim::isa::WhyAbsent(row) : nullptr;
      entry.origin = descriptor != nullptr     ? OriginName(descriptor->origin)
                     : entry.absent != nullptr ? "absent"
                                               : "unaccounted for";
      entry.tests = descriptor != nullptr ? TestsOf(row) : "";
    }
  }
  return entries;
}

std::string StatesKnown(const sim::isa::HazardRule& rule) {
  return rule.known == sim::isa::kAsDocumented ? "as documented" : absl::StrCat(rule.known);
}

void JsonOfHazards(JsonWriter* out) {
  out->Field("wait_states_source", sim::isa::kHazardSource).Key("wait_states").BeginArray();
  for (const sim::isa::HazardRule& rule : sim::isa::HazardRules()) {
    out->BeginObject().Field("rule", rule.name).Field("why", rule.why);
    out->Field("strict", rule.states).Field("known", StatesKnown(rule));
    out->Field("evidence", rule.evidence).EndObject();
  }
  out->EndArray();
}

void TextOfHazards(std::string* text) {
  absl::StrAppend(text, "\nWait states that check=nops asks for; strict: ", sim::isa::kHazardSource,
                  "; known (hazards=known): what production kernels show that hardware forgives\n");
  absl::StrAppendFormat(text, "%-24s %-32s %-14s %s\n", "rule", "strict", "known", "evidence");
  for (const sim::isa::HazardRule& rule : sim::isa::HazardRules()) {
    absl::StrAppendFormat(text, "%-24s %-32s %-14s %s\n", rule.name, rule.states, StatesKnown(rule),
                          rule.evidence);
  }
}

}  // namespace

std::string FidelityReport(bool json) {
  const std::map<std::string, Entry> entries = Collect();
  std::map<std::string, int> counts;
  for (const auto& [name, entry] : entries) ++counts[entry.origin];
  if (json) {
    JsonWriter out;
    out.BeginObject().List("models", kModels);
    JsonOfHazards(&out);
    out.Key("instructions").BeginArray();
    for (const auto& [name, entry] : entries) {
      out.BeginObject().Field("name", name).Field("isas", entry.isas).Field("origin", entry.origin);
      out.List("families", entry.families).Field("tests", entry.tests);
      if (entry.absent != nullptr) out.Field("why", entry.absent);
      out.EndObject();
    }
    out.EndArray().EndObject();
    return absl::StrCat(out.text(), "\n");
  }
  std::string text = "What the virtual node assumes\n";
  for (const char* model : kModels) absl::StrAppend(&text, "  * ", model, "\n");
  TextOfHazards(&text);
  absl::StrAppend(&text, "\n", entries.size(), " mnemonics:");
  for (const auto& [origin, count] : counts) absl::StrAppend(&text, " ", count, " ", origin);
  absl::StrAppend(&text, "\n\n");
  for (const auto& [name, entry] : entries) {
    absl::StrAppendFormat(&text, "%-36s %-15s %-16s %s\n", name, entry.isas, entry.origin,
                          entry.absent != nullptr ? entry.absent : entry.tests);
  }
  return text;
}

}  // namespace mainarch::cli
