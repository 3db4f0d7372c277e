// SPDX-License-Identifier: MIT
//
// A launch file: one kernel of any code object, what it is called with, and what should come out.
// Text, one statement a line; mainarch-launch(5) describes every one of them. Parsing trusts
// nothing and opens no other file; launch/run.h runs what was parsed.
//
//   mainarch-launch 1
//   object scale.co
//   kernel scale
//   workgroups 16
//   workgroup 256
//   buffer x 16384 random=f32 seed=1
//   buffer y 16384
//   arg 0 ptr x
//   arg 8 ptr y
//   arg 16 f32 2.5
//   expect y f32 file=want.bin abs=0 rel=1e-6
#ifndef MAINARCH_CLI_LAUNCH_LAUNCH_FILE_H_
#define MAINARCH_CLI_LAUNCH_LAUNCH_FILE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace mainarch::cli {

enum class Element : uint8_t {
  kU8, kI8, kU16, kI16, kU32, kI32, kU64, kI64, kF16, kBF16, kF32, kF64,
  kFp8,  // of fills only: e4m3, OCP and FNUZ, no NaN in either
};
uint32_t BytesOf(Element element);
absl::string_view NameOf(Element element);
bool IsInteger(Element element);

// What a buffer holds before the first run.
struct Fill {
  enum class Kind : uint8_t { kNone, kZero, kRandom, kPattern, kFile };
  Kind kind = Kind::kNone;  // none: as the driver gives it; on a virtual node poison, and sparse
  Element element = Element::kU8;  // kRandom
  uint64_t seed = 0;
  double low = 0, high = 0;  // integers: both included; fp8: not used
  std::vector<uint8_t> pattern;  // kPattern: repeated to the end
  std::string path;              // kFile
  uint64_t at = 0;               // byte of the file
};

struct LaunchBuffer {
  std::string name;
  uint64_t bytes = 0;
  Fill fill;
  int line = 0;
};

// Bytes of the argument buffer. A pointer is a buffer's address, and `value` bytes behind it.
struct LaunchArgument {
  uint32_t offset = 0;
  uint32_t size = 0;
  uint64_t value = 0;    // little endian, `size` bytes of it
  std::string buffer;    // not empty: a pointer
  std::string type, text;  // as written
  int line = 0;
};

// What a range of a buffer should be after the last run.
struct Expectation {
  enum class Kind : uint8_t { kFile, kValue, kSum };
  std::string buffer;
  Kind kind = Kind::kFile;
  Element element = Element::kU8;  // of kFile and kValue
  uint64_t from = 0;
  std::optional<uint64_t> bytes;  // else to the buffer's end
  std::string path;               // kFile
  double value = 0;               // kValue
  double absolute = 0, relative = 0;
  uint64_t sum = 0;  // kSum: XXH64, seed 0
  int line = 0;
};

// A range of a buffer that goes to a file after the last run.
struct LaunchOutput {
  std::string buffer, path;
  int line = 0;
};

struct LaunchFile {
  std::string name;  // of the file, for messages
  std::string isa;   // empty: any
  std::string object, kernel;
  std::array<uint32_t, 3> workgroups = {0, 1, 1};  // how many
  std::array<uint32_t, 3> workgroup = {0, 1, 1};   // work-items of one
  uint32_t lds = 0;                                // dynamic, bytes
  std::optional<uint32_t> kernarg;  // bytes of the argument buffer; else as the object says
  bool device_arguments = false;    // the argument buffer lies in the GPU's memory, not the host's
  bool resident = false;            // its workgroups wait for each other: all must fit at once
  uint32_t runs = 1;
  uint32_t rotate = 1;  // copies of all buffers; run i uses copy i mod rotate
  std::vector<LaunchBuffer> buffers;
  std::vector<LaunchArgument> arguments;
  std::vector<Expectation> expectations;
  std::vector<LaunchOutput> outputs;
  // Where a statement stands, for messages of what is found out later; 0: not given.
  int object_line = 0, kernel_line = 0, workgroups_line = 0, workgroup_line = 0, lds_line = 0;
  int kernarg_line = 0, arguments_line = 0, resident_line = 0, isa_line = 0;
};

inline constexpr size_t kMostLaunchBytes = size_t{1} << 20;
inline constexpr size_t kMostLaunchBuffers = 256;
inline constexpr uint32_t kMostKernargBytes = 65536;
inline constexpr uint64_t kMostBufferBytes = uint64_t{1} << 40;

// BadModel: "FILE:LINE: field value: what is wrong, and the limit".
StatusOr<LaunchFile> ParseLaunchFile(absl::string_view text, absl::string_view name);
// The same launch in the one way that this function writes it; parses to what it was made of.
std::string LaunchText(const LaunchFile& launch);

const LaunchBuffer* FindBuffer(const LaunchFile& launch, absl::string_view name);
// An error at a line of a launch file, for those who run it.
template <class... Parts>
Status LaunchError(const LaunchFile& launch, int line, const Parts&... parts) {
  return Error(Code::kInvalidArgument, launch.name, ":", line, ": ", parts...);
}

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_LAUNCH_LAUNCH_FILE_H_
