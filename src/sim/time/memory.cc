// SPDX-License-Identifier: MIT
#include "sim/time/memory.h"

namespace mainarch::sim::timing {
namespace {

constexpr double kLine = 128;
constexpr size_t kHolders = size_t{1} << 20, kSerials = 4096, kPeers = 16;
// Buckets of these have about the clocks that a dozen lines take.
constexpr int kL2Bucket = 5, kFabricBucket = 5, kHbmBucket = 6, kLinkBucket = 7;

size_t Mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return static_cast<size_t>(x ^ x >> 31);
}
// Neighbours lie together.
size_t HolderOf(uint64_t line) { return ((Mix(line >> 6) << 6) | (line & 63)) % kHolders; }
Clocks Round(double x) { return static_cast<Clocks>(x + 0.5); }
// TB/s over so many users, in bytes a clock of MHz.
double BytesAClock(double tbs, double mhz, double users) { return tbs * 1e6 / mhz / users; }

}  // namespace

MemorySystem::MemorySystem(const Params& p, uint32_t xccs)
    : params_(p),
      l2_(Round(p.l2_latency)),
      mall_(Round(p.clocks(p.mall_ns))),
      hbm_(Round(p.clocks(p.hbm_ns))),
      far_(Round(p.clocks(p.far_ns))),
      ack_(Round(p.clocks(p.store_ack_ns))),
      cross_(Round(p.clocks(p.cross_ns))),
      serial_(Round(p.clocks(p.line_serial_ns))),
      turn_(Round(p.clocks(p.hbm_turn_ns))),
      mall_tags_(static_cast<uint64_t>(p.mall_mb * 1048576 / kLine / 8), 16, false),
      mall_there_(mall_tags_.places(), 0),
      mall_dirty_(mall_tags_.places(), 0),
      holders_(kHolders, 0),
      serials_(kSerials) {
  const auto channels = static_cast<size_t>(p.l2_channels);
  xccs_.resize(xccs);
  for (Xcc& x : xccs_) {
    x.l2 = Tags(static_cast<uint64_t>(p.l2_kb * 1024 / kLine), 16, true);
    x.read.assign(channels, Capacity(p.l2_read_bytes, kL2Bucket));
    x.write.assign(channels, Capacity(p.l2_write_bytes, kL2Bucket));
    x.fabric_read = Capacity(BytesAClock(p.fabric_read_tbs, p.clock_mhz, xccs), kFabricBucket);
    x.fabric_write = Capacity(BytesAClock(p.fabric_write_tbs, p.clock_mhz, xccs), kFabricBucket);
  }
  const auto stacks = static_cast<size_t>(p.hbm_channels);
  // A channel's unit is its time: reads and writes share it.
  hbm_read_.assign(stacks, Capacity(1, kHbmBucket));
  last_write_.assign(stacks, 0);
  const double nominal = BytesAClock(p.hbm_tbs, p.clock_mhz, p.hbm_channels);
  read_cost_ = kLine / (nominal * p.hbm_read_share);
  write_cost_ = kLine / (nominal * p.hbm_write_share);
  links_.assign(2 * kPeers, Capacity(p.xgmi_gbs * 1e3 / p.clock_mhz, kLinkBucket));
  pcie_read_ = Capacity(p.pcie_gbs * 1e3 / p.clock_mhz, kLinkBucket);
  pcie_write_ = pcie_read_;
}

void MemorySystem::Clear() {
  for (Xcc& x : xccs_) {
    x.l2.Clear();
    x.dirty.clear();
  }
  mall_tags_.Clear();
  std::fill(mall_there_.begin(), mall_there_.end(), uint8_t{0});
  std::fill(mall_dirty_.begin(), mall_dirty_.end(), uint8_t{0});
  std::fill(holders_.begin(), holders_.end(), uint8_t{0});
}

uint32_t MemorySystem::L2Channel(uint64_t line) const {
  const uint64_t x = line >> 1;  // 256 bytes in a row on one
  return static_cast<uint32_t>((x ^ x >> 4 ^ x >> 8 ^ x >> 12 ^ x >> 17) % xccs_[0].read.size());
}

// When a channel of memory begins with a line.
Clocks MemorySystem::Channel(uint64_t line, Clocks at, bool write) {
  const auto row = static_cast<uint64_t>(line * 128 / static_cast<uint64_t>(params_.hbm_interleave));
  const size_t channel = Mix(row) % hbm_read_.size();
  double cost = write ? write_cost_ : read_cost_;
  if (turn_ > 0 && last_write_[channel] != write) cost += static_cast<double>(turn_);
  last_write_[channel] = write;
  (write ? bytes_.hbm_write : bytes_.hbm_read) += 128;
  return hbm_read_[channel].Take(at, cost);
}

// Operations of the memory side on one line come one after the other.
MemorySystem::Serial& MemorySystem::SerialOf(uint64_t line) {
  Serial& s = serials_[Mix(line) % kSerials];
  if (s.line != line) s = {line, 0, ~0u};
  return s;
}

Clocks MemorySystem::SerialOn(uint64_t line, Clocks at) {
  Serial& s = SerialOf(line);
  const Clocks begins = std::max(at, s.free);
  s.free = begins + serial_;
  return begins;
}

void MemorySystem::DropElsewhere(uint32_t xcc, uint64_t line) {
  uint8_t& holders = holders_[HolderOf(line)];
  const uint32_t own = xcc < xccs_.size() ? 1u << (xcc & 7) : 0;
  for (uint32_t others = holders & ~own; others != 0; others &= others - 1) {
    const auto other = static_cast<uint32_t>(__builtin_ctz(others));
    if (other >= xccs_.size() || other == xcc) continue;
    Tags& l2 = xccs_[other].l2;
    const uint32_t place = l2.Find(line);
    if (place != Tags::kNone) l2.Drop(place);
  }
  // Other lines of the same hash may be held too: only those that nobody asks for are forgotten.
}

uint32_t MemorySystem::PutL2(Xcc& x, uint32_t xcc, uint64_t line, Clocks at, Clocks arrives,
                             Clocks* taken) {
  bool evicted = false;
  uint64_t old = 0;
  const uint32_t place = x.l2.Put(line, &evicted, &old);
  x.l2.set_arrives(place, arrives);
  holders_[HolderOf(line)] |= static_cast<uint8_t>(1u << (xcc & 7));
  if (evicted) {
    const Clocks below = ToMemory(old, x.fabric_write.Take(at, kLine));
    if (taken != nullptr) *taken = below;
  }
  return place;
}

uint32_t MemorySystem::MallSector(uint64_t line, Clocks at, Clocks* taken) {
  uint32_t place = mall_tags_.Find(line >> 3);
  if (place != Tags::kNone) return place;
  bool evicted = false;
  uint64_t old = 0;
  place = mall_tags_.Put(line >> 3, &evicted, &old);
  for (uint32_t dirty = evicted ? mall_dirty_[place] : 0; dirty != 0; dirty &= dirty - 1) {
    const uint64_t gone = old << 3 | static_cast<uint64_t>(__builtin_ctz(dirty));
    *taken = std::max(*taken, Channel(gone, at, true));
  }
  mall_there_[place] = mall_dirty_[place] = 0;
  return place;
}

// A line goes down to MALL and, when that has to make room, to memory.
Clocks MemorySystem::ToMemory(uint64_t line, Clocks at) {
  if (params_.mall_mb == 0) return Channel(line, at, true);
  Clocks taken = at;
  const uint32_t place = MallSector(line, at, &taken);
  const auto bit = static_cast<uint8_t>(1u << (line & 7));
  mall_there_[place] |= bit;
  mall_dirty_[place] |= bit;
  mall_tags_.MakeDirty(place);
  return taken;
}

// From behind an L2 that does not have it. `at`: when the compute unit asked.
Done MemorySystem::FromMemory(Xcc& x, uint64_t line, Clocks at) {
  Done done;
  Clocks most = 0;
  const Clocks reached = at + (l2_ + mall_) / 4;  // half of the way there
  const uint32_t place = params_.mall_mb == 0 ? Tags::kNone : mall_tags_.Find(line >> 3);
  const auto bit = static_cast<uint8_t>(1u << (line & 7));
  // What others have put there is told by a share: one line in so many, always the same ones.
  const bool before = static_cast<double>(Mix(line + 0x5851f42d) & 0xffff) < params_.mall_share * 0x10000;
  const bool hit = place != Tags::kNone ? (mall_there_[place] & bit) != 0 || before : before && params_.mall_mb > 0;
  done.at = at + (hit ? mall_ : hbm_);
  done.Wait(x.fabric_read.Take(reached, kLine) - reached, Limit::kFabric, &most);
  if (hit) {
    bytes_.mall_hit += 128;
    Clocks taken = reached;
    mall_there_[place != Tags::kNone ? place : MallSector(line, reached, &taken)] |= bit;
    if (place != Tags::kNone) mall_tags_.Touch(place);
    return done;
  }
  const Clocks there = reached + done.queued;
  done.Wait(Channel(line, there, false) - there, Limit::kHbm, &most);
  if (params_.mall_mb == 0) return done;
  Clocks taken = there;
  mall_there_[MallSector(line, there, &taken)] |= bit;
  return done;
}

// Memory of peers and of the host: no cache of ours answers.
Done MemorySystem::Outside(uint32_t xcc, uint64_t line, Clocks at, isa::Where where, bool write,
                           double bytes) {
  Done done;
  Clocks most = 0;
  const bool host = where.place == isa::Where::kHost;
  (host ? bytes_.host : bytes_.peer) += static_cast<uint64_t>(bytes);
  const double way = host ? params_.pcie_ns : write ? params_.xgmi_store_ns : params_.xgmi_ns;
  const Clocks half = Round(params_.clocks(way) / 2);
  done.at = at + 2 * half;
  Capacity& link = host ? (write ? pcie_write_ : pcie_read_)
                        : links_[2 * (where.peer % kPeers) + (write ? 1 : 0)];
  Xcc& x = xccs_[xcc];
  const Clocks out = at + half / 2;
  done.Wait((write ? x.fabric_write : x.fabric_read).Take(out, bytes) - out, Limit::kFabric, &most);
  const Clocks begins = out + done.queued;
  done.Wait(link.Take(begins, bytes) - begins + link.Span(bytes), Limit::kLink, &most);
  if (write) {
    const Clocks there = done.at - half;
    done.Wait(SerialOn(line, there) - there, Limit::kLink, &most);
  }
  return done;
}

Done MemorySystem::Read(uint32_t xcc, uint64_t line, Clocks at, isa::Where where, bool coherent,
                        bool nt) {
  if (where.place != isa::Where::kLocal) return Outside(xcc, line, at, where, false, kLine);
  Xcc& x = xccs_[xcc];
  const auto page = static_cast<Page>(where.mtype);
  Clocks most = 0;
  bytes_.l2_read += 128;
  const Clocks reached = at + l2_ / 4;
  const Clocks wait = x.read[L2Channel(line)].Take(reached, kLine) - reached;
  const bool past = page == Page::kUc || (coherent && page == Page::kNc);
  const uint32_t place = past ? Tags::kNone : x.l2.Find(line);
  if (place != Tags::kNone) {
    Done done;
    done.at = at + l2_;
    bytes_.l2_hit += 128;
    x.l2.Touch(place);
    done.Wait(wait, Limit::kL2, &most);
    const Clocks arrives = x.l2.arrives(place) + l2_ / 2;
    if (arrives > done.at) {
      // On its way for somebody else: what that one waits for.
      done.at = arrives;
      done.queued = 0;
      done.why = Limit::kLatency;
    }
    return done;
  }
  Done done;
  if (past) {
    done.at = at + far_;
    const Clocks there = at + far_ / 2;
    done.Wait(wait, Limit::kL2, &most);
    // Reads that no cache answers queue at the memory side, by blocks of 4 KiB.
    done.Wait(SerialOn(line >> 5 | uint64_t{1} << 60, there) - there, Limit::kFabric, &most);
    return done;
  }
  done = FromMemory(x, line, at + wait);
  // What another XCD holds or the memory side serialises is no slower than far.
  if (coherent) {
    done.at = std::max(done.at, at + far_);
    const uint32_t writer = SerialOf(line).writer;
    if (writer != ~0u && writer != xcc) done.at += cross_;
  }
  const uint32_t put = PutL2(x, xcc, line, at, done.at - l2_ / 2);
  if (!nt) x.l2.Touch(put);
  most = done.queued;
  done.queued += wait;
  if (wait > most) done.why = Limit::kL2;
  return done;
}

Done MemorySystem::Write(uint32_t xcc, uint64_t line, Clocks at, isa::Where where, bool coherent,
                         bool whole) {
  const double bytes = whole ? kLine : kLine / 2;
  if (where.place != isa::Where::kLocal) return Outside(xcc, line, at, where, true, bytes);
  Xcc& x = xccs_[xcc];
  const auto page = static_cast<Page>(where.mtype);
  Done done;
  Clocks most = 0;
  bytes_.l2_write += 128;
  const Clocks reached = at + l2_ / 4;
  done.at = at + l2_;
  done.Wait(x.write[L2Channel(line)].Take(reached, bytes) - reached, Limit::kL2, &most);
  DropElsewhere(xcc, line);
  const bool through = coherent || page == Page::kUc || page == Page::kCc;
  uint32_t place = x.l2.Find(line);
  if (through) {
    SerialOf(line).writer = xcc;
    done.at += ack_ - l2_;
    const Clocks there = reached + done.queued + ack_ / 4;
    done.Wait(x.fabric_write.Take(there, bytes) - there, Limit::kFabric, &most);
    done.Wait(ToMemory(line, there) - there, Limit::kHbm, &most);
    // Sees to it that polls of this XCD find the new value where they look.
    if (place == Tags::kNone && page != Page::kUc && page != Page::kNc) PutL2(x, xcc, line, at, done.at - l2_ / 2);
    return done;
  }
  if (place == Tags::kNone) {
    Clocks taken = reached;
    place = PutL2(x, xcc, line, reached, at, &taken);
    done.Wait(taken - reached, Limit::kHbm, &most);
  }
  x.l2.Touch(place);
  if (x.l2.MakeDirty(place)) x.dirty.push_back(line);
  return done;
}

Done MemorySystem::Atomic(uint32_t xcc, uint64_t line, Clocks at, isa::Where where, bool coherent) {
  if (where.place != isa::Where::kLocal) return Outside(xcc, line, at, where, true, kLine / 2);
  Done done;
  Clocks most = 0;
  DropElsewhere(xcc, line);
  const auto page = static_cast<Page>(where.mtype);
  if (coherent || page == Page::kUc || page == Page::kNc) {
    done.at = at + far_;
    const Clocks there = at + far_ / 2;
    done.Wait(SerialOn(line, there) - there, Limit::kFabric, &most);
    SerialOf(line).writer = xcc;
    // The memory side has the line now.
    Tags& l2 = xccs_[xcc].l2;
    const uint32_t place = l2.Find(line);
    if (place != Tags::kNone) l2.Drop(place);
    ToMemory(line, there);
    return done;
  }
  Xcc& x = xccs_[xcc];
  const Clocks reached = at + l2_ / 4;
  bytes_.l2_read += 128;
  bytes_.l2_write += 128;
  uint32_t place = x.l2.Find(line);
  if (place == Tags::kNone) {
    done = FromMemory(x, line, at);
    place = PutL2(x, xcc, line, at, done.at - l2_ / 2);
  } else {
    bytes_.l2_hit += 128;
    done.at = std::max(at + l2_, x.l2.arrives(place) + l2_ / 2);
  }
  if (x.l2.MakeDirty(place)) x.dirty.push_back(line);
  most = done.queued;
  done.Wait(x.write[L2Channel(line)].Take(reached, kLine / 2) - reached, Limit::kL2, &most);
  return done;
}

Clocks MemorySystem::WriteBack(uint32_t xcc, Clocks at) {
  Xcc& x = xccs_[xcc];
  Clocks last = at;
  for (uint64_t line : x.dirty) {
    const uint32_t place = x.l2.Find(line);
    if (place == Tags::kNone || !x.l2.dirty(place)) continue;
    x.l2.Clean(place);
    const Clocks begins = x.fabric_write.Take(at, kLine);
    ToMemory(line, begins);
    last = std::max(last, begins + x.fabric_write.Span(kLine));
  }
  x.dirty.clear();
  return last;
}

}  // namespace mainarch::sim::timing
