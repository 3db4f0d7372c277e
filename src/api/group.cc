// SPDX-License-Identifier: MIT
#include <memory>
#include <utility>
#include <vector>

#include "api/call.h"
#include "api/env.h"
#include "api/handles.h"
#include "api/options.h"

namespace mainarch::api {
namespace {

StatusOr<Log> LogOf(const mainarch_group_options& options, int32_t environment_level) {
  if (options.log_level < 0 || options.log_level > MAINARCH_LOG_DEBUG) {
    return Error(Code::kInvalidArgument, "options.log_level ", options.log_level,
                 " is not from 0 to ", static_cast<int>(MAINARCH_LOG_DEBUG));
  }
  int32_t level = environment_level;
  if (level == 0) level = options.log_level;
  if (level == 0) level = MAINARCH_LOG_INFO;
  return Log(options.log, options.log_user, level);
}

void LogDevices(const mainarch_group& group) {
  const std::vector<backend::DeviceInfo> devices = group.backend->devices();
  for (size_t i = 0; i < devices.size(); ++i) {
    group.log.Write(LogLevel::kInfo, "device ", i, " of ", devices.size(), ": ", devices[i].name,
                    ", ", devices[i].isa, ", ", devices[i].compute_units, " compute units, ",
                    devices[i].memory_bytes, " bytes of memory");
  }
}

Result OpenGroup(const char* device, const mainarch_group_options* given, mainarch_group** out) {
  RETURN_IF_ERROR(CheckOut(out));
  ASSIGN_OR_RETURN(const mainarch_group_options options, ReadOptions(given, "options"));
  RETURN_IF_ERROR(CheckFlags(options.flags, MAINARCH_GROUP_IGNORE_ENVIRONMENT, "options"));
  Environment environment;
  if ((options.flags & MAINARCH_GROUP_IGNORE_ENVIRONMENT) == 0) {
    ASSIGN_OR_RETURN(environment, ReadEnvironment());
  }
  backend::BackendOptions backend_options;
  if (device != nullptr) backend_options.device = device;
  if (backend_options.device.empty()) backend_options.device = environment.device;
  backend_options.threads = options.threads;

  auto group = std::make_unique<mainarch_group>();
  ASSIGN_OR_RETURN(group->log, LogOf(options, environment.log_level));
  ASSIGN_OR_RETURN(group->origin, NewOrigin());
  backend_options.log = group->log;
  ASSIGN_OR_RETURN(group->backend, backend::CreateBackend(backend_options));
  LogDevices(*group);
  *out = group.release();
  return MAINARCH_OK;
}

}  // namespace

mainarch_device_info PublicInfo(const backend::DeviceInfo& device) {
  mainarch_device_info info{};
  info.memory_bytes = device.memory_bytes;
  info.free_bytes = device.free_bytes;
  info.compute_units = device.compute_units;
  CopyName(device.name, info.name);
  CopyName(device.isa, info.isa);
  return info;
}

}  // namespace mainarch::api

using namespace mainarch;
using namespace mainarch::api;

extern "C" {

mainarch_status mainarch_group_open(const char* device, const mainarch_group_options* options,
                                    mainarch_group** out, mainarch_error* error) {
  return Fence(error, [&] { return OpenGroup(device, options, out); });
}

void mainarch_group_destroy(mainarch_group* group) { delete group; }

size_t mainarch_group_device_count(const mainarch_group* group) {
  if (group == nullptr || !group->origin->Ours()) return 0;
  return static_cast<size_t>(group->backend->ranks());
}

mainarch_status mainarch_group_device_info_get(const mainarch_group* group, size_t index,
                                               mainarch_device_info* out, mainarch_error* error) {
  return Fence(error, [&]() -> Result {
    RETURN_IF_ERROR(CheckHandle(group, "group"));
    RETURN_IF_ERROR(NotNull(out, "out"));
    const std::vector<backend::DeviceInfo> devices = group->backend->devices();
    if (index >= devices.size()) {
      return Error(Code::kInvalidArgument, "index ", index, ": the group has ", devices.size(),
                   " devices");
    }
    RETURN_IF_ERROR(WriteInfo(PublicInfo(devices[index]), out, "out"));
    return MAINARCH_OK;
  });
}

}  // extern "C"
