// SPDX-License-Identifier: MIT
//
// Programs that are small, for tests of what becomes of them on GPUs with no device.
#ifndef MAINARCH_TESTS_UNIT_BACKEND_AMDGPU_PROGRAMS_H_
#define MAINARCH_TESTS_UNIT_BACKEND_AMDGPU_PROGRAMS_H_

#include <string>
#include <variant>
#include <vector>

#include "backend/program.h"

namespace mainarch::amdgpu {

using backend::Program;

inline Program Small() {
  Program p;
  p.hidden = 1160;
  p.vocab = 1001;
  p.ropes.push_back({64, std::vector<double>(32, 1.0), 1});
  p.caches.push_back(backend::PagedCache{"kv", 1, 2, 64, 64});
  p.max_position = 4096;
  p.buffers = {{"x", backend::BufferType::kF32, 1160, 1},
               {"moe.ids", backend::BufferType::kI32, 6, 1},
               {"moe.weights", backend::BufferType::kF32, 6, 1},
               {"act", backend::BufferType::kF32, 96, 6}};
  backend::AttentionOp attention = {};
  attention.heads = 8;
  attention.q_norm = attention.k_norm = 0;
  p.ops.push_back(attention);
  return p;
}

// Experts whose products have weights of these formats.
inline Program WithExperts(quant::Format up, quant::Format down) {
  Program p = Small();
  p.experts = 130;
  p.experts_per_token = 6;
  p.weights.resize(2);
  p.weights[0].label = "up";
  p.weights[1].label = "layers.0.down";
  p.weights[0].sources.resize(1);
  p.weights[1].sources.resize(1);
  p.weights[0].sources[0].format = up;
  p.weights[1].sources[0].format = down;
  for (backend::Weight& weight : p.weights) {
    weight.sources[0].rows = 16;
    weight.sources[0].cols = 256;
    weight.ranks = {{{0, 0, 16, 0, 256}}};
  }
  p.ops.push_back(backend::ExpertsGateUpOp{0, 1, 0, 3});
  p.ops.push_back(backend::ExpertsDownOp{3, 1, 2, 1, 0, true});
  return p;
}

inline bool Holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline backend::PagedCache& Paged(Program& p) { return std::get<backend::PagedCache>(p.caches[0]); }
inline backend::AttentionOp& Attention(Program& p) { return std::get<backend::AttentionOp>(p.ops[0]); }

// Latent attention's buffers, from queries to what the output's product takes.
enum : backend::BufferId { kLatentX, kLatentQ, kLatentKv, kLatentQkv, kLatentAttention, kLatentOut };
inline Program Latents() {
  Program p = Small();
  p.ropes[0] = {16, std::vector<double>(8, 1.0), 1};
  p.caches = {backend::PagedCache{"latents", 1, 1, 80, 64}};
  p.buffers.clear();
  for (const char* label : {"x", "q", "kv", "qkv", "attention", "out"}) {
    p.buffers.push_back({label, backend::BufferType::kF32, 1160, 1});
  }
  p.weights.resize(1);
  p.weights[0].groups = 8;
  p.weights[0].ranks = {std::vector<backend::WeightSlice>(8, {0, 0, 64, 0, 64})};
  p.weights[0].sources.resize(1);
  backend::LatentOp latent = {kLatentQ, kLatentKv, kLatentQkv, 0, 1e-6f, 0, 8, 32, 16, 64, true};
  backend::AttentionOp attention = {};
  attention.qkv = kLatentQkv;
  attention.out = kLatentAttention;
  attention.heads = 8;
  attention.rope = backend::kNone;
  p.ops = {latent, attention, backend::HeadsMatmulOp{kLatentAttention, 0, kLatentOut, 0, 64, 0, 32},
           backend::MatmulOp{kLatentOut, 0, kLatentX}};
  return p;
}

}  // namespace mainarch::amdgpu

#endif  // MAINARCH_TESTS_UNIT_BACKEND_AMDGPU_PROGRAMS_H_
