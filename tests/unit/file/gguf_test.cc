// SPDX-License-Identifier: MIT
//
// A GGUF file is read as it is written, and one that is wrong in any field is refused by file,
// field, value and limit, never read past.
#include "file/gguf.h"

#include "absl/strings/match.h"
#include "support/gguf_writer.h"
#include "support/test.h"

namespace mainarch::file {
namespace {

using test::Context;
using test::GgufText;
using test::GgufWriter;
using test::LittleEndian;

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

GgufWriter Small() {
  GgufWriter w;
  w.Text("general.architecture", "llama");
  w.U32("llama.block_count", 2);
  w.F32("llama.eps", 0.5f);
  w.Bool("flag", true);
  w.Texts("words", {"a", "", "caf\xc3\xa9"});
  w.Numbers<int32_t>("numbers", 5, {-1, 7});
  w.Numbers<float>("floats", 6, {0.25f});
  w.Key("big", 10, LittleEndian<uint64_t>(UINT64_MAX));
  w.Tensor("a.weight", {3, 2}, 0, std::string(24, 'a'));
  w.Tensor("b.weight", {32, 1}, 8, std::string(34, 'b'));
  return w;
}

void Refused(Context& test_context, const std::string& file, absl::string_view what,
             Code code = Code::kBadModel) {
  const auto contents = ParseGguf(Bytes(file), "f.gguf");
  CHECK(!contents.ok());
  if (contents.ok()) return;
  CHECK(CodeOf(contents.status()) == code);
  CHECK(absl::StartsWith(contents.status().message(), "f.gguf: "));
  if (!absl::StrContains(contents.status().message(), what)) {
    std::printf("# \"%s\" is not in: %s\n", std::string(what).c_str(),
                std::string(contents.status().message()).c_str());
  }
  CHECK(absl::StrContains(contents.status().message(), what));
}

TEST(keys_and_tensors_are_read_as_written) {
  for (const uint32_t version : {2u, 3u}) {
    GgufWriter w = Small();
    w.version = version;
    const std::string file = w.Done();
    const auto contents = ParseGguf(Bytes(file), "f.gguf");
    CHECK_OK(contents);
    const GgufMetadata& m = contents->metadata;
    CHECK_EQ(m.size(), 8u);
    CHECK(**m.String("general.architecture") == "llama");
    CHECK_EQ(**m.Integer("llama.block_count", 0, 10), 2);
    CHECK_EQ(**m.Number("llama.eps", 0, 1), 0.5);
    CHECK_EQ(**m.Number("llama.block_count", 0, 10), 2.0);
    CHECK(**m.Boolean("flag"));
    CHECK((**m.Strings("words") == std::vector<absl::string_view>{"a", "", "caf\xc3\xa9"}));
    CHECK((**m.Integers("numbers", -1, 7) == std::vector<int64_t>{-1, 7}));
    CHECK((**m.Floats("floats") == std::vector<float>{0.25f}));
    CHECK(!m.Integer("absent", 0, 1)->has_value());
    CHECK_EQ(contents->tensors.size(), 2u);
    const TensorView& a = contents->tensors[0];
    CHECK(a.name == "a.weight" && a.dtype == DType::kF32 && !a.blocks);
    CHECK((a.shape == std::vector<int64_t>{2, 3}));  // rows first
    CHECK_EQ(a.bytes.size(), 24u);
    CHECK_EQ(a.bytes[0], 'a');
    const TensorView& b = contents->tensors[1];
    CHECK(b.blocks == quant::Format::kQ8_0);
    CHECK((b.shape == std::vector<int64_t>{1, 32}));
    CHECK_EQ(b.bytes.size(), 34u);
    CHECK_EQ(b.bytes[33], 'b');
  }
}

TEST(a_value_of_another_kind_or_beyond_its_limits_is_refused_by_key) {
  const std::string file = Small().Done();
  const auto contents = ParseGguf(Bytes(file), "f.gguf");
  CHECK_OK(contents);
  const GgufMetadata& m = contents->metadata;
  const auto refused = [&](const Status& status, absl::string_view what) {
    CHECK(CodeOf(status) == Code::kBadModel);
    CHECK(absl::StrContains(status.message(), what));
  };
  refused(m.Integer("llama.block_count", 3, 10).status(),
          "f.gguf: llama.block_count is 2, the limits are 3 and 10");
  refused(m.Integer("big", 0, 10).status(), "big is 9223372036854775807");
  refused(m.Integer("llama.eps", 0, 10).status(), "llama.eps is of type f32, not an integer");
  refused(m.Integer("numbers", 0, 10).status(), "numbers is an array of i32, not an integer");
  refused(m.Integers("numbers", 0, 10).status(), "numbers[0] is -1, the limits are 0 and 10");
  refused(m.String("flag").status(), "flag is of type bool, not a string");
  refused(m.Strings("floats").status(), "floats is an array of f32, not an array of strings");
  refused(m.Floats("words").status(), "words is an array of string, not an array of f32");
  refused(m.Boolean("llama.block_count").status(), "not a boolean");
  refused(m.Number("words", 0, 1).status(), "not a number");
}

TEST(headers_are_bounded) {
  const std::string good = Small().Done();
  Refused(test_context, "", "not GGUF: a file of 0 bytes");
  Refused(test_context, "GGUF", "a header of 24");
  Refused(test_context, "GGML" + good.substr(4), "does not begin with \"GGUF\"");
  const auto with = [&](size_t at, const std::string& bytes) {
    std::string file = good;
    file.replace(at, bytes.size(), bytes);
    return file;
  };
  Refused(test_context, with(4, LittleEndian<uint32_t>(1)), "version 1, the limits are 2 and 3",
          Code::kUnsupported);
  Refused(test_context, with(4, LittleEndian<uint32_t>(4)), "version 4", Code::kUnsupported);
  Refused(test_context, with(4, LittleEndian<uint32_t>(3u << 24)), "big-endian",
          Code::kUnsupported);
  Refused(test_context, with(8, LittleEndian<uint64_t>(1 << 21)),
          "tensor count 2097152, the limit is");
  Refused(test_context, with(16, LittleEndian<uint64_t>(UINT64_MAX)), "key count");
  Refused(test_context, with(16, LittleEndian<uint64_t>(9)), "f.gguf: ");  // tensors read as a key
  // Cut anywhere, it is refused.
  for (size_t size = 0; size < good.size() - 30; ++size) {
    const auto contents = ParseGguf(Bytes(good).subspan(0, size), "f.gguf");
    CHECK(!contents.ok());
  }
}

TEST(keys_are_bounded) {
  const auto with = [](auto add) {
    GgufWriter w = Small();
    add(w);
    return w.Done();
  };
  Refused(test_context, with([](GgufWriter& w) { w.U32("flag", 1); }), "key \"flag\" stands twice");
  Refused(test_context, with([](GgufWriter& w) { w.U32("", 1); }), "of 0 bytes");
  Refused(test_context, with([](GgufWriter& w) { w.U32("a\nb", 1); }), "control character 10");
  Refused(test_context, with([](GgufWriter& w) { w.U32("\xff", 1); }), "is not utf-8");
  Refused(test_context, with([](GgufWriter& w) { w.Text("k", "\xc3"); }), "key \"k\": string at ");
  Refused(test_context, with([](GgufWriter& w) { w.Texts("k", {"a", "\xc3("}); }),
          "key \"k\"[1]: ");
  Refused(test_context, with([](GgufWriter& w) { w.Key("k", 13, "0000"); }),
          "key \"k\" has type 13, the limit is 12");
  Refused(test_context, with([](GgufWriter& w) { w.Array("k", 9, 1, std::string(32, '\0')); }),
          "an array of arrays");
  Refused(test_context, with([](GgufWriter& w) { w.Array("k", 0, 1 << 25, ""); }),
          "array of 33554432, the limit is 16777216");
  Refused(test_context, with([](GgufWriter& w) { w.Array("k", 12, 1 << 20, ""); }), "truncated?");
  Refused(test_context,
          with([](GgufWriter& w) { w.Key("k", 8, LittleEndian<uint64_t>(1ull << 63)); }),
          "truncated?");
  Refused(test_context, with([](GgufWriter& w) { w.Key("k", 7, "\2"); }),
          "boolean 2, the limit is 1");
  Refused(test_context, with([](GgufWriter& w) { w.U32("general.alignment", 24); }),
          "general.alignment is 24, not a power of two");
  Refused(test_context, with([](GgufWriter& w) { w.U32("general.alignment", 0); }),
          "limits are 1 and");
  Refused(test_context, with([](GgufWriter& w) { w.Text("general.alignment", "32"); }),
          "not an integer");
}

TEST(tensors_are_bounded) {
  const auto with = [](auto add) {
    GgufWriter w = Small();
    add(w);
    return w.Done();
  };
  Refused(test_context, with([](GgufWriter& w) { w.Tensor("a.weight", {1}, 0, "0000"); }),
          "tensor \"a.weight\": stands twice");
  Refused(test_context, with([](GgufWriter& w) { w.Tensor("", {1}, 0, "0000"); }), "of 0 bytes");
  Refused(test_context,
          with([](GgufWriter& w) { w.Tensor(std::string(257, 'x'), {1}, 0, "0000"); }),
          "of 257 bytes");
  Refused(test_context, with([](GgufWriter& w) { w.Tensor("t", {}, 0, ""); }), "0 dimensions");
  Refused(test_context, with([](GgufWriter& w) { w.Tensor("t", {1, 1, 1, 1, 1}, 0, "0000"); }),
          "5 dimensions, the limits are 1 and 4");
  Refused(test_context, with([](GgufWriter& w) { w.Tensor("t", {0}, 0, ""); }), "dimension 0 is 0");
  Refused(test_context, with([](GgufWriter& w) { w.Tensor("t", {1, UINT64_MAX}, 0, ""); }),
          "dimension 1 is 18446744073709551615");
  Refused(test_context, with([](GgufWriter& w) { w.Tensor("t", {1ull << 40, 1ull << 40}, 0, ""); }),
          "takes more bytes than the limit");
  Refused(test_context, with([](GgufWriter& w) { w.Tensor("t", {33}, 8, std::string(68, '\0')); }),
          "rows of 33, which is not a multiple of the 32 in a block of Q8_0");
  Refused(test_context,
          with([](GgufWriter& w) { w.Tensor("t", {128}, 12, std::string(72, '\0')); }),
          "multiple of the 256 in a block of Q4_K");
  Refused(test_context,
          with([](GgufWriter& w) { w.Tensor("t", {256}, 10, std::string(84, '\0')); }),
          "type Q2_K is not supported", Code::kUnsupported);
  Refused(test_context, with([](GgufWriter& w) { w.Tensor("t", {256}, 4, std::string(84, '\0')); }),
          "unknown type 4");
  Refused(test_context, with([](GgufWriter& w) { w.Describe("t", {1}, 0, 16); }),
          "offset 16 is not a multiple of the alignment 32");
  Refused(test_context, with([](GgufWriter& w) { w.Describe("t", {1}, 0, 1 << 20); }),
          "end beyond the");
  Refused(test_context, with([](GgufWriter& w) { w.Describe("t", {1}, 0, UINT64_MAX - 31); }),
          "end beyond the");
  Refused(test_context, with([](GgufWriter& w) { w.Describe("t", {1}, 0, 0); }),
          "inside of tensor");
  // Apart, they may lie in any order.
  GgufWriter w;
  w.data = std::string(96, '\7');
  w.Describe("second", {8}, 0, 64);
  w.Describe("first", {8}, 0, 0);
  const std::string file = w.Done();
  CHECK_OK(ParseGguf(Bytes(file), "f.gguf"));
}

}  // namespace
}  // namespace mainarch::file
