// SPDX-License-Identifier: MIT
//
// One engine's state on the CPU, and the walk over a Program: each op is one or more phases of the
// team's job (phase.h), resolved when the context is made.
#ifndef MAINARCH_BACKEND_CPU_CONTEXT_H_
#define MAINARCH_BACKEND_CPU_CONTEXT_H_

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/phase.h"
#include "base/team.h"
#include "base/width.h"

namespace mainarch::cpu {

class CpuContext : public backend::ImmediateContext, private Team::Job {
 public:
  static StatusOr<std::unique_ptr<backend::Context>> Create(std::shared_ptr<const CpuModel> model,
                                                            const backend::ContextOptions& options);

  absl::Span<float> Logits(uint32_t i) override;
  Status CopyPage(int32_t cache, uint32_t from, uint32_t to) override;
  uint64_t memory_bytes() const override { return ws_.memory_bytes(); }
  absl::string_view resident_refusal() const override { return wants_resident_ ? kNoResident : ""; }
  StatusOr<backend::KvToken> ReadKv(int32_t cache, int32_t layer, uint32_t page,
                                    uint32_t slot) const override;
  std::string content_form() const override;
  StatusOr<std::string> ReadContent(int32_t cache, uint32_t unit) const override {
    return ws_.caches.Read(cache, unit);
  }
  Status WriteContent(int32_t cache, uint32_t unit, absl::string_view bytes) override {
    return ws_.caches.Write(cache, unit, bytes);
  }
  Status RunPrefix(const backend::Step& step, size_t end) override;
  std::vector<float> ReadBuffer(int32_t rank, backend::BufferId buffer,
                                uint32_t rows) const override;

 private:
  CpuContext(std::shared_ptr<const CpuModel> model, const backend::ContextOptions& options,
             const CpuContext* source);

  Status RunNow(const backend::Step& step) override;
  Status CheckStep(const backend::Step& step) const;

  uint32_t Open(uint32_t phase) override;
  void Run(uint32_t phase, uint32_t item, int worker) override;

  static constexpr absl::string_view kNoResident = "a resident kernel: the device is no GPU";

  const bool wants_resident_;
  Workspace ws_;
  PhaseList phases_;
  size_t op_end_ = 0;  // of the step in progress
  Width width_;        // for steps of few rows, which hardly do anything but read
  bool stopped_ = false;
};

}  // namespace mainarch::cpu

#endif  // MAINARCH_BACKEND_CPU_CONTEXT_H_
