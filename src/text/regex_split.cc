// SPDX-License-Identifier: MIT
#include "text/regex_split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace mainarch::text {
namespace {

pcre2_code* CodeOf(void* code) { return static_cast<pcre2_code*>(code); }

std::string PcreMessage(int code) {
  PCRE2_UCHAR buffer[128];
  if (pcre2_get_error_message(code, buffer, sizeof(buffer)) < 0) return absl::StrCat("code ", code);
  return reinterpret_cast<const char*>(buffer);
}

struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

StatusOr<std::unique_ptr<const RegexSplit>> RegexSplit::Create(absl::string_view pattern) {
  ASSIGN_OR_RETURN(const std::string translated, TranslatePattern(pattern));
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code == nullptr) {
    return Error(Code::kUnsupported, "split pattern does not compile: ", PcreMessage(error));
  }
  std::unique_ptr<RegexSplit> split(new RegexSplit);
  split->code_ = code;
  uint32_t matches_empty = 0;
  pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    return Error(Code::kUnsupported, "split pattern can match the empty string");
  }
  // Without a JIT (or memory for one) pcre2_match interprets, which gives the same matches.
  (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return std::unique_ptr<const RegexSplit>(std::move(split));
}

RegexSplit::~RegexSplit() { pcre2_code_free(CodeOf(code_)); }

Status RegexSplit::Cut(absl::string_view text, std::vector<size_t>* ends) const {
  std::unique_ptr<pcre2_match_data, FreeMatch> data(
      pcre2_match_data_create_from_pattern(CodeOf(code_), nullptr));
  if (data == nullptr) return Error(Code::kOutOfHostMemory, "no memory for a regex match");
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t done = 0;
  while (done < text.size()) {
    int found = pcre2_match(CodeOf(code_), subject, text.size(), done, PCRE2_NO_UTF_CHECK,
                            data.get(), nullptr);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {  // 32 KiB; the interpreter has 20 MB of heap
      found = pcre2_match(CodeOf(code_), subject, text.size(), done,
                          PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data.get(), nullptr);
    }
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      return Error(Code::kUnsupported, "split pattern fails at byte ", done, " of ", text.size(),
                   ": ", PcreMessage(found));
    }
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(data.get());
    if (span[1] <= span[0]) {
      return Error(Code::kUnsupported, "split pattern matches the empty string at byte ", span[0]);
    }
    if (span[0] > done) ends->push_back(span[0]);
    ends->push_back(span[1]);
    done = span[1];
  }
  if (done < text.size()) ends->push_back(text.size());
  return OkStatus();
}

}  // namespace mainarch::text
