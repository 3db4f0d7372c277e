// SPDX-License-Identifier: MIT
#include "base/status.h"

#include <cerrno>
#include <memory>
#include <stdexcept>

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
  CHECK_EQ(static_cast<int>(CodeOf(OkStatus())), 0);
  CHECK_EQ(DeviceOf(OkStatus()), kNoDeviceIndex);
}

TEST(copies_share_what_they_say) {
  Status first = ErrnoError(Code::kIo, ENOSPC, "write");
  const Status copy = first;
  const Status taken = std::move(first);
  CHECK(first.ok());  // NOLINT: moved from
  CHECK_EQ(copy.message(), taken.message());
  CHECK_EQ(DeviceOf(WithDevice(copy, 2)), 2u);
  CHECK_EQ(DeviceOf(copy), kNoDeviceIndex);
  Status other = Error(Code::kBusy, "busy");
  other = copy;
  CHECK_EQ(ErrnoOf(other), ENOSPC);
  other = OkStatus();
  CHECK(other.ok());
  CHECK_EQ(other.message(), "");
}

namespace {

struct Base {
  virtual ~Base() = default;
};
struct Derived : Base {};

StatusOr<std::unique_ptr<Derived>> MakeDerived(bool good) {
  if (!good) return Error(Code::kNotFound, "none");
  return std::make_unique<Derived>();
}
StatusOr<std::unique_ptr<Base>> MakeBase(bool good) { return MakeDerived(good); }

StatusOr<int> Plus(StatusOr<int> x, int y) {
  ASSIGN_OR_RETURN(const int value, std::move(x));
  return value + y;
}

}  // namespace

TEST(a_value_or_why_there_is_none) {
  CHECK_EQ(*Plus(2, 3), 5);
  const StatusOr<int> gone = Plus(Error(Code::kIo, "gone"), 3);
  CHECK_EQ(gone.status().message(), "gone");
  auto base = MakeBase(true);
  CHECK(base.ok() && *base != nullptr);
  const std::unique_ptr<Base> taken = *std::move(base);
  CHECK(taken != nullptr);
  CHECK_EQ(static_cast<int>(CodeOf(MakeBase(false).status())), static_cast<int>(Code::kNotFound));
  // An ok that comes without a value is an error, and so is taking what is not there.
  const StatusOr<int> none = OkStatus();
  CHECK_EQ(static_cast<int>(CodeOf(none.status())), static_cast<int>(Code::kInternal));
  bool thrown = false;
  try {
    (void)*none;
  } catch (const std::logic_error&) {
    thrown = true;
  }
  CHECK(thrown);
}
