// SPDX-License-Identifier: MIT
#include "gpu/code_object.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gpu/msgpack.h"

namespace mainarch::gpu {
namespace {

constexpr uint64_t kMaxFile = 64 << 20;
constexpr uint64_t kMaxImage = 64 << 20;
constexpr size_t kMaxSegments = 64;
constexpr size_t kMaxSections = 4096;
constexpr size_t kMaxKernels = 65536;
constexpr uint64_t kMostKernargBytes = 1 << 16;
// Instruction fetch runs ahead of the last instruction: so much after it must be mapped.
constexpr uint64_t kPrefetch = 256;

uint32_t U32(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, UINT32_MAX));
}

}  // namespace

// One parse; its methods are its steps, in order.
class CodeObjectParser {
 public:
  CodeObjectParser(absl::string_view name, absl::Span<const uint8_t> bytes) : bytes_(bytes) {
    object_.name_ = std::string(name);
  }

  StatusOr<CodeObject> Run() {
    RETURN_IF_ERROR(ReadHeader());
    RETURN_IF_ERROR(ReadSegments());
    RETURN_IF_ERROR(ReadSections());
    RETURN_IF_ERROR(ReadSymbols());
    RETURN_IF_ERROR(ReadRelocations());
    RETURN_IF_ERROR(ReadNotes());
    RETURN_IF_ERROR(CheckKernels());
    return std::move(object_);
  }

 private:
  struct Executable {
    uint64_t begin = 0;
    uint64_t end = 0;
  };

  template <class... Parts>
  Status Bad(const Parts&... parts) const {
    return Error(Code::kBadModel, "code object ", object_.name_, ": ", parts...);
  }

  // A T at a file offset that was not checked yet.
  template <class T>
  StatusOr<T> Read(uint64_t offset, const char* what) const {
    T value;
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof value) {
      return Bad(what, " at byte ", offset, " is beyond its ", bytes_.size(), " bytes");
    }
    memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }

  StatusOr<absl::Span<const uint8_t>> Range(uint64_t offset, uint64_t size,
                                            const char* what) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset) {
      return Bad(what, " at byte ", offset, " with ", size, " bytes is beyond its ", bytes_.size());
    }
    return bytes_.subspan(offset, size);
  }

  Status RefuseContainers() const;
  Status ReadHeader();
  Status ReadSegments();
  Status ReadSections();
  Status ReadSymbols();
  Status ReadRelocations();
  Status ReadNotes();
  Status ReadNote(absl::Span<const uint8_t> notes);
  Status ReadMetadata(absl::Span<const uint8_t> bytes);
  Status ReadKernelMetadata(MsgpackReader* reader);
  Status ReadArguments(MsgpackReader* reader, CodeKernel* kernel);
  Status CheckKernels() const;
  Status CheckDescriptor(const CodeKernel& kernel) const;
  StatusOr<absl::string_view> SymbolName(const Elf64_Sym& symbol) const;
  Status AddKernel(absl::string_view name, const Elf64_Sym& symbol);

  absl::Span<const uint8_t> bytes_;
  CodeObject object_;
  Elf64_Ehdr header_ = {};
  std::vector<Elf64_Phdr> segments_;
  std::vector<Elf64_Shdr> sections_;
  std::vector<Elf64_Sym> symbols_;
  absl::Span<const uint8_t> strings_;
  std::vector<Executable> executables_;
  bool has_metadata_ = false;
};

// What compilers wrap code objects in. Each is refused by its name, with what undoes it.
Status CodeObjectParser::RefuseContainers() const {
  const absl::string_view text(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
  if (absl::StartsWith(text, "__CLANG_OFFLOAD_BUNDLE__")) {
    return Bad(
        "a clang offload bundle; take the object of one target out of it with "
        "clang-offload-bundler --unbundle --type=o, or compile with --no-gpu-bundle-output");
  }
  if (absl::StartsWith(text, "CCOB")) {
    return Bad(
        "a compressed clang offload bundle; compile with --no-gpu-bundle-output, or unbundle "
        "it with clang-offload-bundler --unbundle --type=o");
  }
  if (absl::StartsWith(text, absl::string_view("\x10\xff\x10\xad", 4))) {
    return Bad("an LLVM offload binary; take the object out of it with llvm-offload-binary");
  }
  if (absl::StartsWith(text, "BC\xc0\xde")) {
    return Bad("LLVM bitcode, not machine code; link it with clang --target=amdgcn-amd-amdhsa");
  }
  if (absl::StartsWith(text, "!<arch>\n")) {
    return Bad("an archive; extract and link its members first");
  }
  return {};
}

Status CodeObjectParser::ReadHeader() {
  if (bytes_.size() > kMaxFile) return Bad(bytes_.size(), " bytes, at most ", kMaxFile);
  ASSIGN_OR_RETURN(header_, Read<Elf64_Ehdr>(0, "the ELF header"));
  RETURN_IF_ERROR(RefuseContainers());
  const unsigned char* id = header_.e_ident;
  if (memcmp(id, ELFMAG, SELFMAG) != 0) return Bad("not an ELF file");
  if (id[EI_CLASS] != ELFCLASS64 || id[EI_DATA] != ELFDATA2LSB) {
    return Bad("ELF class ", int{id[EI_CLASS]}, ", data ", int{id[EI_DATA]},
               ", must be 64-bit little-endian");
  }
  if (header_.e_machine != isa::kElfMachineAmdgpu) {
    return Bad("machine ", header_.e_machine, ", must be ", isa::kElfMachineAmdgpu, " (amdgpu)");
  }
  if (id[EI_OSABI] != isa::kElfOsAbiAmdgpuHsa) {
    return Bad("OS ABI ", int{id[EI_OSABI]}, ", must be ", int{isa::kElfOsAbiAmdgpuHsa}, " (hsa)");
  }
  if (id[EI_ABIVERSION] < isa::kElfAbiVersionV4 || id[EI_ABIVERSION] > isa::kElfAbiVersionV6) {
    return Bad("ABI version ", int{id[EI_ABIVERSION]}, ", must be 2, 3 or 4 (code object 4, 5, 6)");
  }
  if (header_.e_type != ET_DYN) {
    return Bad("type ", header_.e_type, ", must be ", ET_DYN, " (linked with -shared)");
  }
  object_.elf_flags_ = header_.e_flags;
  return {};
}

Status CodeObjectParser::ReadSegments() {
  if (header_.e_phnum == 0 || header_.e_phnum > kMaxSegments ||
      header_.e_phentsize != sizeof(Elf64_Phdr)) {
    return Bad(header_.e_phnum, " segments of ", header_.e_phentsize, " bytes, at most ",
               kMaxSegments, " of ", sizeof(Elf64_Phdr));
  }
  uint64_t end = 0;
  for (uint64_t i = 0; i < header_.e_phnum; ++i) {
    ASSIGN_OR_RETURN(const auto segment, Read<Elf64_Phdr>(header_.e_phoff + i * sizeof(Elf64_Phdr),
                                                          "a segment header"));
    segments_.push_back(segment);
    if (segment.p_type != PT_LOAD) continue;
    if (segment.p_filesz > segment.p_memsz || segment.p_memsz > kMaxImage ||
        segment.p_vaddr > kMaxImage) {
      return Bad("segment ", i, ": address ", segment.p_vaddr, ", ", segment.p_filesz, " of ",
                 segment.p_memsz, " bytes in the file, at most ", kMaxImage);
    }
    RETURN_IF_ERROR(Range(segment.p_offset, segment.p_filesz, "a segment").status());
    end = std::max(end, segment.p_vaddr + segment.p_memsz);
    if (segment.p_flags & PF_X) {
      executables_.push_back({segment.p_vaddr, segment.p_vaddr + segment.p_memsz});
    }
  }
  if (end == 0) return Bad("nothing to load");
  object_.image_.resize(end + kPrefetch);
  for (const Elf64_Phdr& segment : segments_) {
    if (segment.p_type != PT_LOAD) continue;
    std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(segment.p_offset), segment.p_filesz,
                object_.image_.begin() + static_cast<ptrdiff_t>(segment.p_vaddr));
  }
  return {};
}

Status CodeObjectParser::ReadSections() {
  if (header_.e_shnum == 0 || header_.e_shnum > kMaxSections ||
      header_.e_shentsize != sizeof(Elf64_Shdr)) {
    return Bad(header_.e_shnum, " sections of ", header_.e_shentsize, " bytes, 1 to ", kMaxSections,
               " of ", sizeof(Elf64_Shdr), " expected");
  }
  for (uint64_t i = 0; i < header_.e_shnum; ++i) {
    ASSIGN_OR_RETURN(const auto section, Read<Elf64_Shdr>(header_.e_shoff + i * sizeof(Elf64_Shdr),
                                                          "a section header"));
    sections_.push_back(section);
  }
  return {};
}

StatusOr<absl::string_view> CodeObjectParser::SymbolName(const Elf64_Sym& symbol) const {
  const auto* begin = reinterpret_cast<const char*>(strings_.data());
  if (symbol.st_name >= strings_.size()) {
    return Bad("a symbol's name at byte ", symbol.st_name, " of ", strings_.size(), " of names");
  }
  const size_t limit = strings_.size() - symbol.st_name;
  const size_t length = strnlen(begin + symbol.st_name, limit);
  if (length == limit) return Bad("a symbol's name does not end");
  return absl::string_view(begin + symbol.st_name, length);
}

Status CodeObjectParser::ReadSymbols() {
  const auto section = std::find_if(sections_.begin(), sections_.end(),
                                    [](const Elf64_Shdr& s) { return s.sh_type == SHT_DYNSYM; });
  if (section == sections_.end()) return Bad("no dynamic symbols");
  if (section->sh_link >= sections_.size()) return Bad("symbols without names");
  ASSIGN_OR_RETURN(const auto table, Range(section->sh_offset, section->sh_size, "the symbols"));
  const Elf64_Shdr& names = sections_[section->sh_link];
  ASSIGN_OR_RETURN(strings_, Range(names.sh_offset, names.sh_size, "the names of symbols"));
  symbols_.resize(table.size() / sizeof(Elf64_Sym));
  if (!symbols_.empty()) memcpy(symbols_.data(), table.data(), symbols_.size() * sizeof(Elf64_Sym));
  for (size_t i = 1; i < symbols_.size(); ++i) {
    const Elf64_Sym& symbol = symbols_[i];
    ASSIGN_OR_RETURN(const absl::string_view name, SymbolName(symbol));
    if (symbol.st_shndx == SHN_UNDEF && ELF64_ST_BIND(symbol.st_info) != STB_WEAK) {
      return Bad("symbol ", name, " is undefined");
    }
    if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && absl::EndsWith(name, ".kd")) {
      RETURN_IF_ERROR(AddKernel(name.substr(0, name.size() - 3), symbol));
    }
  }
  return {};
}

Status CodeObjectParser::AddKernel(absl::string_view name, const Elf64_Sym& symbol) {
  if (symbol.st_size != sizeof(isa::KernelDescriptor) ||
      symbol.st_value % isa::kKernelDescriptorAlignment != 0 ||
      symbol.st_value > object_.image_.size() ||
      object_.image_.size() - symbol.st_value < sizeof(isa::KernelDescriptor)) {
    return Bad("kernel ", name, ": descriptor of ", symbol.st_size, " bytes at ", symbol.st_value,
               ", must be 64 bytes, 64-byte aligned, inside the image");
  }
  if (object_.kernels_.size() >= kMaxKernels) return Bad("more than ", kMaxKernels, " kernels");
  CodeKernel kernel;
  kernel.name = std::string(name);
  kernel.descriptor_vaddr = symbol.st_value;
  memcpy(&kernel.descriptor, object_.image_.data() + symbol.st_value, sizeof kernel.descriptor);
  kernel.kernarg_bytes = kernel.descriptor.kernarg_size;
  object_.kernels_.push_back(std::move(kernel));
  return {};
}

Status CodeObjectParser::ReadRelocations() {
  for (const Elf64_Shdr& section : sections_) {
    if (section.sh_type == SHT_REL && (section.sh_flags & SHF_ALLOC)) {
      return Bad("relocations without addends");
    }
    if (section.sh_type != SHT_RELA || !(section.sh_flags & SHF_ALLOC)) continue;
    ASSIGN_OR_RETURN(const auto table, Range(section.sh_offset, section.sh_size, "relocations"));
    for (size_t at = 0; at + sizeof(Elf64_Rela) <= table.size(); at += sizeof(Elf64_Rela)) {
      Elf64_Rela rela;
      memcpy(&rela, table.data() + at, sizeof rela);
      CodeObject::Relocation relocation;
      relocation.offset = rela.r_offset;
      relocation.type = static_cast<uint32_t>(ELF64_R_TYPE(rela.r_info));
      if (relocation.type == isa::kRelocNone) continue;
      if (relocation.type != isa::kRelocAbs64 && relocation.type != isa::kRelocRel64 &&
          relocation.type != isa::kRelocRelative64) {
        return Bad("relocation type ", relocation.type, " at ", rela.r_offset,
                   ", only 3 (abs64), 5 (rel64) and 13 (relative64) can be left to load time");
      }
      if (rela.r_offset > object_.image_.size() - sizeof(uint64_t)) {
        return Bad("relocation at ", rela.r_offset, " is outside of the image");
      }
      relocation.value = static_cast<uint64_t>(rela.r_addend);
      relocation.add_base = relocation.type == isa::kRelocRelative64;
      if (relocation.type != isa::kRelocRelative64) {
        const uint64_t index = ELF64_R_SYM(rela.r_info);
        if (index >= symbols_.size()) return Bad("relocation against symbol ", index);
        const Elf64_Sym& symbol = symbols_[index];
        relocation.value += symbol.st_value;
        relocation.add_base = symbol.st_shndx != SHN_ABS && symbol.st_shndx != SHN_UNDEF;
      }
      object_.relocations_.push_back(relocation);
    }
  }
  return {};
}

Status CodeObjectParser::ReadNotes() {
  for (const Elf64_Phdr& segment : segments_) {
    if (segment.p_type != PT_NOTE) continue;
    ASSIGN_OR_RETURN(const auto notes, Range(segment.p_offset, segment.p_filesz, "the notes"));
    RETURN_IF_ERROR(ReadNote(notes));
  }
  if (!has_metadata_) return Bad("no metadata note");
  return {};
}

Status CodeObjectParser::ReadNote(absl::Span<const uint8_t> notes) {
  constexpr auto kAlign = [](uint64_t size) { return (size + 3) & ~uint64_t{3}; };
  while (notes.size() >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr note;
    memcpy(&note, notes.data(), sizeof note);
    notes.remove_prefix(sizeof note);
    const uint64_t name_size = kAlign(note.n_namesz);
    if (name_size > notes.size() || note.n_descsz > notes.size() - name_size) {
      return Bad("a note of ", note.n_namesz, " and ", note.n_descsz, " bytes, ", notes.size(),
                 " are left");
    }
    const auto name = notes.first(note.n_namesz);
    const auto content = notes.subspan(name_size, note.n_descsz);
    if (note.n_type == isa::kNoteMetadata && name.size() == 7 &&
        memcmp(name.data(), "AMDGPU", 7) == 0) {
      if (has_metadata_) return Bad("two metadata notes");
      has_metadata_ = true;
      RETURN_IF_ERROR(WithContext(ReadMetadata(content), "code object " + object_.name_));
    }
    notes.remove_prefix(std::min<uint64_t>(name_size + kAlign(note.n_descsz), notes.size()));
  }
  return {};
}

Status CodeObjectParser::ReadMetadata(absl::Span<const uint8_t> bytes) {
  MsgpackReader reader(bytes);
  ASSIGN_OR_RETURN(const uint32_t pairs, reader.Map());
  for (uint32_t i = 0; i < pairs; ++i) {
    ASSIGN_OR_RETURN(const absl::string_view key, reader.String());
    if (key == "amdhsa.target") {
      ASSIGN_OR_RETURN(const absl::string_view target, reader.String());
      object_.target_ = std::string(target);
    } else if (key == "amdhsa.kernels") {
      ASSIGN_OR_RETURN(const uint32_t kernels, reader.Array());
      for (uint32_t k = 0; k < kernels; ++k) RETURN_IF_ERROR(ReadKernelMetadata(&reader));
    } else {
      RETURN_IF_ERROR(reader.Skip());
    }
  }
  return {};
}

Status CodeObjectParser::ReadKernelMetadata(MsgpackReader* reader) {
  CodeKernel seen;
  seen.max_workgroup = 0;
  absl::string_view symbol;
  const struct {
    const char* key;
    uint32_t* value;
  } kNumbers[] = {{".kernarg_segment_size", &seen.kernarg_bytes},
                  {".max_flat_workgroup_size", &seen.max_workgroup},
                  {".sgpr_count", &seen.sgpr_count},
                  {".vgpr_count", &seen.vgpr_count},
                  {".sgpr_spill_count", &seen.sgpr_spills},
                  {".vgpr_spill_count", &seen.vgpr_spills}};
  ASSIGN_OR_RETURN(const uint32_t pairs, reader->Map());
  for (uint32_t i = 0; i < pairs; ++i) {
    ASSIGN_OR_RETURN(const absl::string_view key, reader->String());
    if (key == ".symbol") {
      ASSIGN_OR_RETURN(symbol, reader->String());
      continue;
    }
    if (key == ".args") {
      RETURN_IF_ERROR(ReadArguments(reader, &seen));
      continue;
    }
    const auto* number = std::find_if(std::begin(kNumbers), std::end(kNumbers),
                                      [&](const auto& candidate) { return key == candidate.key; });
    if (number == std::end(kNumbers)) {
      RETURN_IF_ERROR(reader->Skip());
      continue;
    }
    ASSIGN_OR_RETURN(const uint64_t value, reader->Unsigned());
    *number->value = U32(value);
  }
  absl::ConsumeSuffix(&symbol, ".kd");
  // Kernels of AMD's list an argument behind the segment that they declare: who runs them gives them room.
  for (const CodeArgument& argument : seen.arguments) {
    const uint64_t end = uint64_t{argument.offset} + argument.size;
    if (end > kMostKernargBytes) {
      return Error(Code::kBadModel, "metadata of kernel ", symbol, ": argument ", argument.kind,
                   " at ", argument.offset, " with ", argument.size, " bytes: more than ",
                   kMostKernargBytes);
    }
    seen.kernarg_bytes = std::max(seen.kernarg_bytes, static_cast<uint32_t>(end));
  }
  for (CodeKernel& kernel : object_.kernels_) {
    if (kernel.name != symbol) continue;
    kernel.kernarg_bytes = std::max(kernel.kernarg_bytes, seen.kernarg_bytes);
    if (seen.max_workgroup != 0) kernel.max_workgroup = seen.max_workgroup;
    kernel.sgpr_count = seen.sgpr_count;
    kernel.vgpr_count = seen.vgpr_count;
    kernel.sgpr_spills = seen.sgpr_spills;
    kernel.vgpr_spills = seen.vgpr_spills;
    kernel.arguments = std::move(seen.arguments);
    return {};
  }
  return Error(Code::kBadModel, "metadata of a kernel \"", symbol, "\" that has no descriptor");
}

Status CodeObjectParser::ReadArguments(MsgpackReader* reader, CodeKernel* kernel) {
  ASSIGN_OR_RETURN(const uint32_t count, reader->Array());
  for (uint32_t i = 0; i < count; ++i) {
    CodeArgument argument;
    ASSIGN_OR_RETURN(const uint32_t pairs, reader->Map());
    for (uint32_t k = 0; k < pairs; ++k) {
      ASSIGN_OR_RETURN(const absl::string_view key, reader->String());
      if (key == ".value_kind") {
        ASSIGN_OR_RETURN(const absl::string_view kind, reader->String());
        argument.kind = std::string(kind);
      } else if (key == ".offset" || key == ".size") {
        ASSIGN_OR_RETURN(const uint64_t value, reader->Unsigned());
        (key == ".size" ? argument.size : argument.offset) = U32(value);
      } else {
        RETURN_IF_ERROR(reader->Skip());
      }
    }
    kernel->arguments.push_back(std::move(argument));
  }
  return {};
}

Status CodeObjectParser::CheckKernels() const {
  for (const CodeKernel& kernel : object_.kernels_) RETURN_IF_ERROR(CheckDescriptor(kernel));
  return {};
}

Status CodeObjectParser::CheckDescriptor(const CodeKernel& kernel) const {
  const isa::KernelDescriptor& d = kernel.descriptor;
  constexpr uint8_t kZeroes[sizeof d.reserved1] = {};
  if (d.reserved0 != 0 || memcmp(d.reserved1, kZeroes, sizeof d.reserved1) != 0 ||
      memcmp(d.reserved2, kZeroes, sizeof d.reserved2) != 0 ||
      (d.kernel_code_properties & isa::kPropertyReserved) != 0) {
    return Bad("kernel ", kernel.name, ": reserved bits of its descriptor are set");
  }
  constexpr uint16_t kImpossible =
      isa::kPropertyPrivateSegmentBuffer | isa::kPropertyFlatScratchInit | isa::kPropertyWave32;
  if ((d.kernel_code_properties & kImpossible) != 0) {
    return Bad("kernel ", kernel.name, ": properties 0x", absl::Hex(d.kernel_code_properties),
               " ask for wave32 or a scratch set-up that these chips do not have");
  }
  const uint64_t entry =
      kernel.descriptor_vaddr + static_cast<uint64_t>(d.kernel_code_entry_byte_offset);
  const bool executable = std::any_of(
      executables_.begin(), executables_.end(),
      [&](const Executable& range) { return entry >= range.begin && entry < range.end; });
  if (entry % isa::kKernelCodeAlignment != 0 || !executable) {
    return Bad("kernel ", kernel.name, ": entry at ", static_cast<int64_t>(entry),
               ", must be 256-byte aligned in an executable segment");
  }
  return {};
}

StatusOr<CodeObject> CodeObject::Parse(absl::string_view name, absl::Span<const uint8_t> bytes) {
  return CodeObjectParser(name, bytes).Run();
}

Status CodeObject::CheckRunsOn(const isa::ChipFacts& chip, uint32_t scratch_bytes_per_lane) const {
  const uint32_t mach = elf_flags_ & isa::kElfMachMask;
  const bool generic = mach == isa::kElfMachGfx9_4Generic && chip.is_target;
  if (mach != chip.elf_mach && !generic) {
    const isa::ChipFacts* other = isa::ChipByElfMach(mach);
    return Error(Code::kUnsupported, "code object ", name_, " is for ",
                 other != nullptr ? other->name : absl::StrCat("machine 0x", absl::Hex(mach)),
                 ", this gpu is ", chip.name);
  }
  if ((elf_flags_ & isa::kElfXnackMask) == isa::kElfXnackOn) {
    return Error(Code::kUnsupported, "code object ", name_, " needs xnack, which is off");
  }
  if ((elf_flags_ & isa::kElfSramEccMask) == isa::kElfSramEccOff) {
    return Error(Code::kUnsupported, "code object ", name_, " needs sramecc off, it is on");
  }
  for (const CodeKernel& kernel : kernels_) {
    const isa::KernelDescriptor& d = kernel.descriptor;
    if (d.group_segment_fixed_size > chip.lds_bytes) {
      return Error(Code::kUnsupported, "kernel ", kernel.name, ": ", d.group_segment_fixed_size,
                   " bytes of LDS, ", chip.name, " has ", chip.lds_bytes);
    }
    const bool unbounded = (d.kernel_code_properties & isa::kPropertyDynamicStack) != 0;
    const uint64_t wanted =
        uint64_t{d.private_segment_fixed_size} + (unbounded ? isa::kLeastDynamicStack : 0);
    if (wanted > scratch_bytes_per_lane) {
      return Error(Code::kUnsupported, "kernel ", kernel.name, ": ", d.private_segment_fixed_size,
                   " bytes of scratch a work-item",
                   unbounded
                       ? absl::StrCat(" and a dynamic stack of at least ", isa::kLeastDynamicStack)
                       : "",
                   ", the queue has ", scratch_bytes_per_lane);
    }
  }
  return {};
}

std::vector<uint8_t> CodeObject::Relocate(uint64_t base) const {
  std::vector<uint8_t> image = image_;
  for (const Relocation& relocation : relocations_) {
    uint64_t value = relocation.value + (relocation.add_base ? base : 0);
    if (relocation.type == isa::kRelocRel64) value -= base + relocation.offset;
    memcpy(image.data() + relocation.offset, &value, sizeof value);
  }
  return image;
}

}  // namespace mainarch::gpu
