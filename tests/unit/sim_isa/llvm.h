// SPDX-License-Identifier: MIT
//
// LLVM as the oracle of the ISA tests: runs the tools when they are installed, and wraps machine
// code in the smallest ELF that llvm-objdump takes.
#ifndef MAINARCH_TESTS_UNIT_SIM_ISA_LLVM_H_
#define MAINARCH_TESTS_UNIT_SIM_ISA_LLVM_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/isa/decode.h"

namespace mainarch::sim::isa::test {

bool HaveTool(const std::string& tool);
// Runs a shell command; false and the output's tail in *output when it fails.
bool RunCommand(const std::string& command, std::string* output);

// Instructions by address, as llvm-objdump prints them.
struct Listing {
  std::map<uint64_t, std::string> text;
  std::string error;
};
Listing Disassemble(Isa isa, const std::vector<uint8_t>& code);
Listing DisassembleFile(const std::string& path);

// Assembles with llvm-mc; empty and *error filled when it fails.
std::vector<uint8_t> Assemble(Isa isa, const std::string& source, std::string* error);

std::vector<uint8_t> ReadBytes(const std::string& path);
void WriteBytes(const std::string& path, const std::vector<uint8_t>& bytes);
const char* CpuName(Isa isa);

// The .text section of an ELF64 file; empty when there is none. *va is its address.
std::vector<uint8_t> TextSection(const std::vector<uint8_t>& elf, uint64_t* va);

}  // namespace mainarch::sim::isa::test

#endif  // MAINARCH_TESTS_UNIT_SIM_ISA_LLVM_H_
