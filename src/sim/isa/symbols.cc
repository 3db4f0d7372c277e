// SPDX-License-Identifier: MIT
#include "sim/isa/symbols.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"

namespace mainarch::sim::isa {
namespace {

constexpr uint64_t kPage = 4096, kFurthest = 64 << 20;
constexpr uint64_t kMostSymbols = 65536, kLongestName = 512;

template <class T>
bool Read(Memory* memory, uint64_t va, T* out) {
  View view;
  AccessFault fault;
  if (!memory->Translate(va, false, false, &view, &fault) || !view.Holds(va, sizeof(T))) {
    return false;
  }
  std::memcpy(out, view.host + (va - view.begin), sizeof(T));
  return true;
}

std::string ReadName(Memory* memory, uint64_t va) {
  std::string name;
  for (char c; name.size() < kLongestName && Read(memory, va + name.size(), &c) && c != 0;) {
    name += c;
  }
  return name;
}

}  // namespace

uint64_t FindObject(Memory* memory, uint64_t va) {
  const uint64_t first = va & ~(kPage - 1);
  for (uint64_t at = first; first - at < kFurthest; at -= kPage) {
    uint32_t magic;
    if (!Read(memory, at, &magic)) return 0;
    if (magic == 0x464c457f) return at;
    if (at < kPage) break;
  }
  return 0;
}

std::string KernelName(Memory* memory, uint64_t descriptor) {
  const uint64_t base = FindObject(memory, descriptor);
  Elf64_Ehdr header;
  if (base == 0 || !Read(memory, base, &header) || header.e_phentsize != sizeof(Elf64_Phdr)) {
    return "";
  }
  uint64_t symbols = 0, strings = 0;
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!Read(memory, base + header.e_phoff + i * sizeof segment, &segment)) return "";
    if (segment.p_type != PT_DYNAMIC) continue;
    for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= std::min<uint64_t>(segment.p_memsz, kPage);
         at += sizeof(Elf64_Dyn)) {
      Elf64_Dyn entry;
      if (!Read(memory, base + segment.p_vaddr + at, &entry) || entry.d_tag == DT_NULL) break;
      if (entry.d_tag == DT_SYMTAB) symbols = entry.d_un.d_ptr;
      if (entry.d_tag == DT_STRTAB) strings = entry.d_un.d_ptr;
    }
  }
  if (symbols == 0 || strings == 0) return "";
  // A loader may or may not have moved the addresses in the dynamic section.
  if (symbols < base) symbols += base;
  if (strings < base) strings += base;
  for (uint64_t i = 1; i < kMostSymbols; ++i) {
    Elf64_Sym symbol;
    if (!Read(memory, symbols + i * sizeof symbol, &symbol)) break;
    if (symbol.st_value != descriptor - base || ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT) {
      continue;
    }
    const std::string name = ReadName(memory, strings + symbol.st_name);
    if (absl::EndsWith(name, ".kd")) return name.substr(0, name.size() - 3);
  }
  return "";
}

}  // namespace mainarch::sim::isa
