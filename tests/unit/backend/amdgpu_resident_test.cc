// SPDX-License-Identifier: MIT
//
// The copy of the decoder's code that the resident kernel jumps into, and which kernels it has room for.
#include "backend/amdgpu/resident.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "absl/strings/match.h"
#include "backend/amdgpu/resident_lists.h"
#include "backend/amdgpu/threaded.h"
#include "support/test.h"

using namespace mainarch;
using namespace mainarch::amdgpu;

namespace {

uint32_t WordAt(absl::Span<const uint8_t> bytes, size_t at) {
  uint32_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof(word));
  return word;
}

constexpr uint32_t kEnd = 0xbf810000;  // s_endpgm
constexpr uint32_t kNop = 0xbf800000;

}  // namespace

TEST(threaded_code_differs_in_its_ends_alone) {
  constexpr uint64_t kBack = 0x7f1234567800;
  for (const isa::KernelImage& image : isa::KernelImages()) {
    if (image.name != "decoder") continue;
    const std::vector<uint8_t> threaded = ThreadedImage(image, kBack);
    CHECK_EQ(threaded.size(), image.bytes.size());
    std::vector<bool> may(threaded.size());
    for (const isa::KernelInfo& kernel : image.kernels) {
      // All of the decoder's come back, and there is room for them, but for those of more rows than resident steps have.
      CHECK_GT(kernel.end_at, 0u);
      const bool many = absl::StartsWith(kernel.name, "tall_") || absl::StartsWith(kernel.name, "attend_tall_") ||
                        absl::StartsWith(kernel.name, "experts_tall_") || absl::StartsWith(kernel.name, "attend_latent_tall_") ||
                        absl::StartsWith(kernel.name, "attend_prompt_");
      if (!many) CHECK_OK(ResidentKindFor(kernel));
      CHECK_EQ(WordAt(image.bytes, kernel.end_at), kEnd);
      const uint32_t branch = WordAt(threaded, kernel.end_at);
      CHECK_EQ(branch >> 16, 0xbf82u);  // s_branch
      CHECK_EQ(static_cast<int64_t>(kernel.end_at) + 4 + 4 * static_cast<int16_t>(branch & 0xffff),
               static_cast<int64_t>(kernel.way_back_at));
      const uint32_t way[] = {0xbe8000ff, static_cast<uint32_t>(kBack), 0xbe8100ff, static_cast<uint32_t>(kBack >> 32),
                              0xbe801d00};
      for (size_t i = 0; i < 5; ++i) {
        CHECK_EQ(WordAt(image.bytes, kernel.way_back_at + 4 * i), kNop);  // nobody runs these
        CHECK_EQ(WordAt(threaded, kernel.way_back_at + 4 * i), way[i]);
      }
      std::fill_n(may.begin() + kernel.end_at, 4, true);
      std::fill_n(may.begin() + kernel.way_back_at, 20, true);
    }
    size_t differ = 0;
    for (size_t i = 0; i < threaded.size(); ++i) differ += threaded[i] != image.bytes[i] && !may[i];
    CHECK_EQ(differ, 0u);
  }
}

namespace {

// 'R': all ranks must have begun it; 'b': no meeting before it.
ResidentList ListOf(const char* text, bool alone) {
  ResidentList list;
  for (; *text != 0; ++text) {
    kernels::ResidentOp op;
    op.beside = *text == 'b';
    list.ops.push_back(op);
    list.together.push_back(*text == 'R');
  }
  SetStops(alone, &list);
  return list;
}

std::vector<int> StopsOf(const char* text, bool alone) {
  std::vector<int> stops;
  for (const kernels::ResidentOp& op : ListOf(text, alone).ops) stops.push_back(op.stop_at);
  return stops;
}

}  // namespace

TEST(all_ranks_can_leave_where_they_stop) {
  // Alone: before the next op with a meeting, from the third op on.
  CHECK(StopsOf("......", true) == std::vector<int>({0, 0, 3, 4, 5, 0}));
  CHECK(StopsOf("..b.b.", true) == std::vector<int>({0, 0, 3, 5, 5, 0}));
  CHECK(StopsOf(".", true) == std::vector<int>({0}));
  CHECK(StopsOf("", true).empty());
  // Together: asked at 4, op 3 being over for certain only then; told before op 5, heard behind op 7, at 9, left before 10.
  CHECK(StopsOf("..R....R...R...", false) == std::vector<int>({0, 0, 0, 0, 10, 10, 10, 14, 14, 14, 14, 0, 0, 0, 0}));
  // Ops beside others are no meetings.
  CHECK(StopsOf(".R.b.R.b.b..", false) == std::vector<int>({0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0}));
  CHECK(StopsOf("........", false) == std::vector<int>(8, 0));
  // What must not be: that a rank may have left before it hears of it. For each op that looks, what is told is out at
  // the next meeting; of the ops that all must have begun the first from there on, and then three meetings more.
  const std::string text = "...R.b..RbR.....R..b.b..R......";
  const ResidentList list = ListOf(text.c_str(), false);
  for (size_t i = 0; i < text.size(); ++i) {
    if (list.ops[i].stop_at == 0) continue;
    const size_t stop = list.ops[i].stop_at;
    const size_t out = text.find_first_of(".R", i + 1), bound = text.find('R', out);
    CHECK_EQ(std::count_if(text.begin() + static_cast<int64_t>(bound) + 1, text.begin() + static_cast<int64_t>(stop),
                           [](char c) { return c != 'b'; }), 2);
    CHECK(text[stop] != 'b');
    CHECK_GT(std::count_if(text.begin() + static_cast<int64_t>(text.find('R')) + 1, text.begin() + static_cast<int64_t>(i),
                           [](char c) { return c != 'b'; }), 0);
  }
  std::vector<ResidentList> lists = {list}, other = {list};
  CHECK(Alike(lists, other));
  other[0].together[3] = false;
  CHECK(!Alike(lists, other));
  other = {ListOf("...R.b..RbR.....R..b....R......", false)};
  CHECK(!Alike(lists, other));
}

// Launches that the first of a compute unit's workgroups and its second begin one behind the other, that fill compute
// units first, that miss XCDs, that have XCDs of different sizes.
TEST(the_first_workgroups_are_each_on_a_compute_unit_of_its_own) {
  constexpr uint32_t kXccs = kernels::kResidentXccs;
  struct Workgroup {
    uint32_t xcc, unit, layer, before;
  };
  std::mt19937 rng(7);
  for (int round = 0; round < 200; ++round) {
    const auto up_to = [&](uint32_t most) { return static_cast<uint32_t>(rng()) % most; };
    const uint32_t xccs = 1 + up_to(kXccs), units = 1 + up_to(40), deep = 1 + up_to(10);
    std::vector<std::vector<uint32_t>> held(kXccs, std::vector<uint32_t>(units));
    std::vector<std::vector<uint32_t>> count(kernels::kResidentLayers, std::vector<uint32_t>(kXccs));
    std::vector<Workgroup> all;
    for (uint32_t i = 0; i < xccs * units * deep; ++i) {
      if (up_to(8) == 0) continue;
      Workgroup w = {up_to(xccs), up_to(units), 0, 0};
      if (round % 2 == 0) w.unit = i / xccs / deep;
      w.layer = held[w.xcc][w.unit];
      if (w.layer == kernels::kResidentLayers) continue;
      ++held[w.xcc][w.unit];
      ++count[w.layer][w.xcc];
      all.push_back(w);
    }
    for (Workgroup& w : all) {
      for (uint32_t u = 0; u < w.unit; ++u) w.before += held[w.xcc][u] > w.layer;
    }
    std::vector<const Workgroup*> by_number(all.size());
    for (const Workgroup& w : all) {
      size_t number = 0;
      for (uint32_t layer = 0; layer <= w.layer; ++layer) {
        for (uint32_t x = 0; x < kXccs; ++x) {
          number += layer < w.layer ? count[layer][x] : kernels::ResidentBefore(w.xcc, w.before, x, count[layer][x]);
        }
      }
      CHECK_LT(number, all.size());
      CHECK(by_number[number] == nullptr);
      by_number[number] = &w;
    }
    for (size_t n = 1; n < all.size(); ++n) {
      const Workgroup &a = *by_number[n - 1], &b = *by_number[n];
      CHECK_LE(a.layer, b.layer);
      if (a.layer != b.layer) continue;
      CHECK_LE(a.before, b.before);  // XCDs take turns
      if (a.before == b.before) CHECK_LT(a.xcc, b.xcc);
    }
  }
}

TEST(who_runs_beside_another_takes_workgroups_that_it_leaves_free) {
  const auto firsts = [](std::vector<std::pair<uint32_t, bool>> launches) {
    ResidentList list;
    for (const auto& [workers, beside] : launches) {
      kernels::ResidentOp op;
      op.workers = workers;
      op.beside = beside;
      list.ops.push_back(op);
    }
    DealApart(512, &list);
    std::vector<int> first;
    for (const kernels::ResidentOp& op : list.ops) first.push_back(op.first);
    return first;
  };
  CHECK(firsts({}).empty());
  CHECK(firsts({{64, false}, {256, true}, {64, true}}) == std::vector<int>({0, 64, 320}));
  CHECK(firsts({{64, true}, {256, false}, {320, true}, {512, true}}) == std::vector<int>({0, 0, 192, 0}));
  CHECK(firsts({{512, false}, {1, true}, {1, true}}) == std::vector<int>({0, 511, 511}));
}

TEST(a_kernel_goes_where_it_has_room_or_says_what_it_lacks) {
  const auto kernel = [](uint32_t vgprs, uint32_t agprs, uint32_t lds, uint32_t end = 64) {
    isa::KernelInfo info = {};
    info.name = "k";
    info.vgprs = vgprs;
    info.agprs = agprs;
    info.lds_bytes = lds;
    info.end_at = end;
    return info;
  };
  const auto kind = [&](const isa::KernelInfo& info) {
    const StatusOr<size_t> kind = ResidentKindFor(info);
    return kind.ok() ? *kind : 9;
  };
  CHECK_EQ(kind(kernel(256, 0, 24576)), 0u);
  CHECK_EQ(kind(kernel(256, 0, 24577)), 1u);
  CHECK_EQ(kind(kernel(344, 88, 45568)), 1u);
  CHECK_EQ(kind(kernel(20, 4, 16)), 1u);
  const struct {
    isa::KernelInfo info;
    const char* says;
  } kRefused[] = {{kernel(16, 0, 45569), "45569 bytes of LDS"},
                  {kernel(257, 0, 16), "257 registers"},
                  {kernel(345, 89, 16), "89 for accumulation"},
                  {kernel(16, 0, 16, 0), "no single end"}};
  for (const auto& refused : kRefused) {
    const Status status = ResidentKindFor(refused.info).status();
    CHECK_EQ(static_cast<int>(CodeOf(status)), static_cast<int>(Code::kUnsupported));
    CHECK(absl::StrContains(status.message(), refused.says));
  }
}
