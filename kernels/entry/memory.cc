// SPDX-License-Identifier: MIT
#include "kernels/ops/memory.h"

#include "kernels/common/kernel.h"

namespace mainarch::kernels {

KERNEL(stream_read, StreamRead, "vgpr=48 sgpr=32 lds=16")
KERNEL(fill, Fill, "vgpr=16 sgpr=32")
KERNEL(copy, Copy, "vgpr=16 sgpr=32")
KERNEL(lds_dma_copy, LdsDmaCopy, "vgpr=16 sgpr=32 gfx942.lds=1024 gfx950.lds=4096")

}  // namespace mainarch::kernels
