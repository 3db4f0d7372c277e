// SPDX-License-Identifier: MIT
#include <cstdio>

#include "backend/backend.h"
#include "cli/command.h"
#include "cli/json_writer.h"
#include "cli/options.h"
#include "cli/output.h"
#include "mainarch.h"

namespace mainarch::cli {

int RunVersion(Arguments arguments) {
  bool json = false;
  Options options("version", "[--json]",
                  "Prints the version, and the CPU with the instructions its kernels use.",
                  "mainarch version --json");
  options.Flag("json", &json, "one JSON object");
  if (const auto code = options.Parse(arguments)) return *code;
  auto backend = backend::CreateBackend({.device = "cpu"});
  if (!backend.ok()) return Fail("version", backend.status());
  const backend::DeviceInfo device = (*backend)->devices()[0];
  if (json) {
    JsonWriter out;
    out.BeginObject().Field("version", mainarch_version_string());
    out.Key("cpu").BeginObject();
    out.Field("name", device.name).Field("isa", device.isa);
    out.Field("threads", device.compute_units).EndObject().EndObject();
    out.Print();
    return kExitOk;
  }
  std::printf("mainarch %s\ncpu: %s, %s, %u threads\n", mainarch_version_string(),
              device.name.c_str(), device.isa.c_str(), device.compute_units);
  return kExitOk;
}

}  // namespace mainarch::cli
