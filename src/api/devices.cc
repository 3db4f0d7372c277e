// SPDX-License-Identifier: MIT
#include <utility>
#include <vector>

#include "api/call.h"
#include "api/handles.h"
#include "api/options.h"
#include "backend/devices.h"
#ifndef MAINARCH_WITHOUT_GPUS
#include "kfd/linux_sys.h"
#endif

namespace mainarch::api {
namespace {

StatusOr<std::vector<backend::ListedDevice>> List() {
  std::vector<backend::ListedDevice> list(1);
  ASSIGN_OR_RETURN(list[0], backend::ListCpu());
#ifndef MAINARCH_WITHOUT_GPUS
  kfd::LinuxSys sys;
  ASSIGN_OR_RETURN(std::vector<backend::ListedDevice> gpus, backend::ListGpus(sys));
  for (backend::ListedDevice& gpu : gpus) list.push_back(std::move(gpu));
#endif
  return list;
}

Result GetDevice(size_t index, mainarch_device_info* out) {
  RETURN_IF_ERROR(NotNull(out, "out"));
  ASSIGN_OR_RETURN(const std::vector<backend::ListedDevice> list, List());
  if (index >= list.size()) {
    return Error(Code::kNotFound, "index ", index, ": this machine has ", list.size(), " devices");
  }
  const backend::ListedDevice& device = list[index];
  mainarch_device_info info = PublicInfo(device.info);
  info.status = static_cast<mainarch_status>(CodeOf(device.status));
  CopyName(device.device, info.device);
  CopyName(device.status.message(), info.reason);
  RETURN_IF_ERROR(WriteInfo(info, out, "out"));
  return MAINARCH_OK;
}

}  // namespace
}  // namespace mainarch::api

using namespace mainarch::api;

extern "C" mainarch_status mainarch_device_get(size_t index, mainarch_device_info* out,
                                               mainarch_error* error) {
  return Fence(error, [&] { return GetDevice(index, out); });
}
