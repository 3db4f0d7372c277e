// SPDX-License-Identifier: MIT
#include "file/safetensors.h"

#include <vector>

#include "support/checkpoint_files.h"
#include "support/peak_memory.h"
#include "support/test.h"

namespace mainarch::file {
namespace {

using test::RawSafetensors;
using test::Safetensors;

StatusOr<std::vector<TensorView>> Parse(const std::string& bytes) {
  return ParseSafetensors({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "f.st");
}

// A file whose header is `header` and that has `size` bytes of data.
StatusOr<std::vector<TensorView>> ParseHeader(const std::string& header, size_t size) {
  const std::string bytes = RawSafetensors(header, std::string(size, 'x'));
  auto tensors = Parse(bytes);
  if (tensors.ok()) {  // the views die with the bytes here
    for (TensorView& tensor : *tensors) tensor.bytes = {};
  }
  return tensors;
}

TEST(good_files_are_read) {
  const std::string bytes = Safetensors({{"b", "F32", {2}, "01234567"},
                                         {"a", "BF16", {3, 1}, "abcdef"},
                                         {"none", "U8", {0, 5}, ""},
                                         {"scalar", "F8_E4M3", {}, "z"}});
  const auto tensors = Parse(bytes);
  CHECK_OK(tensors);
  CHECK_EQ(tensors->size(), 4u);
  const TensorView& first = (*tensors)[0];
  CHECK_EQ(first.name, "b");
  CHECK(first.dtype == DType::kF32);
  CHECK(first.shape == std::vector<int64_t>{2});
  CHECK_EQ(first.bytes.size(), 8u);
  CHECK_EQ(first.bytes[7], '7');
  CHECK_EQ(first.file, "f.st");
  CHECK_EQ((*tensors)[1].name, "a");
  CHECK_EQ((*tensors)[1].bytes[0], 'a');
  CHECK_EQ((*tensors)[3].bytes[0], 'z');
}

TEST(all_dtypes_are_read_by_name) {
  for (const DTypeInfo& info : kDTypes) {
    const std::string name(info.name);
    const std::string bytes = Safetensors({{"t", name, {3}, std::string(3u * info.bytes, 'x')}});
    const auto tensors = Parse(bytes);
    CHECK_OK(tensors);
    CHECK((*tensors)[0].dtype == info.dtype);
  }
}

TEST(an_empty_object_and_padding_are_fine) {
  CHECK_OK(ParseHeader("{}", 0));
  CHECK_OK(ParseHeader("{}      ", 0));
  CHECK_OK(ParseHeader(R"({"__metadata__":{}})", 0));
}

TEST(every_truncation_is_refused) {
  const std::string bytes = Safetensors({{"a", "F32", {2}, "01234567"}, {"b", "U8", {3}, "abc"}});
  for (size_t size = 0; size < bytes.size(); ++size) {
    CHECK_REFUSED(Parse(bytes.substr(0, size)), Code::kBadModel, "f.st");
  }
  CHECK_REFUSED(Parse(""), Code::kBadModel, "f.st", "0 bytes", "8");
  CHECK_REFUSED(Parse(bytes.substr(0, 20)), Code::kBadModel, "in a file of 20", "truncated");
  CHECK_REFUSED(Parse(bytes.substr(0, bytes.size() - 1)), Code::kBadModel, "tensor \"b\"",
                "[8, 11]", "10 bytes", "truncated");
  CHECK_OK(Parse(bytes));
}

TEST(header_lengths_are_checked) {
  std::string bytes = Safetensors({{"a", "U8", {1}, "a"}});
  bytes[7] = '\x7f';
  CHECK_REFUSED(Parse(bytes), Code::kBadModel, "f.st", "limit of 100000000");
  for (int i = 0; i < 8; ++i) bytes[i] = '\xff';
  CHECK_REFUSED(Parse(bytes), Code::kBadModel, "18446744073709551615", "limit of 100000000");
  CHECK_REFUSED(Parse(std::string(8, '\0')), Code::kBadModel, "0 bytes", "less than the 2");
  CHECK_REFUSED(Parse(RawSafetensors("{", "")), Code::kBadModel, "1 bytes");
}

TEST(a_header_of_junk_is_refused_for_what_it_would_take) {
  // Each is within the limit of bytes, and would become a tree of eight times its size, or more.
  std::string many = "{\"a\":[1";
  while (many.size() < 90'000'000) many += ",1,1,1,1,1,1,1,1";
  std::string deep = "{\"a\":[[]";
  while (deep.size() < 90'000'000) deep += ",[],[],[],[],[]";
  for (const std::string& header : {many + "]}", deep + "]}"}) {
    const std::string bytes = test::RawSafetensors(header, "");
    Status status;
    const auto peak = test::PeakBytes([&] { status = Parse(bytes).status(); });
    CHECK_REFUSED(status, Code::kBadModel, "f.st", "values", "limit of 4194304");
    if (peak.has_value()) CHECK_LT(*peak, uint64_t{16} << 20);
  }
}

TEST(headers_that_are_no_json_object_are_refused) {
  CHECK_REFUSED(ParseHeader("  {}", 0), Code::kBadModel, "f.st", "byte 32", "123");
  CHECK_REFUSED(ParseHeader("[1]", 0), Code::kBadModel, "f.st", "byte 91");
  CHECK_REFUSED(ParseHeader("{]", 0), Code::kBadModel, "f.st", "malformed");
  CHECK_REFUSED(ParseHeader(R"({"t":1})", 0), Code::kBadModel, "f.st", "\"t\"", "an integer");
  const std::string deep = "{\"t\":" + std::string(50, '[') + "0" + std::string(50, ']') + "}";
  CHECK_REFUSED(ParseHeader(deep, 0), Code::kBadModel, "f.st", "limit of 8");
}

TEST(duplicate_names_are_refused) {
  const char* entry = R"("t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  const std::string header = "{" + std::string(entry) + "," + entry + "}";
  CHECK_REFUSED(ParseHeader(header, 1), Code::kBadModel, "f.st", "\"t\"", "twice");
  CHECK_REFUSED(
      ParseHeader(R"({"t":{"dtype":"U8","shape":[1],"dtype":"I8","data_offsets":[0,1]}})", 1),
      Code::kBadModel, "f.st", "\"dtype\"", "twice in \"t\"");
}

TEST(metadata_must_be_strings) {
  CHECK_REFUSED(ParseHeader(R"({"__metadata__":{"a":1}})", 0), Code::kBadModel, "f.st",
                "__metadata__", "\"a\"", "1, not a string");
  CHECK_REFUSED(ParseHeader(R"({"__metadata__":[]})", 0), Code::kBadModel, "f.st", "__metadata__",
                "an array");
}

TEST(tensor_fields_are_checked) {
  const struct {
    const char* fields;
    std::initializer_list<const char*> parts;
  } cases[] = {
      {R"("shape":[1],"data_offsets":[0,1])", {"no key \"dtype\""}},
      {R"("dtype":"U8","data_offsets":[0,1])", {"no key \"shape\""}},
      {R"("dtype":"U8","shape":[1])", {"no key \"data_offsets\""}},
      {R"("dtype":"U8","shape":[1],"data_offsets":[0,1],"x":0)", {"unknown key \"x\""}},
      {R"("dtype":"F4","shape":[1],"data_offsets":[0,1])", {"\"F4\"", "BF16"}},
      {R"("dtype":"u8","shape":[1],"data_offsets":[0,1])", {"\"u8\""}},
      {R"("dtype":7,"shape":[1],"data_offsets":[0,1])", {"dtype is 7"}},
      {R"("dtype":"U8","shape":1,"data_offsets":[0,1])", {"shape is 1"}},
      {R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])", {"shape[0] is -1"}},
      {R"("dtype":"U8","shape":[1.0],"data_offsets":[0,1])", {"shape[0] is 1.0"}},
      {R"("dtype":"U8","shape":[1,"1"],"data_offsets":[0,1])", {"shape[1] is \"1\""}},
      {R"("dtype":"U8","shape":[null],"data_offsets":[0,1])", {"shape[0] is null"}},
      {R"("dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1])",
       {"shape[0]", "18446744073709551615", "9223372036854775807"}},
      {R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1])", {"limit of 8"}},
      {R"("dtype":"U8","shape":[1],"data_offsets":[0])", {"data_offsets"}},
      {R"("dtype":"U8","shape":[1],"data_offsets":[0,1,2])", {"data_offsets"}},
      {R"("dtype":"U8","shape":[1],"data_offsets":[0,1.0])", {"data_offsets"}},
      {R"("dtype":"U8","shape":[1],"data_offsets":[-1,0])", {"data_offsets"}},
      {R"("dtype":"U8","shape":[1],"data_offsets":"0,1")", {"data_offsets"}},
      {R"("dtype":"U8","shape":[1],"data_offsets":[1,0])", {"[1, 0]", "before"}},
      {R"("dtype":"U8","shape":[2],"data_offsets":[0,2])", {"[0, 2]", "beyond the 1 bytes"}},
      {R"("dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551615])", {"beyond"}},
      {R"("dtype":"F32","shape":[1],"data_offsets":[0,1])", {"[1] of F32", "4 bytes", "span 1"}},
      {R"("dtype":"U8","shape":[],"data_offsets":[0,0])", {"1 bytes", "span 0"}},
      {R"("dtype":"U8","shape":[0],"data_offsets":[0,1])", {"0 bytes", "span 1"}},
      // 2^32 * 2^32 wraps to 0; 2^61 * 8 too.
      {R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])", {"limit of"}},
      {R"("dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0])", {"limit of"}},
  };
  for (const auto& one : cases) {
    const auto result = ParseHeader("{\"t\":{" + std::string(one.fields) + "}}", 1);
    CHECK_REFUSED(result, Code::kBadModel, "f.st", "tensor \"t\"");
    for (const char* part : one.parts) CHECK_REFUSED(result, Code::kBadModel, part);
  }
}

TEST(names_are_checked) {
  const std::string fields = R"(:{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  CHECK_REFUSED(ParseHeader("{\"\"" + fields, 1), Code::kBadModel, "f.st", "0 bytes", "1024");
  CHECK_OK(ParseHeader("{\"" + std::string(1024, 'n') + "\"" + fields, 1));
  CHECK_REFUSED(ParseHeader("{\"" + std::string(1025, 'n') + "\"" + fields, 1), Code::kBadModel,
                "1025 bytes", "1024");
  CHECK_REFUSED(ParseHeader("{\"a\\u0000b\"" + fields, 1), Code::kBadModel, "control character 0");
  CHECK_REFUSED(ParseHeader("{\"a\\nb\"" + fields, 1), Code::kBadModel, "control character 10");
}

std::string Entry(const char* name, int begin, int end) {
  return "\"" + std::string(name) + "\":{\"dtype\":\"U8\",\"shape\":[" +
         std::to_string(end - begin) + "],\"data_offsets\":[" + std::to_string(begin) + "," +
         std::to_string(end) + "]}";
}

TEST(overlaps_holes_and_leftovers_are_refused) {
  CHECK_OK(ParseHeader("{" + Entry("b", 4, 8) + "," + Entry("a", 0, 4) + "}", 8));
  CHECK_REFUSED(ParseHeader("{" + Entry("a", 0, 4) + "," + Entry("b", 3, 8) + "}", 8),
                Code::kBadModel, "f.st", "\"b\"", "begins at 3", "\"a\"", "ends at 4");
  CHECK_REFUSED(ParseHeader("{" + Entry("a", 0, 8) + "," + Entry("b", 2, 4) + "}", 8),
                Code::kBadModel, "\"b\"", "inside of tensor \"a\"");
  CHECK_REFUSED(ParseHeader("{" + Entry("a", 0, 4) + "," + Entry("b", 0, 4) + "}", 4),
                Code::kBadModel, "inside");
  CHECK_REFUSED(ParseHeader("{" + Entry("a", 0, 4) + "," + Entry("b", 5, 8) + "}", 8),
                Code::kBadModel, "f.st", "\"b\"", "begins at 5", "hole from 4");
  CHECK_REFUSED(ParseHeader("{" + Entry("a", 1, 4) + "}", 4), Code::kBadModel, "hole from 0");
  CHECK_REFUSED(ParseHeader("{" + Entry("a", 0, 4) + "}", 5), Code::kBadModel, "f.st",
                "1 bytes after the last tensor", "4 of 5");
  CHECK_REFUSED(ParseHeader("{}", 5), Code::kBadModel, "5 bytes after");
  // Empty tensors take no place, wherever they say they are, as long as it is between tensors.
  CHECK_OK(ParseHeader("{" + Entry("a", 0, 4) + "," + Entry("e", 4, 4) + "}", 4));
  CHECK_OK(ParseHeader("{" + Entry("e", 0, 0) + "," + Entry("a", 0, 4) + "}", 4));
  CHECK_REFUSED(ParseHeader("{" + Entry("a", 0, 4) + "," + Entry("e", 2, 2) + "}", 4),
                Code::kBadModel, "\"e\"");
}

TEST(flipped_bits_never_crash) {
  const std::string good = Safetensors({{"a", "F32", {2}, "01234567"}, {"b", "U8", {3}, "abc"}});
  for (size_t at = 0; at < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      const auto tensors = Parse(bad);
      if (!tensors.ok()) continue;
      for (const TensorView& tensor : *tensors) {
        CHECK_LE(tensor.bytes.data() + tensor.bytes.size(),
                 reinterpret_cast<const uint8_t*>(bad.data()) + bad.size());
      }
    }
  }
}

TEST(files_are_mapped) {
  const std::string path = test::ScratchDirectory() + "/f.safetensors";
  CHECK(test::WriteFile(path, Safetensors({{"a", "U8", {3}, "abc"}})));
  auto file = SafetensorsFile::Open(path);
  CHECK_OK(file);
  const SafetensorsFile moved = *std::move(file);
  CHECK_EQ(moved.tensors().size(), 1u);
  CHECK_EQ(moved.tensors()[0].bytes[2], 'c');
  CHECK_EQ(moved.tensors()[0].file, path);
  CHECK_REFUSED(SafetensorsFile::Open(path + "x"), Code::kNotFound, path.c_str());
  CHECK(test::WriteFile(path, ""));
  CHECK_REFUSED(SafetensorsFile::Open(path), Code::kBadModel, path.c_str(), "0 bytes");
}

}  // namespace
}  // namespace mainarch::file
