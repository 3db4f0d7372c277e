// SPDX-License-Identifier: MIT
#include "gpu/code_object.h"

#include <elf.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/match.h"
#include "base/fd.h"
#include "gpu/hidden_arguments.h"
#include "gpu/msgpack.h"
#include "support/test.h"

namespace mainarch::gpu {
namespace {

std::vector<uint8_t> Object(const std::string& name) {
  const char* root = getenv("MAINARCH_BUILD_ROOT");
  auto text = ReadWholeFile(
      std::string(root == nullptr ? "build" : root) + "/tests/unit/gpu/kernels_" + name + ".co",
      1 << 20);
  if (!text.ok()) return {};
  return std::vector<uint8_t>(text->begin(), text->end());
}

const CodeKernel* Find(const CodeObject& object, const std::string& name) {
  for (const CodeKernel& kernel : object.kernels()) {
    if (kernel.name == name) return &kernel;
  }
  return nullptr;
}

int CodeNumber(const Status& status) { return static_cast<int>(CodeOf(status)); }

TEST(reads_what_the_compiler_made) {
  for (const char* name : {"gfx942", "gfx950"}) {
    auto object = CodeObject::Parse(name, Object(name));
    CHECK_OK(object);
    CHECK_EQ(object->kernels().size(), 4u);
    CHECK_EQ(object->target(), std::string("amdgcn-amd-amdhsa--") + name);
    const CodeKernel* lds = Find(*object, "with_lds");
    CHECK(lds != nullptr);
    CHECK_EQ(lds->descriptor.group_segment_fixed_size, 4096u);
    CHECK_EQ(lds->kernarg_bytes, lds->descriptor.kernarg_size);
    CHECK_LT(0u, lds->vgpr_count);
    CHECK_EQ(lds->vgpr_spills, 0u);
    const CodeKernel* scratch = Find(*object, "with_scratch");
    CHECK(scratch != nullptr);
    CHECK_LE(64u, scratch->descriptor.private_segment_fixed_size);

    const isa::ChipFacts* chip = isa::ChipByName(name);
    const Status refused = object->CheckRunsOn(*chip, 0);
    CHECK(absl::StrContains(refused.message(), "kernel with_scratch"));
    CHECK(absl::StrContains(refused.message(), "the queue has 0"));
    CHECK_OK(object->CheckRunsOn(*chip, 256));
  }
}

TEST(another_chip_is_refused_by_name) {
  auto object = CodeObject::Parse("kernels", Object("gfx942"));
  CHECK_OK(object);
  const Status status = object->CheckRunsOn(*isa::ChipByName("gfx950"), 1024);
  CHECK_EQ(CodeNumber(status), static_cast<int>(Code::kUnsupported));
  CHECK_EQ(status.message(), "code object kernels is for gfx942, this gpu is gfx950");
  auto xnack = CodeObject::Parse("kernels", Object("xnack"));
  CHECK_OK(xnack);
  CHECK(absl::StrContains(xnack->CheckRunsOn(*isa::ChipByName("gfx950"), 1024).message(), "xnack"));
}

TEST(undefined_symbols_and_old_objects_are_refused) {
  // Code object 4, as AMD ships them still, and 3.
  std::vector<uint8_t> object = Object("abi4");
  CHECK_OK(CodeObject::Parse("version 4", object));
  object[EI_ABIVERSION] = 1;
  CHECK(absl::StrContains(CodeObject::Parse("u", Object("undefined")).status().message(),
                          "not_defined_anywhere is undefined"));
  CHECK(absl::StrContains(CodeObject::Parse("old", object).status().message(), "ABI version 1"));
}

TEST(relocation_follows_the_base) {
  auto object = CodeObject::Parse("kernels", Object("gfx950"));
  CHECK_OK(object);
  const uint64_t base = 0x7f0000200000;
  const std::vector<uint8_t> image = object->Relocate(base);
  const std::vector<uint8_t> plain = object->Relocate(0);
  CHECK_EQ(image.size(), object->image_size());
  // Exactly one word differs: the pointer, by the base; and it points at 42.
  size_t differing = 0, at = 0;
  for (size_t i = 0; i + 8 <= image.size(); i += 8) {
    if (memcmp(image.data() + i, plain.data() + i, 8) == 0) continue;
    ++differing;
    at = i;
  }
  CHECK_EQ(differing, 1u);
  uint64_t pointer = 0, offset = 0;
  memcpy(&pointer, image.data() + at, 8);
  memcpy(&offset, plain.data() + at, 8);
  CHECK_EQ(pointer, base + offset);
  int answer = 0;
  memcpy(&answer, image.data() + offset, 4);
  CHECK_EQ(answer, 42);
}

// Every field of the header that a wrong file may have, and the word that names it.
TEST(wrong_headers_are_named) {
  const std::vector<uint8_t> good = Object("gfx950");
  CHECK(!good.empty());
  const struct {
    size_t offset;
    uint8_t value;
    const char* text;
  } kCases[] = {
      {0, 0x00, "not an ELF file"},
      {EI_CLASS, ELFCLASS32, "ELF class 1"},
      {EI_DATA, ELFDATA2MSB, "data 2"},
      {EI_OSABI, 0, "OS ABI 0"},
      {EI_ABIVERSION, 9, "ABI version 9"},
      {offsetof(Elf64_Ehdr, e_machine), 62, "machine 62"},
      {offsetof(Elf64_Ehdr, e_type), ET_EXEC, "type 2"},
      {offsetof(Elf64_Ehdr, e_phnum), 0, "0 segments"},
      {offsetof(Elf64_Ehdr, e_shnum), 0, "0 sections"},
      {offsetof(Elf64_Ehdr, e_phentsize), 1, "of 1 bytes"},
  };
  for (const auto& c : kCases) {
    std::vector<uint8_t> bad = good;
    bad[c.offset] = c.value;
    const Status status = CodeObject::Parse("bad", bad).status();
    CHECK_EQ(CodeNumber(status), static_cast<int>(Code::kBadModel));
    CHECK(absl::StrContains(status.message(), c.text));
    CHECK(absl::StartsWith(status.message(), "code object bad: "));
  }
}

TEST(wrong_descriptors_are_named) {
  const std::vector<uint8_t> good = Object("gfx950");
  auto object = CodeObject::Parse("good", good);
  CHECK_OK(object);
  // .rodata is where its address says, in this object.
  const size_t kd = Find(*object, "store_one")->descriptor_vaddr;
  const struct {
    size_t offset;
    uint8_t value;
    const char* text;
  } kCases[] = {{12, 1, "reserved bits"},        {24, 1, "reserved bits"},
                {60, 1, "reserved bits"},        {57, 0x04, "wave32"},
                {56, 0x01, "scratch set-up"},    {16, 0x01, "256-byte aligned"},
                {22, 0x7f, "executable segment"}};
  for (const auto& c : kCases) {
    std::vector<uint8_t> bad = good;
    bad[kd + c.offset] |= c.value;
    const Status status = CodeObject::Parse("bad", bad).status();
    CHECK(absl::StrContains(status.message(), "store_one"));
    CHECK(absl::StrContains(status.message(), c.text));
  }
}

TEST(every_truncation_and_many_flips_are_survived) {
  const std::vector<uint8_t> good = Object("gfx950");
  for (size_t size = 0; size < good.size(); size += 7) {
    CHECK(!CodeObject::Parse("cut", absl::MakeConstSpan(good).first(size)).ok());
  }
  for (size_t i = 0; i < good.size(); i += 3) {
    std::vector<uint8_t> bad = good;
    bad[i] ^= 0xff;
    auto object = CodeObject::Parse("flipped", bad);
    if (object.ok()) object->Relocate(0x200000);
  }
}

TEST(msgpack_is_bounded) {
  const uint8_t kHugeMap[] = {0xdf, 0xff, 0xff, 0xff, 0xff, 0x00};
  CHECK(absl::StrContains(MsgpackReader(kHugeMap).Map().status().message(), "larger than"));
  const std::vector<uint8_t> deep(100, 0x91);
  CHECK(absl::StrContains(MsgpackReader(deep).Skip().message(), "nested too deeply"));
  const uint8_t kCutString[] = {0xa5, 'a', 'b'};
  CHECK(!MsgpackReader(kCutString).String().ok());
  const uint8_t kAll[] = {0xc0, 0xc2, 0xc4, 1, 9,    0xca, 0, 0,    0,    0,   0xcd, 1,
                          2,    0xd1, 0,    0, 0xe0, 0x92, 1, 0x81, 0xa1, 'k', 0xc3};
  MsgpackReader reader(kAll);
  for (int i = 0; i < 8; ++i) CHECK_OK(reader.Skip());
  CHECK(reader.AtEnd());
  const uint8_t kNumber[] = {0xcd, 0x01, 0x02};
  const auto number = MsgpackReader(kNumber).Unsigned();
  CHECK_OK(number);
  CHECK_EQ(*number, 0x102u);
  CHECK(!MsgpackReader(kNumber).String().ok());
  CHECK(!MsgpackReader({}).Skip().ok());
}

TEST(containers_are_refused_by_name) {
  const struct {
    absl::string_view bytes;
    const char* said;
  } kCases[] = {
      {"__CLANG_OFFLOAD_BUNDLE__0123456789", "clang-offload-bundler"},
      {"CCOB0123456789", "compressed"},
      {absl::string_view("\x10\xff\x10\xad\0\0\0\0", 8), "llvm-offload-binary"},
      {"BC\xc0\xde 0123", "bitcode"},
      {"!<arch>\n0123", "archive"},
  };
  for (const auto& test : kCases) {
    std::vector<uint8_t> bytes(test.bytes.begin(), test.bytes.end());
    bytes.resize(4096);
    const Status status = CodeObject::Parse("wrapped", bytes).status();
    CHECK_EQ(CodeNumber(status), static_cast<int>(Code::kBadModel));
    CHECK(absl::StrContains(status.message(), "wrapped"));
    CHECK(absl::StrContains(status.message(), test.said));
  }
}

// Some of AMD's kernels list an argument behind the segment that they declare.
TEST(an_argument_behind_the_segment_makes_room_for_itself) {
  std::vector<uint8_t> bytes = Object("gfx950");
  const auto whole = CodeObject::Parse("whole", bytes);
  CHECK_OK(whole);
  const std::string key = ".kernarg_segment_size";
  size_t changed = 0;
  for (auto at = bytes.begin();;) {
    at = std::search(at, bytes.end(), key.begin(), key.end());
    if (at == bytes.end()) break;
    at += static_cast<ptrdiff_t>(key.size());
    // A number of MessagePack: itself below 128, behind 0xcc or 0xcd of one or two bytes.
    uint8_t& high = *at == 0xcc || *at == 0xcd ? at[1] : *at;
    if (high < 8) continue;
    high = *at == 0xcd ? 0 : static_cast<uint8_t>(high - 8);
    ++changed;
  }
  CHECK_GT(changed, 0u);
  const auto less = CodeObject::Parse("less", bytes);
  CHECK_OK(less);
  for (const CodeKernel& kernel : less->kernels()) {
    uint32_t end = 0;
    for (const CodeArgument& argument : kernel.arguments) {
      end = std::max(end, argument.offset + argument.size);
    }
    CHECK_GE(kernel.kernarg_bytes, end);
    CHECK_EQ(kernel.kernarg_bytes, Find(*whole, kernel.name)->kernarg_bytes);
  }
}

TEST(hidden_arguments_are_filled_by_their_kind) {
  CodeKernel kernel;
  kernel.name = "k";
  kernel.kernarg_bytes = 96;
  const struct {
    const char* kind;
    uint32_t offset, size;
    uint64_t want;
  } kArguments[] = {
      {"global_buffer", 0, 8, 0xeeeeeeeeeeeeeeee},
      {"hidden_block_count_x", 8, 4, 4},
      {"hidden_block_count_y", 12, 4, 1},
      {"hidden_group_size_x", 16, 2, 64},
      {"hidden_remainder_x", 18, 2, 9},
      {"hidden_remainder_z", 20, 2, 0},
      {"hidden_grid_dims", 22, 2, 2},
      {"hidden_dynamic_lds_size", 24, 4, 4096},
      {"hidden_queue_ptr", 32, 8, 0x7000},
      {"hidden_hostcall_buffer", 40, 8, 0},
      {"hidden_something_of_the_future", 48, 8, 0},
  };
  for (const auto& a : kArguments) kernel.arguments.push_back({a.kind, a.offset, a.size});
  HiddenValues values;
  values.grid = {265, 2, 1};
  values.workgroup = {64, 2, 1};
  values.dynamic_lds_bytes = 4096;
  values.queue = 0x7000;
  std::vector<uint8_t> kernarg(96, 0xee);
  CHECK_OK(FillHiddenArguments(kernel, values, absl::MakeSpan(kernarg)));
  for (const auto& a : kArguments) {
    uint64_t got = 0;
    memcpy(&got, kernarg.data() + a.offset, a.size);
    CHECK_EQ(got, a.want);
  }
  CHECK_EQ(int{kernarg[56]}, 0xee);
  CHECK(!FillHiddenArguments(kernel, values, absl::MakeSpan(kernarg).first(40)).ok());
  values.workgroup[1] = 0;
  CHECK(!FillHiddenArguments(kernel, values, absl::MakeSpan(kernarg)).ok());
}

}  // namespace
}  // namespace mainarch::gpu
