# SPDX-License-Identifier: MIT
"""Reads what the build needs of an AMDGPU code object: sections, symbols, metadata, budgets."""
import struct

EM_AMDGPU = 224
NT_AMDGPU_METADATA = 32
SHT_NOTE, SHT_RELA, SHT_REL, SHT_DYNSYM = 7, 4, 9, 11


class Bad(Exception):
    """A code object that cannot be read."""


def unpack_msgpack(data, at=0):
    """One msgpack value at `at`: (value, end). The subset the AMDGPU metadata uses."""
    tag = data[at]
    at += 1
    if tag < 0x80:
        return tag, at
    if tag >= 0xE0:
        return tag - 256, at
    if 0x80 <= tag <= 0x8F or tag in (0xDE, 0xDF):
        count, at = _count(data, at, tag, 0x0F, {0xDE: ">H", 0xDF: ">I"})
        out = {}
        for _ in range(count):
            key, at = unpack_msgpack(data, at)
            out[key], at = unpack_msgpack(data, at)
        return out, at
    if 0x90 <= tag <= 0x9F or tag in (0xDC, 0xDD):
        count, at = _count(data, at, tag, 0x0F, {0xDC: ">H", 0xDD: ">I"})
        out = []
        for _ in range(count):
            value, at = unpack_msgpack(data, at)
            out.append(value)
        return out, at
    if 0xA0 <= tag <= 0xBF or tag in (0xD9, 0xDA, 0xDB):
        count, at = _count(data, at, tag, 0x1F, {0xD9: ">B", 0xDA: ">H", 0xDB: ">I"})
        return data[at:at + count].decode(), at + count
    if tag in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[tag], at
    numbers = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
               0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
    if tag in numbers:
        return struct.unpack_from(numbers[tag], data, at)[0], at + struct.calcsize(numbers[tag])
    raise Bad(f"msgpack tag {tag:#x} in the metadata note")


def _count(data, at, tag, mask, wide):
    if tag in wide:
        return struct.unpack_from(wide[tag], data, at)[0], at + struct.calcsize(wide[tag])
    return tag & mask, at


class CodeObject:
    def __init__(self, data):
        self.data = data
        if data[:6] != b"\x7fELF\x02\x01" or len(data) < 64:
            raise Bad("not a little-endian ELF64 file")
        (self.type, self.machine, _, self.entry, _, section_at, self.flags, _, _, _,
         section_size, section_count, names_index) = struct.unpack_from("<HHIQQQIHHHHHH", data, 16)
        self.os_abi, self.abi_version = data[7], data[8]
        self.sections = []
        for i in range(section_count):
            name, kind, flags, address, offset, size, link, info, _, entry = struct.unpack_from(
                "<IIQQQQIIQQ", data, section_at + i * section_size)
            self.sections.append(dict(name_at=name, kind=kind, flags=flags, address=address,
                                      offset=offset, size=size, link=link, info=info, entry=entry))
        names = self.contents(self.sections[names_index])
        for section in self.sections:
            section["name"] = _string(names, section["name_at"])

    def contents(self, section):
        return self.data[section["offset"]:section["offset"] + section["size"]]

    def section(self, name):
        return next((s for s in self.sections if s["name"] == name), None)

    def symbols(self, table=".symtab"):
        section = self.section(table)
        if section is None:
            return []
        strings = self.contents(self.sections[section["link"]])
        body = self.contents(section)
        out = []
        for at in range(24, len(body), 24):  # entry 0 is the null symbol
            name, info, other, index, value, size = struct.unpack_from("<IBBHQQ", body, at)
            out.append(dict(name=_string(strings, name), type=info & 15, bind=info >> 4,
                            visibility=other & 3, section=index, value=value, size=size))
        return out

    def bytes_at(self, address, count):
        for section in self.sections:
            if section["address"] <= address < section["address"] + section["size"]:
                at = section["offset"] + address - section["address"]
                return self.data[at:at + count]
        raise Bad(f"no section at address {address:#x}")

    def metadata(self):
        found = []
        for section in self.sections:
            if section["kind"] != SHT_NOTE:
                continue
            body, at = self.contents(section), 0
            while at + 12 <= len(body):
                name_size, size, kind = struct.unpack_from("<III", body, at)
                name = body[at + 12:at + 12 + name_size].rstrip(b"\0")
                start = at + 12 + (name_size + 3) // 4 * 4
                if name == b"AMDGPU" and kind == NT_AMDGPU_METADATA:
                    found.append(unpack_msgpack(body[start:start + size])[0])
                at = start + (size + 3) // 4 * 4
        if len(found) != 1:
            raise Bad(f"{len(found)} metadata notes; a loader reads exactly one")
        return found[0]

    def budgets(self, isa):
        """kernel -> {threads, vgpr, agpr, sgpr, lds}; "gfx950.vgpr=N" overrides "vgpr=N"."""
        section = self.section(".mainarch.budget")
        out = {}
        for line in self.contents(section).decode().splitlines() if section else []:
            name, *fields = line.split()
            general, special = {"agpr": 0, "lds": 0}, {}
            for field in fields:
                key, _, value = field.partition("=")
                where, _, what = key.rpartition(".")
                if where in ("", isa):
                    (special if where else general)[what] = int(value)
            out[name] = {**general, **special}
        return out


def _string(table, at):
    return table[at:table.index(b"\0", at)].decode()
