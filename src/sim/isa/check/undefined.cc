// SPDX-License-Identifier: MIT
#include "sim/isa/check/undefined.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/poison.h"

namespace mainarch::sim::isa {
namespace {

constexpr size_t kRegisterDwords = size_t{512} * kLanes;
constexpr uint32_t kPoisonedRegister = 0x7ff7bad0;  // as Grid fills them

std::string Name(const Range& r) {
  if (!r.vector()) return absl::StrCat("s", r.code);
  const int index = r.code - reg::kVgpr;
  return absl::StrCat(index < 256 ? "v" : "a", index % 256);
}

size_t Row(int code) { return static_cast<size_t>(code - reg::kVgpr) * kLanes; }

// Copies the vector registers of a range between register files.
void CopyRows(const Range& r, const uint32_t* from, uint32_t* to) {
  if (r.vector()) std::memcpy(to + Row(r.code), from + Row(r.code), 4 * kLanes * size_t{r.count});
}

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

// Gives the shadow of global memory: nothing, or what MemoryUndefined says, a page at a time.
class UndefinedCheck::ShadowMemory : public Memory {
 public:
  // `of` null: everything is defined.
  ShadowMemory(UndefinedCheck* of, Wave* w) : of_(of), w_(*w) {}
  bool Translate(uint64_t va, bool, bool, View* view, AccessFault*) override {
    const uint64_t begin = va & ~uint64_t{4095};
    pages_.push_back(std::make_unique<std::array<uint8_t, 4096>>());
    pages_.back()->fill(0);
    if (of_ != nullptr)
      of_->MemoryUndefined(w_, va, 4096 - (va & 4095), &(*pages_.back())[va & 4095]);
    *view = {begin, begin + 4096, pages_.back()->data(), true, false};
    return true;
  }
  uint64_t Clock() override { return 0; }

 private:
  UndefinedCheck* of_;
  Wave& w_;
  std::vector<std::unique_ptr<std::array<uint8_t, 4096>>> pages_;
};

UndefinedCheck::UndefinedCheck(const Workgroup& group)
    : waves_(group.waves.size()), trial_registers_(kRegisterDwords) {
  shadow_group_.isa = group.isa;
  shadow_group_.lds.assign(group.lds.size(), 0xff);
  shadow_group_.registers_per_wave = group.registers_per_wave;
  for (size_t i = 0; i < waves_.size(); ++i) {
    const Wave& w = group.waves[i];
    WaveShadow& shadow = waves_[i];
    shadow.v.assign(kRegisterDwords, ~0u);
    shadow.dirty.fill(true);
    std::fill_n(shadow.v.begin(), kLanes, 0u);  // work-item ids
    shadow.dirty[0] = false;
    for (size_t s = 0; s < 128; ++s) shadow.s[s] = w.s[s] == kPoisonedRegister ? ~0u : 0;
    shadow.scratch.assign(size_t{w.scratch_bytes} * kLanes, 0xff);
  }
}

UndefinedCheck::~UndefinedCheck() = default;

bool UndefinedCheck::Touched(const WaveShadow& shadow, const Effects& e) const {
  const auto any = [&](const Range& r) {
    for (int i = 0; i < r.count; ++i) {
      if (r.vector() ? shadow.dirty[static_cast<size_t>(r.code - reg::kVgpr + i)]
                     : r.code + i < 128 && shadow.s[static_cast<size_t>(r.code + i)] != 0) {
        return true;
      }
    }
    return false;
  };
  return std::any_of(e.reads, e.reads + e.read_count, any) ||
         std::any_of(e.writes, e.writes + e.write_count, any) ||
         (shadow.scc && (e.reads_scc || e.writes_scc));
}

// What an atomic returns was checked before: it is defined.
void UndefinedCheck::DefineWritten(const Wave& w, const Effects& e, WaveShadow* shadow) {
  for (int i = 0; i < e.write_count; ++i) {
    for (int k = 0; k < e.writes[i].count; ++k) {
      uint32_t* row = shadow->v.data() + Row(e.writes[i].code + k);
      for (uint64_t m = w.exec(); m != 0; m &= m - 1) row[__builtin_ctzll(m)] = 0;
    }
    Refresh(shadow, e.writes[i]);
  }
}

void UndefinedCheck::Refresh(WaveShadow* shadow, const Range& range) {
  if (!range.vector()) return;
  for (int i = 0; i < range.count; ++i) {
    const uint32_t* row = shadow->v.data() + Row(range.code + i);
    uint32_t all = 0;
    for (int lane = 0; lane < kLanes; ++lane) all |= row[lane];
    shadow->dirty[static_cast<size_t>(range.code - reg::kVgpr + i)] = all != 0;
  }
}

// Sets *trial up as w, with undefined bits from `random`, those of `zeros` cleared.
void UndefinedCheck::Fill(Wave* trial, const Wave& w, const WaveShadow& shadow, const Effects& e,
                          uint32_t pattern, uint64_t random) {
  const auto bits = [&](uint64_t at) {
    return random == 0 ? pattern : static_cast<uint32_t>(Mix(random + at));
  };
  std::memcpy(trial->s, w.s, sizeof trial->s);
  for (size_t i = 0; i < 128; ++i) {
    if (shadow.s[i] != 0) trial->s[i] = (w.s[i] & ~shadow.s[i]) | (bits(i) & shadow.s[i]);
  }
  trial->scc = shadow.scc ? (bits(200) & 1) != 0 : w.scc;
  const auto rows = [&](const Range& r) {
    if (!r.vector()) return;
    const size_t from = Row(r.code);
    for (size_t i = from; i < from + kLanes * size_t{r.count}; ++i) {
      trial->v[i] = (w.v[i] & ~shadow.v[i]) | (bits(1000 + i) & shadow.v[i]);
    }
  };
  for (int i = 0; i < e.write_count; ++i) rows(e.writes[i]);
  for (int i = 0; i < e.read_count; ++i) rows(e.reads[i]);
}

// Runs an instruction that touches no memory with several values of the undefined bits.
std::string UndefinedCheck::Perturb(const Wave& w, const Op& op, const Effects& e,
                                    WaveShadow* shadow) {
  constexpr int kTrials = 5;
  std::array<uint32_t, 128> s_first = {}, s_differs = {};
  std::array<std::vector<uint32_t>, 4> v_first, v_differs;
  uint64_t pc = 0;
  bool scc = false, scc_differs = false, pc_differs = false;
  for (int t = 0; t < kTrials; ++t) {
    Wave trial;
    trial.v = trial_registers_.data();
    trial.group = &shadow_group_;
    trial.mode = w.mode;
    trial.prng = w.prng;
    trial.memory = w.memory;
    trial.hw_id = w.hw_id;
    trial.xcc_id = w.xcc_id;
    trial.at = w.at;
    trial.pc = w.at + op.bytes;
    Fill(&trial, w, *shadow, e, t == 0 ? 0 : ~0u,
         t < 2 ? 0 : 0x1234567 * static_cast<uint64_t>(t) + w.at);
    op.run(trial, op);
    for (size_t i = 0; i < 128; ++i) {
      if (t == 0) s_first[i] = trial.s[i];
      s_differs[i] |= s_first[i] ^ trial.s[i];
    }
    if (t == 0) pc = trial.pc, scc = trial.scc;
    pc_differs |= pc != trial.pc;
    scc_differs |= scc != trial.scc;
    for (int k = 0; k < e.write_count; ++k) {
      if (!e.writes[k].vector()) continue;
      const size_t from = Row(e.writes[k].code), count = kLanes * size_t{e.writes[k].count};
      std::vector<uint32_t>& first = v_first[static_cast<size_t>(k)];
      std::vector<uint32_t>& differs = v_differs[static_cast<size_t>(k)];
      if (t == 0) {
        first.assign(trial.v + from, trial.v + from + count);
        differs.assign(count, 0);
      }
      for (size_t i = 0; i < count; ++i) differs[i] |= first[i] ^ trial.v[from + i];
    }
  }
  if (pc_differs) return "the branch depends on a value that was never written";
  if (s_differs[reg::kExec] | s_differs[reg::kExec + 1]) {
    return "EXEC depends on a value that was never written";
  }
  shadow->s = s_differs;
  shadow->scc = scc_differs;
  for (int k = 0; k < e.write_count; ++k) {
    if (!e.writes[k].vector()) continue;
    const std::vector<uint32_t>& differs = v_differs[static_cast<size_t>(k)];
    std::copy(differs.begin(), differs.end(),
              shadow->v.begin() + static_cast<ptrdiff_t>(Row(e.writes[k].code)));
    Refresh(shadow, e.writes[k]);
  }
  return "";
}

// Registers that make up an address.
std::string UndefinedCheck::Address(const Wave& w, const Effects& e,
                                    const WaveShadow& shadow) const {
  for (int i = 0; i < e.read_count; ++i) {
    const Range& r = e.reads[i];
    const bool address = r.field == 'A' || r.field == 'r' || r.field == 's' || r.field == 'x';
    if (!address) continue;
    for (int k = 0; k < r.count; ++k) {
      if (!r.vector()) {
        // M0's upper bits mean nothing to LDS-DMA.
        const uint32_t used = r.code == reg::kM0 ? 0x3ffff : ~0u;
        if (r.code + k < 128 && (shadow.s[static_cast<size_t>(r.code + k)] & used)) {
          return absl::StrCat("the address depends on ", Name(r), ", which was never written");
        }
        continue;
      }
      const uint32_t* row = shadow.v.data() + Row(r.code + k);
      for (uint64_t m = w.exec(); m != 0; m &= m - 1) {
        const int lane = __builtin_ctzll(m);
        if (row[lane] != 0) {
          return absl::StrCat("the address depends on ", Name(r), " of lane ", lane,
                              ", which was never written");
        }
      }
    }
  }
  return "";
}

void UndefinedCheck::RunOnShadow(const Wave& w, const Op& op, const Effects& e, WaveShadow* shadow,
                                 Memory* memory) {
  Wave trial;
  trial.v = trial_registers_.data();
  trial.group = &shadow_group_;
  trial.memory = memory;
  trial.at = w.at;
  trial.pc = w.at + op.bytes;
  trial.scratch = shadow->scratch.data();
  trial.scratch_bytes = w.scratch_bytes;
  std::memcpy(trial.s, w.s, sizeof trial.s);
  for (int i = 0; i < e.write_count; ++i) CopyRows(e.writes[i], shadow->v.data(), trial.v);
  for (int i = 0; i < e.read_count; ++i) {
    const bool data = e.reads[i].field == 'D' || e.reads[i].field == 'E' || e.reads[i].field == 'd';
    CopyRows(e.reads[i], data ? shadow->v.data() : w.v, trial.v);
  }
  op.run(trial, op);
  // Where a load writes over its own address, the trial's registers hold that address in lanes and
  // halves that the load leaves alone: there the shadow stays what it was.
  const uint32_t written = absl::EndsWith(op.inst.name(), "_d16")      ? 0x0000ffff
                           : absl::EndsWith(op.inst.name(), "_d16_hi") ? 0xffff0000
                                                                       : ~0u;
  for (int i = 0; i < e.write_count; ++i) {
    for (int k = 0; k < e.writes[i].count && e.writes[i].vector(); ++k) {
      const size_t row = Row(e.writes[i].code + k);
      for (uint64_t m = w.exec(); m != 0; m &= m - 1) {
        uint32_t& to = shadow->v[row + static_cast<size_t>(__builtin_ctzll(m))];
        to = (to & ~written) | (trial.v[row + static_cast<size_t>(__builtin_ctzll(m))] & written);
      }
    }
    Refresh(shadow, e.writes[i]);
  }
}

// Bytes of [va, va + size) that hold the pattern of unwritten memory, as 0xff in *shadow.
bool UndefinedCheck::MemoryUndefined(Wave& w, uint64_t va, uint32_t size, uint8_t* shadow) {
  bool any = false;
  const uint64_t first = va & ~uint64_t{15}, last = va + size;
  for (uint64_t block = first; block < last; block += 16) {
    if (!view_.Holds(block, 16)) {
      AccessFault fault;
      View view;
      if (!w.memory->Translate(block, false, false, &view, &fault)) continue;
      view_ = view;
      if (!view_.Holds(block, 16)) continue;
    }
    uint32_t words[4], hits = 0;
    std::memcpy(words, view_.host + (block - view_.begin), 16);
    for (uint32_t k = 0; k < 4; ++k) hits |= uint32_t{words[k] == PoisonWord(block + 4 * k)} << k;
    if (hits == 0 || (hits & (hits - 1)) == 0) continue;
    for (uint64_t at = std::max(block, va); at < std::min(block + 16, last); ++at) {
      if (!(hits >> (at - block) / 4 & 1)) continue;
      any = true;
      if (shadow != nullptr) shadow[at - va] = 0xff;
    }
  }
  return any;
}

std::string UndefinedCheck::StoreData(const Wave&, const Op& op, const Effects& e,
                                      const Accesses& a, const WaveShadow& shadow) const {
  const Range* data = nullptr;
  for (int i = 0; i < e.read_count; ++i) {
    if (e.reads[i].field == 'D') data = &e.reads[i];
  }
  if (data == nullptr) return "";
  const bool high = absl::EndsWith(op.inst.name(), "_hi");
  for (const Piece& piece : a.pieces) {
    if (piece.space != Space::kGlobal || !piece.write) continue;
    for (int k = 0; k < data->count; ++k) {
      uint32_t used = piece.size == 1 ? 0xff : piece.size == 2 ? 0xffff : ~0u;
      if (high) used <<= 16;
      if (4 * k >= std::max<int>(piece.size, 4) && !a.atomic) break;
      if (shadow.v[Row(data->code + k) + piece.lane] & used) {
        return absl::StrCat("stores v", (data->code + k - reg::kVgpr) % 256, " of lane ",
                            piece.lane, ", which depends on a value that was never written");
      }
    }
  }
  return "";
}

std::string UndefinedCheck::LocalMemory(Wave& w, const Op& op, const Effects& e, const Accesses& a,
                                        WaveShadow* shadow) {
  if (!a.atomic) {
    RunOnShadow(w, op, e, shadow, w.memory);
    return "";
  }
  std::vector<uint8_t>& lds = shadow_group_.lds;
  for (const Piece& piece : a.pieces) {
    if (piece.address + piece.size > lds.size()) continue;
    const auto begin = lds.begin() + static_cast<ptrdiff_t>(piece.address);
    if (std::any_of(begin, begin + piece.size, [](uint8_t x) { return x != 0; })) {
      return absl::StrCat("an atomic on lds address ", piece.address, ", which was never written");
    }
  }
  DefineWritten(w, e, shadow);
  return "";
}

void UndefinedCheck::Dma(Wave& w, const Accesses& a) {
  for (size_t i = 0; i + 1 < a.pieces.size(); i += 2) {
    const Piece &from = a.pieces[i], &to = a.pieces[i + 1];
    if (to.address + to.size > shadow_group_.lds.size()) continue;
    uint8_t* shadow = shadow_group_.lds.data() + to.address;
    std::memset(shadow, 0, to.size);
    MemoryUndefined(w, from.address, from.size, shadow);
  }
}

std::string UndefinedCheck::GlobalMemory(Wave& w, const Op& op, const Effects& e, const Accesses& a,
                                         WaveShadow* shadow) {
  const bool reads = e.facts->load || a.atomic;
  bool undefined = false;
  for (const Piece& piece : a.pieces) {
    if (!reads || piece.space != Space::kGlobal) continue;
    if (!MemoryUndefined(w, piece.address, piece.size, nullptr)) continue;
    undefined = true;
    if (a.atomic) {
      return absl::StrCat("an atomic on memory at 0x", absl::Hex(piece.address),
                          ", which was never written");
    }
  }
  std::string what = StoreData(w, op, e, a, *shadow);
  if (!what.empty()) return what;
  if (a.dma) {
    Dma(w, a);
    return "";
  }
  if (a.atomic) {
    DefineWritten(w, e, shadow);
    return "";
  }
  const bool local = std::any_of(a.pieces.begin(), a.pieces.end(),
                                 [](const Piece& p) { return p.space != Space::kGlobal; });
  if (!local && !e.facts->load) return "";
  if (!local && !undefined && !Touched(*shadow, e)) return "";
  ShadowMemory memory(undefined ? this : nullptr, &w);
  RunOnShadow(w, op, e, shadow, &memory);
  return "";
}

void UndefinedCheck::Scalar(Wave& w, const Effects& e, const Accesses& a, WaveShadow* shadow) {
  if (e.write_count == 0 || e.writes[0].vector()) return;
  const Range& to = e.writes[0];
  for (int k = 0; k < to.count && to.code + k < 128; ++k) {
    shadow->s[static_cast<size_t>(to.code + k)] = 0;
  }
  for (const Piece& piece : a.pieces) {
    const size_t at = static_cast<size_t>(to.code) + piece.element;
    if (at < 128 && MemoryUndefined(w, piece.address, 4, nullptr)) shadow->s[at] = ~0u;
  }
}

std::string UndefinedCheck::Issue(Wave& w, const Op& op, const Effects& e, const Accesses& a) {
  WaveShadow& shadow = waves_[w.index];
  const RowFacts& f = *e.facts;
  if (f.smem || f.vmem || (f.ds && f.lds_memory)) {
    if (f.inv || f.wbl2) return "";
    std::string what = Address(w, e, shadow);
    if (!what.empty()) return what;
    if (f.smem) {
      Scalar(w, e, a, &shadow);
      return "";
    }
    return f.ds ? LocalMemory(w, op, e, a, &shadow) : GlobalMemory(w, op, e, a, &shadow);
  }
  // Barriers, messages, sleeps: nothing flows, and they must not run twice.
  const bool flow =
      op.inst.row->family == Family::kSopp && !absl::StartsWith(op.inst.name(), "s_cbranch");
  if (flow || f.setreg || !Touched(shadow, e)) return "";
  return Perturb(w, op, e, &shadow);
}

}  // namespace mainarch::sim::isa
