// SPDX-License-Identifier: MIT
//
// The target "amx": avx512_bf16, but that products with bf16 activations, and those of many rows of 8 bits, run
// on AMX (AMX-TILE, AMX-BF16, AMX-INT8: Intel from Sapphire Rapids on), through tiles.h, tiles_groups.h and
// tiles_int8.h, and attention that rounds through tiles_attend.h; but those of few rows, which vectors multiply as fast as memory gives it (tiles_few.h).
//
// Tiles are state of a thread that the kernel keeps only for processes that have asked for it, once
// for all threads (arch_prctl(2), ARCH_REQ_XCOMP_PERM; Linux 5.16). It is asked for when an engine
// is made that will use them, not before: a process that has asked needs alternative signal stacks
// large enough for tiles (sigaltstack(2) refuses smaller ones then), and is refused where it has
// smaller ones already. Each call leaves the tiles released, so that nothing is saved in between.
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/cpu/kernels/table.h"
#include "backend/cpu/kernels/tiles_attend_few.h"
#include "backend/cpu/kernels/tiles_few.h"
#include "backend/cpu/kernels/tiles_groups.h"
#include "backend/cpu/kernels/tiles_int8.h"

namespace mainarch::cpu {
namespace avx512_bf16 {
namespace {

// ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA of Linux 5.16, whose headers Debian 12 may not have.
constexpr int kRequestPermission = 0x1023;
constexpr int kTileData = 18;

// Products of 8 bits are there without it, too.
bool permitted = false;  // atomic

bool MayUseTiles() {
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) return false;
  __atomic_store_n(&permitted, true, __ATOMIC_RELAXED);
  return true;
}

// Intel's manual, volume 1, 18.2: palette 1 has eight tiles of at most 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

class Amx {
 public:
  Amx() = default;
  Amx(const Amx&) = delete;
  Amx& operator=(const Amx&) = delete;
  ~Amx() { asm volatile("tilerelease" ::: "memory"); }

  void Configure(int r0, int r1) {
    TileConfig config;
    for (int tile = 0; tile < 8; ++tile) {
      config.row_bytes[tile] = 64;
      const bool sums = tile < 4, left = tile == 4 || (tile == 5 && r1 > 0);
      int rows = 16;
      if (sums) rows = r1 > 0 && tile >= 2 ? r1 : r0;
      if (left) rows = tile == 4 ? r0 : r1;
      config.rows[tile] = static_cast<uint8_t>(rows);
    }
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  // tiles_groups.h
  void ConfigureGroups(int rows, int cols) {
    TileConfig config;
    for (int tile = 0; tile < 8; ++tile) {
      config.row_bytes[tile] = static_cast<uint16_t>(tile == 4 || tile == 5 ? 2 * cols : 64);
      config.rows[tile] = static_cast<uint8_t>(tile < 6 ? rows : cols / 2);
    }
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  // tiles_int8.h
  void ConfigureBytes(int rows, int cols) {
    TileConfig config;
    for (int i = 0; i < 2; ++i) {
      config.rows[i] = config.rows[4 + i] = static_cast<uint8_t>(rows);
      config.rows[6 + i] = static_cast<uint8_t>(cols / 4);
      config.row_bytes[i] = config.row_bytes[6 + i] = 64;
      config.row_bytes[4 + i] = static_cast<uint16_t>(cols);
    }
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  template <int I>
  void Zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(I));
  }
  template <int I>
  void Load(const void* from, size_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(I) : "memory");
  }
  template <int I>
  void Store(void* to, size_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(I) : "memory");
  }
  template <int C, int A, int B>
  void Dot() {
    asm volatile("tdpbf16ps %%tmm%c0, %%tmm%c1, %%tmm%c2" ::"i"(B), "i"(A), "i"(C));
  }
  template <int C, int A, int B>
  void DotBytes() {
    asm volatile("tdpbssd %%tmm%c0, %%tmm%c1, %%tmm%c2" ::"i"(B), "i"(A), "i"(C));
  }
};

// In place of kNearBytes. Measured: 4 KiB take 2 % longer with one row, 8 KiB with two rows and two threads.
constexpr size_t kFewNearBytes = 6144;

MatmulArgs Nearer(MatmulArgs a) {
  if (a.near != 0) a.near = kFewNearBytes;
  return a;
}
void RunMatmulTiles(const MatmulArgs& a) {
  const Flushing flushing(a.w.format);
  if (a.floats != nullptr && a.rows <= FewRows(a.w.format)) return MatmulFew(Nearer(a));
  Amx unit;
  TileMatmul(unit, a);
}
void RunExpertsDownTiles(const ExpertsDownArgs& a) {
  const Flushing flushing(a.experts[a.active[0]].format);
  // Of an expert, on average.
  if (a.rows * a.k <= FewRows(a.experts[a.active[0]].format) * a.active_count) return ExpertsDownFew(a);
  Amx unit;
  TileExpertsDown(unit, a);
}

void RunMatmulInt8Tiles(const MatmulArgs& a) {
  if (a.rows >= kInt8TileRows && __atomic_load_n(&permitted, __ATOMIC_RELAXED)) {
    Amx unit;
    if (TileMatmulInt8(unit, a)) return;
  }
  RunMatmulInt8(a);
}

void RunAttendTiles(const AttendArgs& a) {
  if (!TileAttend<Amx>::Takes(a.kv)) return RunAttend(a);
  const Flushing flushing(PanelFormat::kBF16);
  if (a.queries <= kFewQueries) return FewAttend(a).Run();
  Amx unit;
  TileAttend<Amx>(unit, a).Run();
}

constexpr Kernels WithTiles() {
  Kernels kernels = kTable;
  kernels.name = "amx";
  kernels.matmul_bf16 = RunMatmulTiles;
  kernels.experts_down_bf16 = RunExpertsDownTiles;
  kernels.matmul_int8 = RunMatmulInt8Tiles;
  kernels.attend_bf16 = RunAttendTiles;
  kernels.may_round = MayUseTiles;
  return kernels;
}

}  // namespace
}  // namespace avx512_bf16

namespace amx {

constinit const Kernels kKernels = avx512_bf16::WithTiles();

}  // namespace amx
}  // namespace mainarch::cpu
