// SPDX-License-Identifier: MIT
//
// What a library says that was built without GPUs (MAINARCH_WITHOUT_GPUS, meson.build), when it is asked for one.
#ifndef MAINARCH_BACKEND_WITHOUT_GPUS_H_
#define MAINARCH_BACKEND_WITHOUT_GPUS_H_

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace mainarch::backend {

// `what` is what was asked for: "device \"gpu\"".
inline Status WithoutGpus(absl::string_view what) {
#if defined(__aarch64__)
  constexpr absl::string_view kBuiltFor = "arm64";
#else
  constexpr absl::string_view kBuiltFor = "this machine";
#endif
  return Error(Code::kUnsupported, what, ": this library was built for ", kBuiltFor,
               ", where it runs on CPUs alone, without GPUs and virtual nodes");
}

}  // namespace mainarch::backend

#endif  // MAINARCH_BACKEND_WITHOUT_GPUS_H_
