// SPDX-License-Identifier: MIT
//
// The race checker, told instruction by instruction what two GPUs do: GPUs run side by side, so a
// flag may be stored between a load's issue and its turn. In every order in which the load can have
// seen the flag, what was published with it counts as seen; what was not published is a race.
#include "sim/isa/check/races.h"

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/test.h"
#include "unit/sim_isa/flat_context.h"
#include "unit/sim_isa/llvm.h"
#include "unit/sim_isa/machine.h"

namespace mainarch::sim::isa::test {
namespace {

constexpr uint64_t kData = 0x10000, kFlag = 0x10400, kEnd = 0x11000;
constexpr char kStore[] = "global_store_dword v[0:1], v2, off",
               kFlagStore[] = "global_store_dword v[0:1], v2, off sc0 sc1",
               kLoad[] = "global_load_dword v2, v[0:1], off",
               kFlagLoad[] = "global_load_dword v2, v[0:1], off sc0 sc1",
               kWait[] = "s_waitcnt vmcnt(0)", kWriteBack[] = "buffer_wbl2 sc0 sc1",
               kInvalidate[] = "buffer_inv sc0 sc1";

// Two waves, one on each GPU, and the order in which the checker hears of them.
class Stage {
 public:
  Stage() : memory_(kEnd - kData), set_(Isa::kGfx950, LaneCode::kPortable), program_(&set_) {
    for (uint32_t gpu = 0; gpu < 2; ++gpu) {
      contexts_.push_back(
          std::make_unique<FlatContext>(memory_.data(), kData, kEnd, gpu, Mtype::kRw));
      waves_[gpu] = check_.StartWave(check_.StartLaunch(gpu, 1, contexts_.back().get()), 0);
    }
  }

  // What the checker says when GPU `gpu` issues this.
  std::string Issue(int gpu, const char* text, uint64_t address = 0) {
    const Op* op = OpOf(text);
    if (op == nullptr) return "does not assemble";
    return check_.Issue(waves_[gpu], wave_, *op, Facts(*op), At(*op, address));
  }
  void Done(int gpu, const char* text, uint64_t address) {
    const Op* op = OpOf(text);
    check_.Done(waves_[gpu], *op, Facts(*op), At(*op, address));
  }
  void Put(uint64_t address, uint32_t value) {
    std::memcpy(memory_.data() + (address - kData), &value, 4);
  }
  // All of an instruction at once; a store's value.
  std::string Whole(int gpu, const char* text, uint64_t address = 0, uint32_t value = 0) {
    const std::string what = Issue(gpu, text, address);
    if (value != 0) Put(address, value);
    if (address != 0) Done(gpu, text, address);
    return what;
  }

 private:
  const RowFacts& Facts(const Op& op) { return effects_.FactsOf(*op.inst.row); }
  Accesses At(const Op& op, uint64_t address) {
    Accesses accesses;
    if (address == 0) return accesses;
    Piece piece;
    piece.address = address;
    piece.size = 4;
    piece.write = Facts(op).store;
    accesses.pieces.push_back(piece);
    return accesses;
  }
  const Op* OpOf(const char* text) {
    const Op*& op = ops_[text];
    if (op != nullptr) return op;
    std::string error;
    code_.push_back(Assemble(Isa::kGfx950, std::string(text) + "\n", &error));
    if (!error.empty()) return nullptr;
    code_.back().resize(4096);  // decoding looks at more than the instruction
    const uint64_t base = reinterpret_cast<uint64_t>(code_.back().data()) & ~uint64_t{15};
    std::memmove(reinterpret_cast<void*>(base + 16), code_.back().data(), 16);
    FlatMemory flat(base + 16, reinterpret_cast<uint8_t*>(base + 16), 2048);
    Wave wave;
    wave.group = &group_;
    wave.memory = &flat;
    wave.at = wave.pc = base + 16;
    return op = program_.DecodeAt(wave, program_.ChunkOf(wave.at));
  }

  std::vector<uint8_t> memory_;
  InstructionSet set_;
  Program program_;
  EffectsTable effects_;
  RaceCheck check_;
  std::vector<std::unique_ptr<FlatContext>> contexts_;
  uint32_t waves_[2] = {};
  Wave wave_;
  Workgroup group_;
  std::map<std::string, const Op*> ops_;
  std::deque<std::vector<uint8_t>> code_;
};

// GPU 0 writes the data and, if so asked, pushes it to where all see it.
std::string Produce(Stage& stage, bool publish) {
  std::string what = stage.Whole(0, kStore, kData, 42);
  if (publish) {
    what += stage.Whole(0, kWait);
    what += stage.Whole(0, kWriteBack);
    what += stage.Whole(0, kWait);
  }
  return what;
}
// GPU 1 has loaded the flag, and reads the data.
std::string Consume(Stage& stage, bool invalidate = true) {
  std::string what = stage.Whole(1, kWait);
  if (invalidate) what += stage.Whole(1, kInvalidate);
  return what + stage.Whole(1, kLoad, kData);
}

// Orders in which the load has, or may have, seen the flag.
struct Order {
  const char* name;
  std::function<std::string(Stage&)> run;  // the flag's store by GPU 0 and its load by GPU 1
};
const Order kSeen[] = {
    {"one after the other",
     [](Stage& s) {
       std::string what = s.Whole(0, kFlagStore, kFlag, 1);
       what += s.Whole(1, kFlagLoad, kFlag);
       return what;
     }},
    {"the whole store between the load's issue and its turn",
     [](Stage& s) {
       std::string what = s.Issue(1, kFlagLoad, kFlag);
       what += s.Whole(0, kFlagStore, kFlag, 1);
       s.Done(1, kFlagLoad, kFlag);
       return what;
     }},
    {"the store issued before the load, and done after it",
     [](Stage& s) {
       std::string what = s.Issue(0, kFlagStore, kFlag);
       s.Put(kFlag, 1);
       what += s.Whole(1, kFlagLoad, kFlag);
       s.Done(0, kFlagStore, kFlag);
       return what;
     }},
    {"the store issued after the load's issue, and done after the load",
     [](Stage& s) {
       std::string what = s.Issue(1, kFlagLoad, kFlag);
       what += s.Issue(0, kFlagStore, kFlag);
       s.Put(kFlag, 1);
       s.Done(1, kFlagLoad, kFlag);
       s.Done(0, kFlagStore, kFlag);
       return what;
     }},
};

TEST(what_was_published_with_a_flag_is_seen_with_it) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  for (const Order& order : kSeen) {
    Stage stage;
    std::string what = Produce(stage, true);
    what += order.run(stage);
    what += Consume(stage);
    if (!what.empty()) test_context.Fail(__FILE__, __LINE__, order.name + (": " + what));
  }
}

TEST(what_was_not_published_is_a_race_in_every_order) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  for (const Order& order : kSeen) {
    Stage stage;
    std::string what = Produce(stage, false);
    what += order.run(stage);
    CHECK_EQ(what, "");
    what = Consume(stage);
    if (what.find("no release and acquire at system scope") == what.npos) {
      test_context.Fail(__FILE__, __LINE__, order.name + (": '" + what + "'"));
    }
  }
}

TEST(a_consumer_that_keeps_its_old_lines_is_a_race_in_every_order) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  for (const Order& order : kSeen) {
    Stage stage;
    std::string what = Produce(stage, true);
    what += order.run(stage);
    CHECK_EQ(what, "");
    CHECK_NE(Consume(stage, false), "");
  }
}

// The load's turn was over before the store was issued: it has seen the flag of before.
TEST(a_load_that_was_done_before_the_store_was_issued_has_seen_nothing) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  Stage stage;
  CHECK_EQ(Produce(stage, true), "");
  CHECK_EQ(stage.Whole(1, kFlagLoad, kFlag), "");
  CHECK_EQ(stage.Whole(0, kFlagStore, kFlag, 1), "");
  CHECK_NE(Consume(stage).find("no release and acquire at system scope"), std::string::npos);
}

// Data that is stored after the flag's release is none of what the flag told, even when the flag
// was stored in the middle of the load.
TEST(a_store_after_the_flag_is_a_race) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  for (const Order& order : kSeen) {
    Stage stage;
    std::string what = Produce(stage, true);
    what += order.run(stage);
    what += stage.Whole(0, kStore, kData, 43);
    CHECK_EQ(what, "");
    CHECK_NE(Consume(stage), "");
  }
}

// A plain load of the flag that a flag's load of the same wave follows, as when a loop's first turn
// has lost its scope bits.
TEST(a_plain_load_of_a_flag_is_a_race_whatever_follows_it) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  for (const char* first : {kLoad, kFlagLoad}) {
    Stage stage;
    CHECK_EQ(stage.Whole(1, first, kFlag), "");
    CHECK_EQ(stage.Whole(1, kFlagLoad, kFlag), "");
    CHECK_EQ(stage.Whole(0, kFlagStore, kFlag, 1) == "", first == kFlagLoad);
  }
}

}  // namespace
}  // namespace mainarch::sim::isa::test
