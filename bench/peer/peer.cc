// SPDX-License-Identifier: MIT
//
// llama.cpp or ik_llama.cpp (-DIK) by their own interfaces: what bench/peers sets beside this library. Prints one JSON
// object, {case: tokens a second}, medians. Prompts are random tokens in batches of 2048, of which the last gives logits;
// sequences decode random tokens. A context is cells of the cache that count as filled (with zeros that were written):
// computing 32,000 tokens would take a quarter of an hour, and attention takes as long over zeros. That needs what both
// keep private, hence -fno-access-control.
//   peer MODEL THREADS FLASH EXTRA PROMPTS DEPTHS SEQUENCES    lists: 512,2048 and 0,8192; "-": none
// FLASH: 1 attention by their fused kernel; EXTRA: 1 weights in forms of their own (both repack them).
#include "llama.h"

#ifdef IK
#include <random>

#include "llama-context.h"
#else
#include "llama-kv-cache.h"
#endif

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr int kBatch = 2048;

std::vector<int> List(const char* text) {
  std::vector<int> all;
  for (const char* p = text; *p != 0 && *p != '-'; p += strcspn(p, ","), p += *p == ',') all.push_back(atoi(p));
  return all;
}

// Where a peer's interface differs from the other's.
#ifdef IK
llama_model* Load(const char* path, bool extra) {
  llama_model_params params = llama_model_default_params();
  params.repack_tensors = extra;
  return llama_model_load_from_file(path, params);
}
llama_context* Context(llama_model* model, llama_context_params params, bool flash) {
  params.flash_attn = flash;
  return llama_init_from_model(model, params);
}
int Vocabulary(const llama_model* model) { return llama_n_vocab(model); }
void Clear(llama_context* context) { llama_kv_cache_clear(context); }
void Fill(llama_context* context, int cells) {
  auto& kv = context->kv_self;
  for (int i = 0; i < cells; ++i) {
    kv.cells[i].pos = i;
    kv.cells[i].seq_id.insert(0);
  }
  kv.used = kv.head = cells;
}
#else
llama_model* Load(const char* path, bool extra) {
  llama_model_params params = llama_model_default_params();
  params.use_extra_bufts = extra;
  return llama_model_load_from_file(path, params);
}
llama_context* Context(llama_model* model, llama_context_params params, bool flash) {
  params.flash_attn_type = flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.kv_unified = true;
  return llama_init_from_model(model, params);
}
int Vocabulary(const llama_model* model) { return llama_vocab_n_tokens(llama_model_get_vocab(model)); }
void Clear(llama_context* context) { llama_memory_clear(llama_get_memory(context), false); }
void Fill(llama_context* context, int cells) {
  auto* kv = dynamic_cast<llama_kv_cache*>(llama_get_memory(context));
  if (kv == nullptr) exit(1);
  for (int i = 0; i < cells; ++i) {
    kv->v_cells[0].pos_set(i, i);
    kv->v_cells[0].seq_add(i, 0);
  }
  kv->v_heads[0] = cells;
}
#endif

class Peer {
 public:
  Peer(const char* path, int threads, bool flash, bool extra) : threads_(threads), flash_(flash), model_(Load(path, extra)) {
    if (model_ == nullptr) exit(1);
  }

  double Prompt(int tokens) {
    llama_context* context = Make(tokens, 1);
    llama_batch batch = llama_batch_init(kBatch, 0, 1);
    double rate = 0;
    for (int run = 0; run < 2; ++run) {  // the first of 32 tokens: threads start, weights come into memory
      Clear(context);
      const int count = run == 0 ? 32 : tokens;
      const auto begin = std::chrono::steady_clock::now();
      for (int at = 0; at < count; at += kBatch) {
        batch.n_tokens = 0;
        for (int i = at; i < std::min(count, at + kBatch); ++i) Put(&batch, i, 0, i == count - 1);
        Decode(context, batch);
      }
      rate = count / Since(begin);
    }
    llama_batch_free(batch);
    llama_free(context);
    return rate;
  }

  // Of all sequences.
  double Steps(int depth, int sequences) {
    const int steps = depth > 0 ? 2 : 16, runs = depth > 0 ? 1 : 3;  // behind a context a step takes a second
    llama_context* context = Make(depth + (steps * runs + 1) * sequences, sequences);
    llama_batch batch = llama_batch_init(sequences, 0, 1);
    if (depth > 0) Fill(context, depth);
    std::vector<double> rates;
    int at = depth;
    const auto step = [&] {
      batch.n_tokens = 0;
      for (int i = 0; i < sequences; ++i) Put(&batch, at, i, true);
      ++at;
      Decode(context, batch);
    };
    step();
    for (int run = 0; run < runs; ++run) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < steps; ++i) step();
      rates.push_back(steps * sequences / Since(begin));
    }
    llama_batch_free(batch);
    llama_free(context);
    std::sort(rates.begin(), rates.end());
    return rates[rates.size() / 2];
  }

 private:
  llama_context* Make(int cells, int sequences) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>((cells + 255) / 256 * 256);
    params.n_batch = kBatch;
    params.n_ubatch = 512;
    params.n_seq_max = static_cast<uint32_t>(sequences);
    params.n_threads = params.n_threads_batch = threads_;
    llama_context* context = Context(model_, params, flash_);
    if (context == nullptr) exit(1);
    return context;
  }
  void Put(llama_batch* batch, int position, int sequence, bool logits) {
    const int i = batch->n_tokens++;
    batch->token[i] = rand() % Vocabulary(model_);
    batch->pos[i] = position;
    batch->n_seq_id[i] = 1;
    batch->seq_id[i][0] = sequence;
    batch->logits[i] = logits;
  }
  void Decode(llama_context* context, const llama_batch& batch) {
    if (llama_decode(context, batch) != 0) exit(1);
    llama_synchronize(context);
  }
  static double Since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  const int threads_;
  const bool flash_;
  llama_model* const model_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) return fprintf(stderr, "usage: peer MODEL THREADS FLASH EXTRA PROMPTS DEPTHS SEQUENCES\n"), 2;
  llama_log_set([](ggml_log_level level, const char* text, void*) { if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr); }, nullptr);
  llama_backend_init();
  Peer peer(argv[1], atoi(argv[2]), atoi(argv[3]) != 0, atoi(argv[4]) != 0);
  std::string out;
  const auto say = [&](const std::string& name, double rate) {
    out += (out.empty() ? "{\"" : ", \"") + name + "\": " + std::to_string(rate);
  };
  for (int tokens : List(argv[5])) say("prompt of " + std::to_string(tokens), peer.Prompt(tokens));
  for (int depth : List(argv[6])) say("decode at " + std::to_string(depth), peer.Steps(depth, 1));
  for (int sequences : List(argv[7])) say(std::to_string(sequences) + " sequences at 0", peer.Steps(0, sequences));
  puts((out + "}").c_str());
  return 0;
}
