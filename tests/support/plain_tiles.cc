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
    std::memset(tiles_[I], 0, sizeof(tiles_[I]));
  }
  template <int I>
  void Load(const void* from, size_t stride) {
    Zero<I>();
    for (int r = 0; r < rows_[I]; ++r) {
      // Rows may lie the other way round: a stride that wraps.
      const auto row = reinterpret_cast<uintptr_t>(from) + static_cast<size_t>(r) * stride;
      std::memcpy(tiles_[I] + 64 * r, reinterpret_cast<const void*>(row), static_cast<size_t>(bytes_[I]));
    }
  }
  template <int I>
  void Store(void* to, size_t stride) {
    for (int r = 0; r < rows_[I]; ++r) {
      std::memcpy(static_cast<uint8_t*>(to) + r * stride, tiles_[I] + 64 * r, 64);
    }
  }
  template <int C, int A, int B>
  void Dot() {
    if (rows_[C] != rows_[A] || bytes_[A] != 4 * rows_[B]) std::abort();  // AMX: an illegal instruction
    for (int m = 0; m < rows_[C]; ++m) {
      for (int n = 0; n < 16; ++n) {
        float even = 0, odd = 0;
        for (int k = 0; k < rows_[B]; ++k) {
          even = Flushed(std::fmaf(Half(A, m, 2 * k), Half(B, k, 2 * n), even));
          odd = Flushed(std::fmaf(Half(A, m, 2 * k + 1), Half(B, k, 2 * n + 1), odd));
        }
        float sum;
        uint8_t* at = tiles_[C] + 64 * m + 4 * n;
        std::memcpy(&sum, at, sizeof(sum));
        sum = Flushed(Flushed(sum) + Flushed(even + odd));
        std::memcpy(at, &sum, sizeof(sum));
      }
    }
  }

  template <int C, int A, int B>
  void DotBytes() {
    if (rows_[C] != rows_[A] || bytes_[A] != 4 * rows_[B]) std::abort();
    for (int m = 0; m < rows_[C]; ++m) {
      for (int n = 0; n < 16; ++n) {
        int32_t sum;
        uint8_t* at = tiles_[C] + 64 * m + 4 * n;
        std::memcpy(&sum, at, sizeof(sum));
        for (int k = 0; k < rows_[B]; ++k) {
          for (int i = 0; i < 4; ++i) {
            sum += static_cast<int8_t>(tiles_[A][64 * m + 4 * k + i]) * static_cast<int8_t>(tiles_[B][64 * k + 4 * n + i]);
          }
        }
        std::memcpy(at, &sum, sizeof(sum));
      }
    }
  }

 private:
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
