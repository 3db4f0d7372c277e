// SPDX-License-Identifier: MIT
//
// Launch files: what parses and what does not, and a HIP kernel run by one on a virtual node, with
// every lie about sizes told in turn.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/fd.h"
#include "cli/launch/fill.h"
#include "cli/launch/launch_file.h"
#include "cli/launch/run.h"
#include "sim/open.h"
#include "support/test.h"

namespace mainarch::cli {
namespace {

constexpr char kHead[] =
    "mainarch-launch 1\nobject a.co\nkernel k\nworkgroups 4\nworkgroup 64\nbuffer b 64\n";

std::string ErrorOf(absl::string_view text) {
  const auto launch = ParseLaunchFile(text, "f");
  return launch.ok() ? "ok" : std::string(launch.status().message());
}
std::string ErrorBehind(absl::string_view line) { return ErrorOf(absl::StrCat(kHead, line)); }

TEST(every_statement_is_taken) {
  const auto launch = ParseLaunchFile(
      "# a comment\n\nmainarch-launch 1\r\nisa gfx942\nobject \"a b.co\" # behind\nkernel k\n"
      "workgroups 4 5 6\nworkgroup 8 4 2\nlds 512\nkernarg 64\narguments device\nresident\nruns 3\nrotate 2\n"
      "buffer a 16 zero\nbuffer b 16 random=i8 seed=3 low=-2 high=2\nbuffer c 16 pattern=00ff\n"
      "buffer d 16 file=\"x y\" at=4\nbuffer e 16\n"
      "arg 0 ptr a\narg 8 ptr b 4\narg 16 i16 -2\narg 20 f32 1.5\narg 24 bf16 1\n"
      "expect e u32 value=7 from=4 bytes=8\nexpect a sum=0123456789abcdef\n"
      "expect b f16 file=w abs=1e-3 rel=0.5\nwrite c out\n",
      "dir/f");
  CHECK_OK(launch);
  CHECK_EQ(launch->object, "a b.co");
  CHECK_EQ(launch->workgroups[2], 6u);
  CHECK_EQ(launch->workgroup[1], 4u);
  CHECK_EQ(launch->lds, 512u);
  CHECK(launch->resident && launch->device_arguments && launch->kernarg == 64u && launch->runs == 3 && launch->rotate == 2);
  CHECK_EQ(launch->buffers.size(), 5u);
  CHECK_EQ(launch->buffers[1].fill.low, -2.0);
  CHECK_EQ(launch->arguments[2].value, 0xfffeu);
  CHECK_EQ(launch->arguments[3].value, 0x3fc00000u);
  CHECK_EQ(launch->arguments[4].value, 0x3f80u);
  CHECK_EQ(launch->expectations[1].sum, 0x0123456789abcdefu);
  CHECK_EQ(PathBeside(*launch, "x"), "dir/x");
  CHECK_EQ(PathBeside(*launch, "/x"), "/x");
  // What is written of it is the same launch.
  const std::string text = LaunchText(*launch);
  const auto again = ParseLaunchFile(text, "dir/f");
  CHECK_OK(again);
  CHECK_EQ(LaunchText(*again), text);
}

TEST(what_is_wrong_is_told_by_line_field_value_and_limit) {
  const std::pair<const char*, const char*> cases[] = {
      {"frob 1", "f:7: \"frob\": no such statement"},
      {"lds 99999999", "f:7: \"lds\": bytes \"99999999\": expected a number from 0 to 1048576"},
      {"lds 0x10", "expected a number from 0"},
      {"lds 010", "expected a number from 0"},
      {"lds", "bytes is missing"},
      {"lds 1 2", "nothing is expected behind \"1\", but there is \"2\""},
      {"kernel again", "given again; it stands in line 3"},
      {"isa gfx90a", "expected gfx942 or gfx950"},
      {"workgroup 64", "given again; it stands in line 5"},
      {"buffer b 64", "taken by line 6"},
      {"buffer c 0", "expected a number from 1"},
      {"buffer c-d 4", "letters, digits and _"},
      {"buffer c 3 random=f32", "3 bytes are no whole number of f32"},
      {"buffer c 4 random=f31", "expected one of u8"},
      {"buffer c 4 random=u8 high=256", "whole numbers from 0 to 255"},
      {"buffer c 4 random=u8 low=0.5", "whole numbers from 0 to 255"},
      {"buffer c 4 random=f32 low=2 high=1", "low 2 is above high 1"},
      {"buffer c 4 random=f32 low=nan", "expected a finite number"},
      {"buffer c 8 random=f64 low=-1e308 high=1e308", "too far apart"},
      {"buffer c 4 seed=1", "belong to random="},
      {"buffer c 4 zero random=u8", "filled twice"},
      {"buffer c 4 pattern=0g", "hexadecimal"},
      {"buffer c 4 pattern=012", "hexadecimal"},
      {"buffer c 4 zero at=1", "belongs to file="},
      {"arg 0 ptr nobody", "no line above makes it"},
      {"arg 0 ptr b 65", "expected a number from 0 to 64"},
      {"arg 0 u8 256", "expected a whole number from 0 to 255"},
      {"arg 0 i8 -129", "expected a whole number from -128 to 127"},
      {"arg 0 f16 70000", "too large for f16"},
      {"arg 65535 u32 0", "ends at byte 65539; at most 65536"},
      {"arg 0 u64 1\narg 4 u32 1", "f:8: \"arg\": bytes 4 to 7: line 7 has set some of them"},
      {"arg 8 u64 1\nkernarg 12", "f:7: \"arg\": ends at byte 16; line 8 says kernarg 12"},
      {"expect b f32", "one of file= value= sum= is missing"},
      {"expect b value=1", "the type of its elements is missing"},
      {"expect b u8 sum=0123456789abcdef", "sum= takes no type"},
      {"expect b sum=12", "16 hexadecimal digits"},
      {"expect b f32 value=1 from=62", "2 bytes are no whole number of f32"},
      {"expect b f32 value=1 from=60 bytes=8", "b has 64 bytes"},
      {"expect b f32 value=1 abs=-1", "expected 0 or more"},
      {"write nobody x", "no line above makes it"},
      {"arguments", "place is missing"},
      {"arguments vram", "f:7: \"arguments\": place \"vram\": expected host or device"},
      {"arguments host\narguments device", "given again; it stands in line 7"},
      {"runs 0", "expected a number from 1 to 1000"},
      {"buffer c 1099511627776\nrotate 2", "bytes in all, with their copies"},
      {"\"unended", "a quote that does not end"},
      {"lds \x01", "a control character"},
  };
  for (const auto& [line, message] : cases) {
    const std::string error = ErrorBehind(line);
    if (!absl::StrContains(error, message)) {
      test_context.Fail(__FILE__, __LINE__, absl::StrCat(line, ": ", error));
      return;
    }
  }
  CHECK(absl::StrContains(ErrorOf(""), "no statement"));
  CHECK(absl::StrContains(ErrorOf("kernel k"), "expected \"mainarch-launch 1\""));
  CHECK(absl::StrContains(ErrorOf("mainarch-launch 2"), "expected a number from 1 to 1"));
  CHECK(absl::StrContains(ErrorOf("mainarch-launch 1\nobject a"), "there is no statement \"kernel\""));
  CHECK(absl::StrContains(
      ErrorOf("mainarch-launch 1\nobject a\nkernel k\nworkgroups 4294967295\nworkgroup 2"), "at most 4294967295"));
  CHECK(absl::StrContains(ErrorOf(std::string(kMostLaunchBytes + 1, ' ')), "at most"));
  CHECK(absl::StrContains(ErrorOf(std::string(5000, ' ')), "characters; at most 4096"));
}

TEST(fills_are_what_they_say) {
  const auto launch = ParseLaunchFile(
      absl::StrCat(kHead, "buffer i 4096 random=i8 seed=1 low=-3 high=3\nbuffer f 4096 random=f32 low=2 high=3\n"
                          "buffer p 5 pattern=0102\nbuffer q 4096 random=fp8 seed=2\n"),
      "f");
  CHECK_OK(launch);
  std::vector<uint8_t> bytes(4096);
  CHECK_OK(FillBuffer(*launch, launch->buffers[1], absl::MakeSpan(bytes)));
  for (int want = -3; want <= 3; ++want) {
    CHECK_GT(std::count(bytes.begin(), bytes.end(), static_cast<uint8_t>(want)), 400);
  }
  CHECK_OK(FillBuffer(*launch, launch->buffers[2], absl::MakeSpan(bytes)));
  for (size_t i = 0; i < 4096; i += 4) {
    float value;
    std::memcpy(&value, &bytes[i], 4);
    CHECK(value >= 2 && value <= 3);
  }
  std::vector<uint8_t> five(5);
  CHECK_OK(FillBuffer(*launch, launch->buffers[3], absl::MakeSpan(five)));
  CHECK(five == std::vector<uint8_t>({1, 2, 1, 2, 1}));
  CHECK_OK(FillBuffer(*launch, launch->buffers[4], absl::MakeSpan(bytes)));
  for (const uint8_t byte : bytes) CHECK((byte & 0x7f) <= 0x38 && byte != 0x80);
}

TEST(comparisons_find_the_first_wrong_element) {
  const auto launch = ParseLaunchFile(
      absl::StrCat(kHead, "expect b f32 value=2 rel=0.25\nexpect b f32 value=2 abs=1 bytes=8\n"), "f");
  CHECK_OK(launch);
  std::array<float, 16> values;
  values.fill(2.5f);
  const absl::Span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(values.data()), sizeof values);
  auto all = Compare(*launch, launch->expectations[0], bytes);
  CHECK_OK(all);
  CHECK(all->ok());
  CHECK_EQ(all->worst_relative, 0.25);
  values[3] = NAN;
  all = Compare(*launch, launch->expectations[0], bytes);
  CHECK_OK(all);
  CHECK_EQ(all->wrong, 1u);
  CHECK(absl::StrContains(all->first, "element 3"));
  const auto part = Compare(*launch, launch->expectations[1], bytes);
  CHECK_OK(part);
  CHECK(part->ok() && part->elements == 2);
}

// A folder with the example of the man page: code object, launch file and what is expected.
class Example {
 public:
  explicit Example(const std::string& isa) : directory_(test::ScratchDirectory()) {
    const std::string command = absl::StrCat(
        "clang-22 -x hip --cuda-device-only --offload-arch=", isa,
        " -nogpuinc -nogpulib --no-gpu-bundle-output -std=c++20 -ffp-contract=off -O2 -o ", directory_, "/scale.co ",
        test::SourcePath("tests/cli/launch/scale.hip"));
    compiled_ = std::system(command.c_str()) == 0;
    const auto text = ReadWholeFile(test::SourcePath("tests/cli/launch/scale.launch"), 1 << 20);
    if (text.ok()) text_ = *text;
    WriteExpected();
  }
  bool good() const { return compiled_ && !text_.empty(); }
  const std::string& text() const { return text_; }
  std::string path(absl::string_view name) const { return absl::StrCat(directory_, "/", name); }

  StatusOr<LaunchResult> Run(absl::string_view text, const std::string& node) const {
    ASSIGN_OR_RETURN(const LaunchFile launch, ParseLaunchFile(text, path("scale.launch")));
    ASSIGN_OR_RETURN(const auto sys, sim::OpenSim(node));
    LaunchOptions options;
    options.timeout_ms = 60'000;
    auto result = RunLaunch(*sys, launch, options);
    if (result.ok()) {
      for (Comparison& each : result->comparisons) each.expectation = nullptr;  // they go with `launch`
    }
    return result;
  }
  std::string ErrorOf(absl::string_view text, const std::string& node) const {
    const auto result = Run(text, node);
    return result.ok() ? "ok" : std::string(result.status().message());
  }

 private:
  void WriteExpected() const {
    constexpr size_t kCount = 16384, kBlocks = 16, kThreads = 256;
    const auto launch = ParseLaunchFile(absl::StrCat(kHead, "buffer x 65536 random=f32 seed=7\n"), "f");
    std::vector<float> x(kCount), y(kCount);
    FillBuffer(*launch, launch->buffers[1], absl::MakeSpan(reinterpret_cast<uint8_t*>(x.data()), kCount * 4))
        .IgnoreError();
    for (size_t block = 0; block < kBlocks; ++block) {
      float most = 0;
      const auto each = [&](auto visit) {
        for (size_t i = 0; i < kCount; ++i) {
          if (i / kThreads % kBlocks == block) visit(i);
        }
      };
      each([&](size_t i) { most = std::max(most, std::fabs(x[i])); });
      each([&](size_t i) { y[i] = 2.5f * x[i] + most; });
    }
    std::ofstream(path("want.bin"), std::ios::binary).write(reinterpret_cast<const char*>(y.data()), kCount * 4);
  }

  std::string directory_, text_;
  bool compiled_ = false;
};

std::string With(const Example& example, absl::string_view from, absl::string_view to) {
  return absl::StrReplaceAll(example.text(), {{from, to}});
}

TEST(a_hip_kernel_runs_as_its_launch_file_says) {
  for (const std::string isa : {"gfx942", "gfx950"}) {
    const Example example(isa);
    CHECK(example.good());
    const auto result = example.Run(example.text(), isa + ",check=all");
    CHECK_OK(result);
    CHECK(result->ok());
    CHECK_EQ(result->workgroups, 16u);
    CHECK_EQ(result->waves, 4u);
    CHECK_EQ(result->isa, isa);
    CHECK_GT(result->vgprs, 0u);
    const auto got = ReadWholeFile(example.path("got.bin"), 1 << 20);
    const auto want = ReadWholeFile(example.path("want.bin"), 1 << 20);
    CHECK_OK(got);
    CHECK_OK(want);
    CHECK(*got == *want);
  }
}

TEST(arguments_may_lie_with_the_gpu) {
  const Example example("gfx950");
  CHECK(example.good());
  // Every run has its own, with the addresses of its copy of the buffers.
  const auto result = example.Run(absl::StrCat(example.text(), "arguments device\nruns 3\nrotate 2\n"), "gfx950,check=all");
  CHECK_OK(result);
  CHECK(result->ok());
}

TEST(runs_take_turns_among_copies_of_the_buffers) {
  const Example example("gfx950");
  CHECK(example.good());
  // Three runs, two copies: the last run is the first copy's second.
  const auto result = example.Run(absl::StrCat(example.text(), "runs 3\nrotate 2\n"), "gfx950");
  CHECK_OK(result);
  CHECK(result->ok());
  // One run, two copies: the second copy is never written, which nobody looks at.
  CHECK_OK(example.Run(absl::StrCat(example.text(), "rotate 2\n"), "gfx950"));
}

TEST(wrong_results_are_counted) {
  const Example example("gfx950");
  CHECK(example.good());
  const auto result = example.Run(With(example, "arg 16 f32 2.5", "arg 16 f32 2.25"), "gfx950");
  CHECK_OK(result);
  CHECK(!result->ok());
  CHECK_GT(result->comparisons[0].wrong, 16000u);
}

TEST(lies_are_found_out) {
  const Example example("gfx950");
  CHECK(example.good());
  const std::string node = "gfx950";
  const struct {
    std::string text;
    const char* message;
  } cases[] = {
      {With(example, "kernel scale", "kernel scales"), ":4: kernel scales: code object scale.co has 2 kernels: "},
      {With(example, "object scale.co", "object none.co"), ":3: open"},
      {With(example, "object scale.co", "object want.bin"), ":3: code object want.bin"},
      {With(example, "lds 1024", "lds 200000"), "lds 200000: with 0 static bytes of kernel scale, gfx950 has 163840"},
      {With(example, "arg 20 u32 16384\n", ""), "takes 4 bytes at 20 (by_value); no arg sets byte 20"},
      {absl::StrCat(example.text(), "arg 280 u32 1\n"), "ends at byte 284; kernel scale takes 280 bytes"},
      {absl::StrCat(example.text(), "kernarg 24\n"), "kernarg 24: kernel scale takes 280"},
      {absl::StrCat(example.text(), "isa gfx942\n"), "isa gfx942: the device is gfx950"},
      // 256 bytes of y are behind what it was said to have: found in the rest of its page.
      {absl::StrReplaceAll(example.text(), {{"buffer y 65536", "buffer y 65280"}, {"file=want.bin abs=1e-6", "value=0 abs=9"}}),
       "buffer y: the kernel has written byte 65280; it was said to have 65280"},
      {With(example, "file=want.bin", "file=scale.co"), "bytes; 65536 are wanted"},
      {With(example, "buffer x 65536 random=f32 seed=7", "buffer x 65536 file=none"), "open"},
      {With(example, "buffer y 65536", "buffer y 1000000000000"), "buffer y"},
      {absl::StrReplaceAll(example.text(), {{"buffer y 65536", "buffer y 4096"}, {"arg 8 ptr y", "arg 8 ptr y 4096"}, {"file=want.bin abs=1e-6", "value=0 abs=9"}}),
       "buffer y: the kernel has written byte 4096; it was said to have 4096"},
      // Beyond all that is mapped: the driver tells of the fault.
      {With(example, "arg 20 u32 16384", "arg 20 u32 4000000000"), "fault"},
  };
  for (const auto& each : cases) {
    const std::string error = example.ErrorOf(each.text, node);
    if (error == "ok" || !absl::StrContains(error, each.message)) {
      test_context.Fail(__FILE__, __LINE__, absl::StrCat(error, "\ninstead of\n", each.message));
      return;
    }
  }
  CHECK(absl::StrContains(example.ErrorOf(example.text(), "gfx942"), "is for gfx950, this gpu is gfx942"));
}

TEST(a_grid_that_must_be_resident_is_refused_where_it_is_not) {
  const Example example("gfx950");
  CHECK(example.good());
  const auto text = [](uint32_t workgroups, uint32_t lds) {
    return absl::StrCat("mainarch-launch 1\nobject scale.co\nkernel meet\nworkgroups ", workgroups,
                        "\nworkgroup 64\nresident\nlds ", lds, "\nbuffer count 4 zero\nbuffer out ", workgroups * 256,
                        "\narg 0 ptr count\narg 8 ptr out\nexpect out u32 value=1\n");
  };
  const auto result = example.Run(text(256, 100000), "gfx950");
  CHECK_OK(result);
  CHECK(result->ok());
  CHECK(absl::StrContains(example.ErrorOf(text(257, 100000), "gfx950"),
                          "resident: 257 workgroups; 256 compute units hold 1 each (lds), 256 in all"));
}

}  // namespace
}  // namespace mainarch::cli
