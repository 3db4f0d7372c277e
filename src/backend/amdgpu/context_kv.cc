// SPDX-License-Identifier: MIT
//
// KV pages and slots as plain memory: copied whole, and KV read back token by token.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "backend/amdgpu/context.h"
#include "backend/amdgpu/long_context.h"
#include "backend/amdgpu/lowering.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/fp8_e4m3.h"
#include "kernels/quant/kv_fp4.h"

namespace mainarch::amdgpu {
namespace {

using kernels::KvForm;
using kernels::KvFormat;

// A page of one layer and head in host memory, laid out as kernels/decoder_args.h says.
class Page {
 public:
  Page(KvFormat format, const backend::PagedCache& cache, const uint8_t* at)
      : format_(format), key_dim_(static_cast<uint32_t>(cache.key_dim)), value_dim_(static_cast<uint32_t>(cache.value_dim)), at_(at) {}

  float K(uint32_t slot, uint32_t d) const {
    constexpr uint32_t kStep = kernels::kStepColumns;
    const uint32_t place = kernels::StepPlace(d % kStep);
    return Element(/*value=*/false, at_, (d / kStep * kernels::kPageTokens + slot) * kStep + place, scales(), slot, d);
  }
  float V(uint32_t slot, uint32_t d) const {
    const KvForm key = kernels::KeyForm(format_), form = kernels::ValueForm(format_);
    const uint32_t index = form == KvForm::kFp4 ? kernels::KvFp4ValueAt(value_dim_, slot, d)
                                                : d * kernels::kPageTokens + slot;
    return Element(/*value=*/true, at_ + kernels::KvSideBytes(key, key_dim_), index,
                   scales() + kernels::KvScaleBytes(key, key_dim_), slot, d);
  }

 private:
  const uint8_t* scales() const {
    return at_ + kernels::KvSideBytes(kernels::KeyForm(format_), key_dim_) +
           kernels::KvSideBytes(kernels::ValueForm(format_), value_dim_);
  }
  // Of a side and its multipliers.
  float Element(bool value, const uint8_t* side, uint32_t index, const uint8_t* scales, uint32_t slot,
                uint32_t d) const {
    const KvForm form = value ? kernels::ValueForm(format_) : kernels::KeyForm(format_);
    const uint32_t dim = value ? value_dim_ : key_dim_;
    if (form == KvForm::kFp4) {
      return quant::FloatFromE2m1(quant::Mxfp4Nibble(side, index)) *
             quant::FloatFromE5m3(scales[kernels::KvFp4ScaleAt(value, dim, slot, d / 32)]);
    }
    if (form == KvForm::kFp8) {
      float factor;
      std::memcpy(&factor, scales + uint64_t{slot} * 4, sizeof(factor));
      return quant::FloatFromFp8E4m3(side[index]) * factor;
    }
    float sum = 0;
    for (uint32_t p = 0; p < kernels::KvPlanes(form); ++p) {
      uint16_t bits;
      std::memcpy(&bits, side + p * kernels::KvPlaneBytes(form, dim) + uint64_t{index} * 2,
                  sizeof(bits));
      sum += quant::FloatFromBf16(bits);
    }
    return sum;
  }

  const KvFormat format_;
  const uint32_t key_dim_, value_dim_;
  const uint8_t* const at_;
};

// The same of a page of latents, as kernels/latent_args.h says.
class LatentPage {
 public:
  LatentPage(KvFormat format, const backend::LatentOp& op, const uint8_t* at)
      : form_(kernels::KeyForm(format)),
        turning_(static_cast<uint32_t>(op.turning)),
        turning_steps_(kernels::LatentSteps(turning_)),
        plane_bytes_(kernels::LatentPlaneBytes(
            form_, turning_steps_ + kernels::LatentSteps(static_cast<uint32_t>(op.latent)))),
        at_(at) {}

  float K(uint32_t slot, uint32_t d) const {
    return d < turning_ ? Element(0, slot, d) : V(slot, d - turning_);
  }
  float V(uint32_t slot, uint32_t d) const { return Element(1, slot, d); }

 private:
  // `part`: 0: of what turns, 1: of the latent.
  float Element(uint32_t part, uint32_t slot, uint32_t d) const {
    const uint32_t step = part * turning_steps_ + d / kernels::kStepColumns;
    const uint32_t index = kernels::LatentPlace(step, slot, d % kernels::kStepColumns);
    if (form_ == KvForm::kFp8) {
      float factor;
      const uint32_t token = part * kernels::kPageTokens + slot;
      std::memcpy(&factor, at_ + plane_bytes_ + uint64_t{token} * 4, sizeof(factor));
      return quant::FloatFromFp8E4m3(at_[index]) * factor;
    }
    float sum = 0;
    for (uint32_t p = 0; p < kernels::KvPlanes(form_); ++p) {
      uint16_t bits;
      std::memcpy(&bits, at_ + uint64_t{p} * plane_bytes_ + uint64_t{index} * 2, sizeof(bits));
      sum += quant::FloatFromBf16(bits);
    }
    return sum;
  }

  const KvForm form_;
  const uint32_t turning_, turning_steps_, plane_bytes_;
  const uint8_t* const at_;
};

// Elements of one head of a token, behind those that there are.
template <class PageOf>
void AddToken(const PageOf& page, uint32_t slot, const backend::PagedCache& cache, backend::KvToken* out) {
  for (int32_t d = 0; d < cache.key_dim; ++d) out->k.push_back(page.K(slot, static_cast<uint32_t>(d)));
  for (int32_t d = 0; d < cache.value_dim; ++d) out->v.push_back(page.V(slot, static_cast<uint32_t>(d)));
}

}  // namespace

Status AmdGpuContext::CopyPage(int32_t cache, uint32_t from, uint32_t to) {
  const uint32_t pages = IsPaged(cache) ? shape_.pools[static_cast<size_t>(cache)].pages : 0;
  if (from >= pages || to >= pages) {
    return Error(Code::kInternal, "copy of page ", from, " to ", to, " of cache ", cache,
                 " in a pool of ", pages);
  }
  RETURN_IF_ERROR(NothingInFlight("a copy of a page"));
  Gpus& gpus = model_->gpus();
  std::lock_guard<std::mutex> lock(gpus.mutex());
  RETURN_IF_ERROR(gpus.Settle(gpus.Health()));
  for (int32_t rank = 0; rank < program_.ranks; ++rank) {
    RETURN_IF_ERROR(gpus.Settle(CopyPageOf(rank, UnitsOf(cache, rank), from, to)));
  }
  return OkStatus();
}

Status AmdGpuContext::CopyPageOf(int32_t rank, const Units& pool, uint32_t from, uint32_t to) {
  gpu::CopyQueue& copy = *model_->gpus().at(rank).copy;
  for (int32_t layer = 0; layer < pool.layers; ++layer) {
    const uint64_t at = pool.at + static_cast<uint64_t>(layer) * pool.units * pool.stride;
    RETURN_IF_ERROR(
        copy.Copy(at + to * pool.stride, at + from * pool.stride, pool.bytes, Soon()));
  }
  ASSIGN_OR_RETURN(const uint64_t point, copy.Submit(Soon()));
  return copy.Wait(point, Soon());
}

// All that bits depend on.
std::string AmdGpuContext::content_form() const {
  return absl::StrCat(model_->gpus().at(0).device->chip().name, " ranks ", program_.ranks, " kv ",
                      backend::KvTypesText(program_, shape_.options.kv_type), " activations ",
                      static_cast<int>(shape_.options.activations));
}

AmdGpuContext::Units AmdGpuContext::UnitsOf(int32_t cache, int32_t rank) const {
  const RankMemory& memory = ranks_[static_cast<size_t>(rank)].memory;
  if (IsPaged(cache)) {
    const PoolShape& pool = shape_.pools[static_cast<size_t>(cache)];
    return {memory.kv[static_cast<size_t>(cache)], pool.page_bytes, pool.page_bytes, pool.layers,
            pool.pages};
  }
  if (cache < 0 || static_cast<size_t>(cache) >= shape_.slots.size()) return {};
  const SlotShape& slots = shape_.slots[static_cast<size_t>(cache)];
  return {memory.slots[static_cast<size_t>(cache)], slots.slot_bytes, slots.bytes, slots.layers,
          slots.slots};
}

StatusOr<gpu::Buffer> AmdGpuContext::UnitStaging(int32_t cache, int32_t rank,
                                                 uint32_t unit) const {
  const Units units = UnitsOf(cache, rank);
  if (unit >= units.units) {
    return Error(Code::kInternal, "page or slot ", unit, " of cache ", cache, " in a pool of ",
                 units.units);
  }
  gpu::BufferOptions options;
  options.place = gpu::Place::kSystem;
  options.label = "content of caches";
  return gpu::Buffer::Allocate(*model_->gpus().at(rank).device,
                               static_cast<uint64_t>(units.layers) * units.bytes, options);
}

Status AmdGpuContext::MoveUnit(int32_t rank, const Units& units, uint32_t unit, uint64_t staging,
                               bool out) const {
  for (int32_t layer = 0; layer < units.layers; ++layer) {
    const uint64_t index = static_cast<uint64_t>(layer) * units.units + unit;
    const uint64_t pool = units.at + index * units.stride;
    const uint64_t host = staging + static_cast<uint64_t>(layer) * units.bytes;
    RETURN_IF_ERROR(model_->gpus().CopyAndWait(rank, out ? host : pool, out ? pool : host, units.bytes));
  }
  return OkStatus();
}

StatusOr<std::string> AmdGpuContext::ReadContent(int32_t cache, uint32_t unit) const {
  Gpus& gpus = model_->gpus();
  std::lock_guard<std::mutex> lock(gpus.mutex());
  RETURN_IF_ERROR(gpus.Settle(gpus.Health()));
  std::string bytes;
  for (int32_t rank = 0; rank < program_.ranks; ++rank) {
    ASSIGN_OR_RETURN(const gpu::Buffer staging, UnitStaging(cache, rank, unit));
    const Units units = UnitsOf(cache, rank);
    RETURN_IF_ERROR(gpus.Settle(MoveUnit(rank, units, unit, staging.va(), /*out=*/true)));
    bytes.append(reinterpret_cast<const char*>(staging.host()),
                 static_cast<uint64_t>(units.layers) * units.bytes);
  }
  return bytes;
}

Status AmdGpuContext::WriteContent(int32_t cache, uint32_t unit, absl::string_view bytes) {
  RETURN_IF_ERROR(NothingInFlight("content of a page or slot"));
  Gpus& gpus = model_->gpus();
  std::lock_guard<std::mutex> lock(gpus.mutex());
  RETURN_IF_ERROR(gpus.Settle(gpus.Health()));
  const Units first = UnitsOf(cache, 0);
  const uint64_t size = static_cast<uint64_t>(first.layers) * first.bytes;
  const uint64_t wanted = size * static_cast<uint64_t>(program_.ranks);
  if (bytes.size() != wanted) {
    return Error(Code::kInvalidArgument, "content of cache ", cache, ": ", bytes.size(),
                 " bytes of a page or slot are not ", wanted);
  }
  for (int32_t rank = 0; rank < program_.ranks; ++rank) {
    ASSIGN_OR_RETURN(gpu::Buffer staging, UnitStaging(cache, rank, unit));
    std::memcpy(staging.host(), bytes.data() + static_cast<uint64_t>(rank) * size, size);
    RETURN_IF_ERROR(
        gpus.Settle(MoveUnit(rank, UnitsOf(cache, rank), unit, staging.va(), /*out=*/false)));
  }
  return OkStatus();
}

StatusOr<backend::KvToken> AmdGpuContext::ReadKv(int32_t cache, int32_t kv_layer,
                                                 uint32_t page, uint32_t slot) const {
  const PoolShape pool = IsPaged(cache) ? shape_.pools[static_cast<size_t>(cache)] : PoolShape();
  if (kv_layer < 0 || kv_layer >= pool.layers || page >= pool.pages || slot >= kernels::kPageTokens) {
    return Error(Code::kInternal, "K and V of cache ", cache, ", layer ", kv_layer, ", page ", page,
                 ", slot ", slot, " in a pool of ", pool.layers, " layers and ", pool.pages,
                 " pages");
  }
  Gpus& gpus = model_->gpus();
  std::lock_guard<std::mutex> lock(gpus.mutex());
  RETURN_IF_ERROR(gpus.Settle(gpus.Health()));
  const auto& paged = std::get<backend::PagedCache>(program_.caches[static_cast<size_t>(cache)]);
  const backend::LatentOp* const latent = LatentOf(program_, cache);
  const backend::KvType type = TypeOf(paged, shape_.kv);
  const uint64_t page_index = static_cast<uint64_t>(kv_layer) * pool.pages + page;
  backend::KvToken out;
  for (int32_t rank = 0; rank < program_.ranks; ++rank) {
    gpu::BufferOptions options;
    options.place = gpu::Place::kSystem;
    options.label = "KV read back";
    ASSIGN_OR_RETURN(gpu::Buffer staging,
                     gpu::Buffer::Allocate(*gpus.at(rank).device, pool.page_bytes, options));
    const uint64_t from = UnitsOf(cache, rank).at + page_index * pool.page_bytes;
    RETURN_IF_ERROR(gpus.Settle(gpus.CopyAndWait(rank, staging.va(), from, pool.page_bytes)));
    if (latent != nullptr) AddToken(LatentPage(type, *latent, staging.host()), slot, paged, &out);
    for (int32_t head = 0; latent == nullptr && head < paged.kv_heads; ++head) {
      const uint64_t own = static_cast<uint64_t>(head) * KvPageBytesOf(paged, type);
      AddToken(Page(type, paged, staging.host() + own), slot, paged, &out);
    }
  }
  return out;
}

}  // namespace mainarch::amdgpu
