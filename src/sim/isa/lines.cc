// SPDX-License-Identifier: MIT
#include "sim/isa/lines.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "sim/isa/symbols.h"

namespace mainarch::sim::isa {
namespace {

using Bytes = absl::Span<const uint8_t>;
constexpr size_t kMostRows = 1 << 20, kMostFiles = 1 << 16, kMostSections = 1024;

// Reads from the front; `ok` turns false at the end of the bytes and stays so.
template <class T>
T Take(Bytes* in, bool* ok) {
  T value = 0;
  if (in->size() < sizeof(T)) {
    *ok = false;
    *in = Bytes();
    return 0;
  }
  std::memcpy(&value, in->data(), sizeof(T));
  in->remove_prefix(sizeof(T));
  return value;
}
uint64_t TakeUleb(Bytes* in, bool* ok) {
  uint64_t value = 0;
  for (int shift = 0; *ok; shift += 7) {
    const uint8_t byte = Take<uint8_t>(in, ok);
    if (shift < 64) value |= uint64_t{byte & 127u} << shift;
    if (byte < 128) break;
  }
  return value;
}
int64_t TakeSleb(Bytes* in, bool* ok) {
  uint64_t value = 0;
  int shift = 0;
  uint8_t byte = 128;
  while (*ok && byte >= 128) {
    byte = Take<uint8_t>(in, ok);
    if (shift < 64) value |= uint64_t{byte & 127u} << shift;
    shift += 7;
  }
  if (shift < 64 && (byte & 64) != 0) value |= ~uint64_t{0} << shift;
  return static_cast<int64_t>(value);
}
std::string TakeString(Bytes* in, bool* ok) {
  const auto* end =
      static_cast<const uint8_t*>(in->empty() ? nullptr : std::memchr(in->data(), 0, in->size()));
  if (end == nullptr) {
    *ok = false;
    return "";
  }
  std::string text(in->data(), end);
  in->remove_prefix(text.size() + 1);
  return text;
}
void Skip(Bytes* in, uint64_t bytes, bool* ok) {
  if (bytes > in->size()) *ok = false;
  in->remove_prefix(std::min<uint64_t>(bytes, in->size()));
}
// File names are long in reports; the last part says enough.
std::string Base(const std::string& path) { return path.substr(path.rfind('/') + 1); }

Bytes Section(Bytes elf, absl::string_view wanted) {
  Elf64_Ehdr header;
  if (elf.size() < sizeof header) return Bytes();
  std::memcpy(&header, elf.data(), sizeof header);
  const uint64_t count = header.e_shnum;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || count > kMostSections ||
      header.e_shoff > elf.size() || count * sizeof(Elf64_Shdr) > elf.size() - header.e_shoff ||
      header.e_shstrndx >= count) {
    return Bytes();
  }
  const auto section = [&](uint64_t i) {
    Elf64_Shdr s;
    std::memcpy(&s, elf.data() + header.e_shoff + i * sizeof s, sizeof s);
    return s;
  };
  const auto bytes = [&](const Elf64_Shdr& s) {
    if (s.sh_type == SHT_NOBITS || s.sh_offset > elf.size()) return Bytes();
    return elf.subspan(s.sh_offset, std::min<uint64_t>(s.sh_size, elf.size() - s.sh_offset));
  };
  const Bytes names = bytes(section(header.e_shstrndx));
  for (uint64_t i = 0; i < count; ++i) {
    const Elf64_Shdr s = section(i);
    if (s.sh_name >= names.size()) continue;
    Bytes at = names.subspan(s.sh_name);
    bool ok = true;
    // Compressed ones are not read.
    if (TakeString(&at, &ok) == wanted && ok && (s.sh_flags & SHF_COMPRESSED) == 0) return bytes(s);
  }
  return Bytes();
}

}  // namespace

struct LineTable::Unit {
  Bytes in;  // what is left of it
  bool wide = false;
  int version = 0;
  uint8_t least = 1, opcode_base = 0, line_range = 0;
  int8_t line_base = 0;
  std::vector<uint8_t> lengths;
  size_t first_file = 0;  // in files_
  size_t files = 0;
};

LineTable::LineTable(Bytes elf) {
  if (elf.size() < kHeader) return;
  std::memcpy(header_.data(), elf.data(), kHeader);
  strings_ = Section(elf, ".debug_str");
  line_strings_ = Section(elf, ".debug_line_str");
  Bytes left = Section(elf, ".debug_line");
  while (!left.empty() && ReadUnit(&left)) {
  }
  strings_ = line_strings_ = Bytes();
  std::stable_sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) {
    // The end of one function is the beginning of the next.
    return a.address != b.address ? a.address < b.address : a.line == 0 && b.line != 0;
  });
}

bool LineTable::ReadUnit(Bytes* bytes) {
  bool ok = true;
  Unit unit;
  uint64_t length = Take<uint32_t>(bytes, &ok);
  unit.wide = length == 0xffffffff;
  if (unit.wide) length = Take<uint64_t>(bytes, &ok);
  if (!ok || length > bytes->size()) return false;
  unit.in = bytes->subspan(0, length);
  bytes->remove_prefix(length);
  unit.version = Take<uint16_t>(&unit.in, &ok);
  if (unit.version != 4 && unit.version != 5) return ok;  // another's; go on behind it
  if (unit.version == 5) Skip(&unit.in, 2, &ok);          // sizes of addresses and selectors
  const uint64_t header = unit.wide ? Take<uint64_t>(&unit.in, &ok) : Take<uint32_t>(&unit.in, &ok);
  if (!ok || header > unit.in.size()) return false;
  const Bytes program = unit.in.subspan(header);
  unit.in = unit.in.subspan(0, header);
  unit.least = Take<uint8_t>(&unit.in, &ok);
  Skip(&unit.in, 2, &ok);  // operations of one instruction; whether a row is a statement
  unit.line_base = static_cast<int8_t>(Take<uint8_t>(&unit.in, &ok));
  unit.line_range = Take<uint8_t>(&unit.in, &ok);
  unit.opcode_base = Take<uint8_t>(&unit.in, &ok);
  for (int i = 1; i < unit.opcode_base; ++i) unit.lengths.push_back(Take<uint8_t>(&unit.in, &ok));
  if (!ok || unit.line_range == 0 || unit.opcode_base == 0) return false;
  unit.first_file = files_.size();
  if (!ReadNames(&unit)) return false;
  unit.files = files_.size() - unit.first_file;
  unit.in = program;
  Run(&unit);
  return true;
}

std::string LineTable::Name(const Unit& unit, uint64_t form, bool* ok, Bytes* in) const {
  const auto far = [&](Bytes from) -> std::string {
    const uint64_t at = unit.wide ? Take<uint64_t>(in, ok) : Take<uint32_t>(in, ok);
    if (at >= from.size()) return *ok = false, "";
    from.remove_prefix(at);
    return TakeString(&from, ok);
  };
  switch (form) {
    case 0x08:
      return TakeString(in, ok);
    case 0x0e:
      return far(strings_);
    case 0x1f:
      return far(line_strings_);
    case 0x0b:
      return Skip(in, 1, ok), "";
    case 0x05:
      return Skip(in, 2, ok), "";
    case 0x06:
      return Skip(in, 4, ok), "";
    case 0x07:
      return Skip(in, 8, ok), "";
    case 0x1e:
      return Skip(in, 16, ok), "";
    case 0x0f:
      return TakeUleb(in, ok), "";
    case 0x09:
      return Skip(in, TakeUleb(in, ok), ok), "";
    default:
      return *ok = false, "";
  }
}

// Directories are read and forgotten; files are kept by their last part.
bool LineTable::ReadNames(Unit* unit) {
  bool ok = true;
  Bytes* in = &unit->in;
  if (unit->version == 4) {
    while (ok && !TakeString(in, &ok).empty()) {
    }
    files_.push_back("");  // files count from 1
    while (ok && files_.size() < kMostFiles) {
      const std::string name = TakeString(in, &ok);
      if (name.empty()) break;
      for (int i = 0; i < 3; ++i) TakeUleb(in, &ok);  // directory, time, length
      files_.push_back(Base(name));
    }
    return ok;
  }
  for (const bool files : {false, true}) {
    std::vector<std::pair<uint64_t, uint64_t>> format(Take<uint8_t>(in, &ok));
    for (auto& [content, form] : format) {
      content = TakeUleb(in, &ok);
      form = TakeUleb(in, &ok);
    }
    const uint64_t count = TakeUleb(in, &ok);
    if (format.empty() && count != 0) return false;
    for (uint64_t i = 0; i < count && ok; ++i) {
      std::string path;
      for (const auto& [content, form] : format) {
        const std::string text = Name(*unit, form, &ok, in);
        if (content == 1) path = text;
      }
      if (files_.size() >= kMostFiles) return false;
      if (files) files_.push_back(Base(path));
    }
  }
  return ok;
}

void LineTable::Run(Unit* unit) {
  Bytes* in = &unit->in;
  bool ok = true;
  Row row;
  uint64_t file = 1;
  const auto reset = [&] { row = {0, 0, 1}, file = 1; };
  const auto emit = [&] {
    if (rows_.size() >= kMostRows) ok = false;
    row.file = static_cast<uint32_t>(file < unit->files ? unit->first_file + file : ~0u);
    rows_.push_back(row);
  };
  reset();
  while (ok && !in->empty()) {
    const uint8_t opcode = Take<uint8_t>(in, &ok);
    if (opcode >= unit->opcode_base) {
      const int special = opcode - unit->opcode_base;
      row.address += static_cast<uint64_t>(special / unit->line_range) * unit->least;
      row.line += static_cast<uint32_t>(unit->line_base + special % unit->line_range);
      emit();
      continue;
    }
    switch (opcode) {
      case 0: {  // extended
        const uint64_t length = TakeUleb(in, &ok);
        if (!ok || length == 0 || length > in->size()) return;
        Bytes body = in->subspan(0, length);
        in->remove_prefix(length);
        const uint8_t sub = Take<uint8_t>(&body, &ok);
        if (sub == 1) {
          row.line = 0;
          emit();
          reset();
        } else if (sub == 2) {
          row.address = Take<uint64_t>(&body, &ok);
        }
        break;
      }
      case 1:
        emit();
        break;
      case 2:
        row.address += TakeUleb(in, &ok) * unit->least;
        break;
      case 3:
        row.line += static_cast<uint32_t>(TakeSleb(in, &ok));
        break;
      case 4:
        file = TakeUleb(in, &ok);
        break;
      case 8:
        row.address +=
            static_cast<uint64_t>((255 - unit->opcode_base) / unit->line_range) * unit->least;
        break;
      case 9:
        row.address += Take<uint16_t>(in, &ok);
        break;
      default:  // columns, flags, and what is not known
        for (int i = 0; i < unit->lengths[opcode - 1u]; ++i) TakeUleb(in, &ok);
    }
  }
}

std::string LineTable::Find(uint64_t va) const {
  auto after = std::upper_bound(rows_.begin(), rows_.end(), va,
                                [](uint64_t at, const Row& row) { return at < row.address; });
  if (after == rows_.begin()) return "";
  const Row& row = *--after;
  if (row.line == 0 || row.file >= files_.size()) return "";
  return absl::StrCat(files_[row.file], ":", row.line);
}

std::string LineTable::FindLoaded(Memory* memory, uint64_t pc) const {
  const uint64_t base = FindObject(memory, pc);
  View view;
  AccessFault fault;
  if (empty() || base == 0 || !memory->Translate(base, false, false, &view, &fault) ||
      !view.Holds(base, kHeader) ||
      std::memcmp(view.host + (base - view.begin), header_.data(), kHeader) != 0) {
    return "";
  }
  return Find(pc - base);
}

}  // namespace mainarch::sim::isa
