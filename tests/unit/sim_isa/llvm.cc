// SPDX-License-Identifier: MIT
#include "unit/sim_isa/llvm.h"

#include <elf.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "support/test.h"

namespace mainarch::sim::isa::test {

bool HaveTool(const std::string& tool) {
  std::string ignored;
  return RunCommand("command -v " + tool, &ignored);
}

bool RunCommand(const std::string& command, std::string* output) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return false;
  char buffer[65536];
  output->clear();
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) output->append(buffer, n);
  return pclose(pipe) == 0;
}

std::vector<uint8_t> ReadBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void WriteBytes(const std::string& path, const std::vector<uint8_t>& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

const char* CpuName(Isa isa) { return isa == Isa::kGfx942 ? "gfx942" : "gfx950"; }

namespace {

std::vector<uint8_t> WrapInElf(Isa isa, const std::vector<uint8_t>& code) {
  static constexpr char kNames[] = "\0.text\0.shstrtab";
  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_ident[EI_OSABI] = 64;
  header.e_ident[EI_ABIVERSION] = 4;
  header.e_type = ET_REL;
  header.e_machine = 224;
  header.e_version = EV_CURRENT;
  header.e_flags = isa == Isa::kGfx942 ? 0x54c : 0x54f;
  header.e_ehsize = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 3;
  header.e_shstrndx = 2;
  const uint64_t text_at = sizeof header;
  const uint64_t names_at = text_at + code.size();
  header.e_shoff = (names_at + sizeof kNames + 7) / 8 * 8;
  Elf64_Shdr sections[3] = {};
  sections[1] = {1, SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, 0, text_at, code.size(), 0, 0, 4, 0};
  sections[2] = {7, SHT_STRTAB, 0, 0, names_at, sizeof kNames, 0, 0, 1, 0};
  std::vector<uint8_t> elf(header.e_shoff + sizeof sections);
  std::memcpy(elf.data(), &header, sizeof header);
  std::memcpy(elf.data() + text_at, code.data(), code.size());
  std::memcpy(elf.data() + names_at, kNames, sizeof kNames);
  std::memcpy(elf.data() + header.e_shoff, sections, sizeof sections);
  return elf;
}

}  // namespace

Listing Disassemble(Isa isa, const std::vector<uint8_t>& code) {
  const std::string path = mainarch::test::ScratchDirectory() + "/code.o";
  WriteBytes(path, WrapInElf(isa, code));
  return DisassembleFile(path);
}

Listing DisassembleFile(const std::string& path) {
  Listing listing;
  const std::string out = mainarch::test::ScratchDirectory() + "/listing";
  if (!RunCommand("llvm-objdump-22 -d --section=.text " + path + " > " + out, &listing.error)) {
    return listing;
  }
  std::ifstream in(out);
  for (std::string line; std::getline(in, line);) {
    const size_t comment = line.find("// ");
    if (line.empty() || line[0] != '\t' || comment == std::string::npos) continue;
    size_t end = line.find_last_not_of(" \t", comment - 1);
    listing.text[strtoull(line.c_str() + comment + 3, nullptr, 16)] = line.substr(1, end);
  }
  return listing;
}

std::vector<uint8_t> Assemble(Isa isa, const std::string& source, std::string* error) {
  const std::string base = mainarch::test::ScratchDirectory() + "/a";
  std::ofstream(base + ".s") << source;
  if (!RunCommand(std::string("llvm-mc-22 -triple=amdgcn-amd-amdhsa -filetype=obj -mcpu=") +
                      CpuName(isa) + " -o " + base + ".o " + base + ".s",
                  error)) {
    return {};
  }
  uint64_t va = 0;
  return TextSection(ReadBytes(base + ".o"), &va);
}

std::vector<uint8_t> TextSection(const std::vector<uint8_t>& elf, uint64_t* va) {
  Elf64_Ehdr header;
  if (elf.size() < sizeof header) return {};
  std::memcpy(&header, elf.data(), sizeof header);
  if (header.e_shstrndx >= header.e_shnum ||
      header.e_shoff + header.e_shnum * sizeof(Elf64_Shdr) > elf.size()) {
    return {};
  }
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(elf.data() + header.e_shoff);
  const char* names =
      reinterpret_cast<const char*>(elf.data() + sections[header.e_shstrndx].sh_offset);
  for (int i = 0; i < header.e_shnum; ++i) {
    if (std::strcmp(names + sections[i].sh_name, ".text") != 0) continue;
    *va = sections[i].sh_addr;
    const uint8_t* begin = elf.data() + sections[i].sh_offset;
    return {begin, begin + sections[i].sh_size};
  }
  return {};
}

}  // namespace mainarch::sim::isa::test
