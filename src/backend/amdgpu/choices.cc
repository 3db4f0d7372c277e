// SPDX-License-Identifier: MIT
#include "backend/amdgpu/choices.h"

#include <cstring>

namespace mainarch::amdgpu {
namespace {

using backend::Choice;
using kernels::ChoiceCount;
using kernels::ChoiceEdit;
using kernels::ChoiceRow;

template <class T>
constexpr uint32_t kWords = sizeof(T) / 4;

// The block is never read here: it is memory that no cache keeps.
template <class T>
void Put(uint32_t* block, uint32_t* at, const T& value) {
  std::memcpy(block + *at, &value, sizeof(T));
  *at += kWords<T>;
}

uint64_t EditsOf(const Choice& choice) {
  return choice.banned[0].size() + choice.banned[1].size() + choice.bias.size();
}

void WriteLists(const Choice& choice, uint32_t* block, uint32_t* at, ChoiceRow* row) {
  row->edits_at = *at;
  row->edits = static_cast<uint32_t>(EditsOf(choice));
  for (const auto& banned : choice.banned) {
    for (const uint32_t token : banned) Put(block, at, ChoiceEdit{token, -__builtin_inff(), 1});
  }
  for (const backend::LogitBias& b : choice.bias) Put(block, at, ChoiceEdit{b.token, b.bias, 0});
  row->counts_at = *at;
  row->counts = static_cast<uint32_t>(choice.counted.size());
  for (const uint32_t token : choice.counted) {
    Put(block, at, ChoiceCount{token, choice.times[token] - 1});
  }
  for (const uint32_t word : choice.mask) Put(block, at, word);
}

ChoiceRow RowOf(const Choice& choice) {
  ChoiceRow row;
  row.flags = choice.read ? uint32_t{kernels::kChoiceRead} : 0;
  if (!choice.choose) {
    row.flags |= kernels::kChoiceRead;
    return row;
  }
  row.flags |= kernels::kChoiceToken;
  if (!choice.mask.empty()) row.flags |= kernels::kChoiceMask;
  row.repetition = choice.repetition;
  row.frequency = choice.frequency;
  row.presence = choice.presence;
  if (!(choice.temperature > 0)) return row;
  row.flags |= kernels::kChoiceSample;
  row.temperature = choice.temperature;
  row.min_p = choice.min_p;
  row.top_p = choice.top_p;
  row.top_k = choice.top_k;
  row.seed = choice.seed;
  row.position = choice.position;
  return row;
}

}  // namespace

ChoiceWork WriteChoices(const backend::Step& step, uint32_t at, uint32_t end, uint32_t* block,
                        absl::Span<RowOutcome> outcomes) {
  ChoiceWork work;
  work.end = at + static_cast<uint32_t>(step.logit_rows.size()) * kChoiceRowWords;
  for (size_t i = 0; i < step.logit_rows.size(); ++i) {
    Choice choice = step.choices.empty() ? Choice() : step.choices[i];
    const uint64_t words =
        EditsOf(choice) * kWords<ChoiceEdit> + choice.counted.size() * kWords<ChoiceCount> +
        choice.mask.size();
    if (choice.choose && words > end - work.end) choice.choose = false;
    ChoiceRow row = RowOf(choice);
    if (choice.choose) WriteLists(choice, block, &work.end, &row);
    work.races |= !kernels::ChoosesAtOnce(row.flags, row.top_k);
    outcomes[i] = {(row.flags & kernels::kChoiceRead) != 0, choice.choose};
    Put(block, &at, row);
  }
  return work;
}

}  // namespace mainarch::amdgpu
