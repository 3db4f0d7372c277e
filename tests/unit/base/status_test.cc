// SPDX-License-Identifier: MIT
#include "base/status.h"

#include <cerrno>

#include "support/test.h"

using namespace mainarch;

TEST(error_keeps_code_errno_and_device_through_context) {
  Status status = ErrnoError(Code::kIo, ENOSPC, "write ", 12, " bytes");
  status = WithDevice(WithContext(status, "cache"), 3);
  CHECK_EQ(static_cast<int>(CodeOf(status)), static_cast<int>(Code::kIo));
  CHECK_EQ(ErrnoOf(status), ENOSPC);
  CHECK_EQ(DeviceOf(status), 3u);
  CHECK_EQ(status.message(), "cache: write 12 bytes: No space left on device");
}

TEST(ok_has_no_code) {
  CHECK_EQ(static_cast<int>(CodeOf(absl::OkStatus())), 0);
  CHECK_EQ(DeviceOf(absl::OkStatus()), kNoDeviceIndex);
}
