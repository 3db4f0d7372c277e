// SPDX-License-Identifier: MIT
//
// What a user types of a virtual node: the node ("gfx950x8,seed=7"), the fault script behind it
// ("hang=0@3;open@1:EACCES") and the command line of `mainarch sim`. The first byte says which.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "sim/launcher.h"
#include "sim/profile.h"
#include "sim/script.h"

namespace {

using namespace mainarch;

void FuzzNode(absl::string_view text) {
  const auto config = sim::ParseNode(text);
  if (!config.ok()) return;
  if (config->profile == nullptr || config->gpus < 1 || config->gpus > 16) abort();
  if (config->hidden_gpu >= static_cast<int32_t>(config->gpus) || config->threads > 64) abort();
}

void FuzzScript(absl::string_view text) {
  sim::Script script;
  const bool added = script.Add(text).ok();
  // Whatever was added, calls are counted and answered with a positive errno or none.
  for (uint32_t i = 0; i < 64; ++i) {
    const int error = script.OnIoctl(i);
    if (error < 0 || (error != 0 && !added)) abort();
    script.OnPacket(i % 4);
    script.LosesSignal(i % 4);
  }
  if (script.OnOpen() < 0 || script.OnMmap() < 0 || script.OnMunmap() < 0) abort();
  script.BadPages(0);
  script.ChunkDelayUs(0, 1);
}

void FuzzLaunch(absl::string_view text) {
  const std::vector<std::string> arguments = absl::StrSplit(text, '\n');
  const auto options = sim::ParseLaunch(arguments, "library");
  if (options.ok() && options->command.empty()) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] % 3 == 0) FuzzNode(text);
  if (data[0] % 3 == 1) FuzzScript(text);
  if (data[0] % 3 == 2) FuzzLaunch(text);
  return 0;
}
