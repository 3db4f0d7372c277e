// SPDX-License-Identifier: MIT
//
// The fixtures T1, T1y, T2, L3 as checkpoints on disk, and models loaded from them. Their configs are in
// data/manifest.json; their goldens in data/<fixture>-<variant>.safetensors.
#ifndef MAINARCH_TESTS_GOLDEN_FIXTURES_H_
#define MAINARCH_TESTS_GOLDEN_FIXTURES_H_

#include <memory>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/model.h"

namespace mainarch::test {

struct FixtureCase {
  std::string fixture;  // "T1"
  std::string variant;  // "fp8-block"
  uint64_t seed = 0;
  bool cpu_only = false;
  std::string Name() const { return fixture + "-" + variant; }
};

// Those that have a golden, but for those that are cpu_only, which some tests of GPUs name; and all.
std::vector<FixtureCase> AllFixtureCases();
std::vector<FixtureCase> CpuFixtureCases();
StatusOr<model::ModelConfig> FixtureConfig(const std::string& fixture);
// Four layers, one of which attends and the others are gated delta nets; dense, or of 8 experts.
model::ModelConfig SmallHybrid(bool experts);
// Four layers of full attention, as large.
model::ModelConfig SmallDense(int64_t max_position);
// A scratch directory with the checkpoint, written once a case; empty when that failed.
std::string WriteFixture(const FixtureCase& fixture, int64_t max_position = 0);

struct Setting {
  std::string device = "cpu";
  std::string target;  // "": the best
  uint32_t threads = 2;
  bool in_place = false;
  std::string Name() const {
    return device + "/" + target + "/" + std::to_string(threads) + (in_place ? "/in place" : "");
  }
};
StatusOr<std::shared_ptr<const model::Model>> LoadOn(const std::string& directory,
                                                     const Setting& setting);
// One thread on every target; several ranks; weights in place.
std::vector<Setting> AllSettings();

}  // namespace mainarch::test

#endif  // MAINARCH_TESTS_GOLDEN_FIXTURES_H_
