// SPDX-License-Identifier: MIT
#define MAINARCH_TARGET portable
#include "support/plain_tiles.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "backend/cpu/kernels/tiles_attend.h"
#include "backend/cpu/kernels/tiles_groups.h"
#include "backend/cpu/kernels/tiles_int8.h"

namespace mainarch::test {
namespace {

float Flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

float FromBF16(uint16_t bits) {
  const uint32_t word = uint32_t{bits} << 16;
  float x;
  std::memcpy(&x, &word, sizeof(x));
  return Flushed(x);
}

class PlainTiles {
 public:
  void Configure(int r0, int r1) {
    for (int tile = 0; tile < 8; ++tile) rows_[tile] = 16;
    const int second = r1 > 0 ? r1 : r0;
    rows_[0] = rows_[1] = rows_[4] = r0;
    rows_[2] = rows_[3] = second;
    if (r1 > 0) rows_[5] = r1;
    for (int& bytes : bytes_) bytes = 64;
  }
  void ConfigureGroups(int rows, int cols) {
    for (int tile = 0; tile < 8; ++tile) {
      rows_[tile] = tile < 6 ? rows : cols / 2;
      bytes_[tile] = tile == 4 || tile == 5 ? 2 * cols : 64;
    }
  }
  void ConfigureBytes(int rows, int cols) {
    for (const int tile : {0, 1, 4, 5}) rows_[tile] = rows;
    rows_[6] = rows_[7] = cols / 4;
    for (int& bytes : bytes_) bytes = 64;
    bytes_[4] = bytes_[5] = cols;
  }
  template <int I>
  void Zero() {
    Zero(I);
  }
  template <int I>
  void Load(const void* from, size_t stride) {
    Load(I, from, stride);
  }
  template <int I>
  void Store(void* to, size_t stride) {
    Store(I, to, stride);
  }
  template <int C, int A, int B>
  void Dot() {
    Dot(C, A, B);
  }
  template <int C, int A, int B>
  void DotBytes() {
    DotBytes(C, A, B);
  }

 private:
  // Out of line: inlined wherever a block multiplies, they took the compiler minutes.
  [[gnu::noinline]] void Zero(int i) { std::memset(tiles_[i], 0, sizeof(tiles_[i])); }
  [[gnu::noinline]] void Load(int i, const void* from, size_t stride) {
    Zero(i);
    for (int r = 0; r < rows_[i]; ++r) {
      // Rows may lie the other way round: a stride that wraps.
      const auto row = reinterpret_cast<uintptr_t>(from) + static_cast<size_t>(r) * stride;
      std::memcpy(tiles_[i] + 64 * r, reinterpret_cast<const void*>(row), static_cast<size_t>(bytes_[i]));
    }
  }
  [[gnu::noinline]] void Store(int i, void* to, size_t stride) {
    for (int r = 0; r < rows_[i]; ++r) {
      std::memcpy(static_cast<uint8_t*>(to) + r * stride, tiles_[i] + 64 * r, 64);
    }
  }
  [[gnu::noinline]] void Dot(int c, int a, int b) {
    if (rows_[c] != rows_[a] || bytes_[a] != 4 * rows_[b]) std::abort();  // AMX: an illegal instruction
    for (int m = 0; m < rows_[c]; ++m) {
      for (int n = 0; n < 16; ++n) {
        float even = 0, odd = 0;
        for (int k = 0; k < rows_[b]; ++k) {
          even = Flushed(std::fmaf(Half(a, m, 2 * k), Half(b, k, 2 * n), even));
          odd = Flushed(std::fmaf(Half(a, m, 2 * k + 1), Half(b, k, 2 * n + 1), odd));
        }
        float sum;
        uint8_t* at = tiles_[c] + 64 * m + 4 * n;
        std::memcpy(&sum, at, sizeof(sum));
        sum = Flushed(Flushed(sum) + Flushed(even + odd));
        std::memcpy(at, &sum, sizeof(sum));
      }
    }
  }
  [[gnu::noinline]] void DotBytes(int c, int a, int b) {
    if (rows_[c] != rows_[a] || bytes_[a] != 4 * rows_[b]) std::abort();
    for (int m = 0; m < rows_[c]; ++m) {
      for (int n = 0; n < 16; ++n) {
        int32_t sum;
        uint8_t* at = tiles_[c] + 64 * m + 4 * n;
        std::memcpy(&sum, at, sizeof(sum));
        for (int k = 0; k < rows_[b]; ++k) {
          for (int i = 0; i < 4; ++i) {
            sum += static_cast<int8_t>(tiles_[a][64 * m + 4 * k + i]) * static_cast<int8_t>(tiles_[b][64 * k + 4 * n + i]);
          }
        }
        std::memcpy(at, &sum, sizeof(sum));
      }
    }
  }

  float Half(int tile, int row, int i) const {
    uint16_t bits;
    std::memcpy(&bits, tiles_[tile] + 64 * row + 2 * i, sizeof(bits));
    return FromBF16(bits);
  }

  int rows_[8] = {};
  int bytes_[8] = {64, 64, 64, 64, 64, 64, 64, 64};  // of a row
  uint8_t tiles_[8][1024] = {};
};

void (*others_int8)(const cpu::MatmulArgs&) = nullptr;  // for what goes by vectors

void Matmul(const cpu::MatmulArgs& args) {
  PlainTiles unit;
  cpu::portable::TileMatmul(unit, args);
}

void ExpertsDown(const cpu::ExpertsDownArgs& args) {
  PlainTiles unit;
  cpu::portable::TileExpertsDown(unit, args);
}

void MatmulInt8(const cpu::MatmulArgs& args) {
  PlainTiles unit;
  if (!cpu::portable::TileMatmulInt8(unit, args)) others_int8(args);
}

void (*others_attend)(const cpu::AttendArgs&) = nullptr;

void AttendBF16(const cpu::AttendArgs& args) {
  PlainTiles unit;
  if (!cpu::portable::TileAttend<PlainTiles>::Takes(args.kv)) return others_attend(args);
  cpu::portable::TileAttend<PlainTiles>(unit, args).Run();
}

void ToBF16(const float* x, uint16_t* out, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) {
    cpu::portable::StoreBF16(out + i, cpu::portable::Load(x + i));
  }
}

}  // namespace

const cpu::Kernels* PlainTileKernels(const cpu::Kernels& others) {
  static cpu::Kernels kernels;
  kernels = others;
  kernels.name = "plain tiles";
  kernels.matmul_bf16 = Matmul;
  kernels.experts_down_bf16 = ExpertsDown;
  kernels.to_bf16 = ToBF16;
  kernels.matmul_int8 = MatmulInt8;
  others_int8 = others.matmul_int8;
  kernels.attend_bf16 = AttendBF16;
  others_attend = others.attend;
  kernels.may_round = nullptr;
  return &kernels;
}

}  // namespace mainarch::test
