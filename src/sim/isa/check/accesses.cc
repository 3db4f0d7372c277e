// SPDX-License-Identifier: MIT
#include "sim/isa/check/accesses.h"

namespace mainarch::sim::isa {
namespace {

class Finder {
 public:
  Finder(const Wave& w, const Op& op, const RowFacts& facts, Accesses* out)
      : w_(w), inst_(op.inst), facts_(facts), out_(*out) {
    if (const Operand* a = inst_.Find('A')) address_ = w.v + (a->code - reg::kVgpr) * kLanes;
  }

  void Ds() {
    if (address_ == nullptr) return;  // ds_append and relatives: one counter at M0
    EachLane([&](int lane) {
      for (int e = 0; e < facts_.elements; ++e) {
        const uint32_t offset = facts_.elements == 1 ? static_cast<uint32_t>(inst_.offset)
                                : e == 0             ? inst_.offset0 * facts_.stride
                                                     : inst_.offset1 * facts_.stride;
        Add(lane, e, address_[lane] + offset, Space::kLds, facts_.store || facts_.atomic);
      }
    });
  }

  void Smem() {
    const Operand* base = inst_.Find('r');
    if (base == nullptr || facts_.scalar_dwords == 0) return;
    uint64_t offset =
        inst_.smem_imm ? static_cast<uint64_t>(static_cast<int64_t>(inst_.offset)) : 0;
    if (inst_.smem_soffset || !inst_.smem_imm) offset += w_.s[inst_.soffset & 127];
    out_.scalar = true;
    uint64_t size = ~uint64_t{0};
    uint64_t from = w_.Pair(base->code);
    if (base->width == 4) {
      const uint32_t* r = &w_.s[base->code];
      const uint32_t stride = r[1] >> 16 & 0x3fff;
      from = r[0] | uint64_t{r[1] & 0xffff} << 32;
      size = stride == 0 ? r[2] : uint64_t{r[2]} * stride;
      offset &= ~uint64_t{3};
    }
    for (int k = 0; k < facts_.scalar_dwords; ++k) {
      if (base->width == 4 && offset + 4 * k + 4 > size) continue;
      const uint64_t at = ((from + offset) & ~uint64_t{3}) + 4 * static_cast<uint64_t>(k);
      out_.pieces.push_back({at, 4, 0, static_cast<uint8_t>(k), Space::kGlobal,
                             facts_.store || facts_.atomic});
    }
  }

  void Vector() {
    out_.dma = inst_.lds || facts_.to_lds;
    EachLane([&](int lane) {
      uint64_t at;
      Space space;
      if (!Locate(lane, &at, &space)) return;
      Add(lane, 0, at, space, facts_.store || facts_.atomic);
      if (!out_.dma) return;
      const uint32_t slot = facts_.bytes < 4 ? 4 : facts_.bytes;
      const uint32_t limit = w_.group->isa == Isa::kGfx950 ? 0x3ffff : 0xffff;
      const uint64_t to = (w_.s[reg::kM0] & limit) +
                          static_cast<uint64_t>(static_cast<int64_t>(inst_.offset)) +
                          uint64_t{slot} * static_cast<uint64_t>(lane);
      out_.pieces.push_back(
          {to, static_cast<uint16_t>(slot), static_cast<uint8_t>(lane), 0, Space::kLds, true});
    });
  }

 private:
  template <class F>
  void EachLane(F f) {
    for (uint64_t mask = w_.exec(); mask != 0; mask &= mask - 1) f(__builtin_ctzll(mask));
  }
  void Add(int lane, int element, uint64_t at, Space space, bool write) {
    if (space == Space::kLds) at &= 0xffffffff;
    out_.pieces.push_back({at, facts_.bytes, static_cast<uint8_t>(lane),
                           static_cast<uint8_t>(element), space, write});
  }

  bool Locate(int lane, uint64_t* at, Space* space) const {
    *space = Space::kGlobal;
    const uint64_t offset = static_cast<uint64_t>(static_cast<int64_t>(inst_.offset));
    switch (inst_.row->family) {
      case Family::kMubuf:
      case Family::kMtbuf:
        return LocateBuffer(lane, at);
      case Family::kScratch:
        *space = Space::kScratch;
        *at = static_cast<uint32_t>((inst_.saddr == 0x7f ? 0 : w_.s[inst_.saddr & 127]) + offset +
                                    (inst_.sve && address_ ? address_[lane] : 0));
        return true;
      default:
        break;
    }
    if (address_ == nullptr) return false;
    if (inst_.row->family == Family::kGlobal && inst_.saddr != 0x7f) {
      *at = w_.Pair(inst_.saddr) + address_[lane] + offset;
      return true;
    }
    *at = (address_[lane] | uint64_t{address_[kLanes + lane]} << 32) + offset;
    if (inst_.row->family != Family::kFlat) return true;
    if (*at >> 32 == kSharedAperture >> 32) *space = Space::kLds;
    if (*at >> 32 == kPrivateAperture >> 32) *space = Space::kScratch;
    if (*space != Space::kGlobal) *at &= 0xffffffff;
    return true;
  }

  bool LocateBuffer(int lane, uint64_t* at) const {
    const Operand* resource = inst_.Find('r');
    if (resource == nullptr) return false;
    const uint32_t* r = &w_.s[resource->code];
    const uint64_t base = r[0] | uint64_t{r[1] & 0xffff} << 32;
    const uint32_t stride = r[1] >> 16 & 0x3fff, records = r[2];
    const uint64_t scalar = inst_.soffset < 128 ? w_.s[inst_.soffset]
                            : inst_.soffset <= 192
                                ? inst_.soffset - 128u
                                : static_cast<uint32_t>(192 - static_cast<int>(inst_.soffset));
    const bool add_lane = r[3] >> 23 & 1;
    const bool addressed = address_ != nullptr;
    uint64_t index = inst_.idxen && addressed ? address_[lane] : 0;
    if (add_lane) index += static_cast<uint64_t>(lane);
    uint64_t offset = static_cast<uint64_t>(inst_.offset);
    if (inst_.offen && addressed) offset += address_[(inst_.idxen ? kLanes : 0) + lane];
    *at = base + scalar + offset + index * stride;
    const bool structured = stride != 0 && (inst_.idxen || add_lane);
    const bool swizzled = r[1] >> 31 & 1;
    return structured ? index < records && (!swizzled || offset + facts_.bytes <= stride)
                      : scalar + offset + facts_.bytes <= records;
  }

  const Wave& w_;
  const Inst& inst_;
  const RowFacts& facts_;
  Accesses& out_;
  const uint32_t* address_ = nullptr;
};

}  // namespace

void FindAccesses(const Wave& w, const Op& op, const RowFacts& facts, Accesses* out) {
  out->pieces.clear();
  out->atomic = facts.atomic;
  out->scalar = out->dma = false;
  Finder finder(w, op, facts, out);
  if (facts.ds && facts.lds_memory) finder.Ds();
  if (facts.smem) finder.Smem();
  if (facts.vmem && !facts.inv && !facts.wbl2) finder.Vector();
}

}  // namespace mainarch::sim::isa
