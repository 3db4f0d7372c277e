// SPDX-License-Identifier: MIT
#include "text/pre_tokenizer.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "text/normalizer.h"
#include "text/utf8.h"

namespace mainarch::text {
namespace {

struct Part {
  size_t begin, end;
  bool match;
};

// Matches and what lies between them, all of the text.
class Parts {
 public:
  explicit Parts(size_t size) : size_(size) {}

  void AddMatch(size_t begin, size_t end) {
    if (begin > done_) parts_.push_back({done_, begin, false});
    parts_.push_back({begin, end, true});
    done_ = end;
  }
  std::vector<Part> Take() {
    if (done_ < size_) parts_.push_back({done_, size_, false});
    return std::move(parts_);
  }

 private:
  size_t size_;
  size_t done_ = 0;
  std::vector<Part> parts_;
};

Status FindParts(const PreTokenizerStep& step, absl::string_view text, std::vector<Part>* parts) {
  Parts found(text.size());
  if (step.kind == PreTokenizerKind::kRegex) {
    std::vector<RegexMatch> matches;
    RETURN_IF_ERROR(step.regex->FindAll(text, &matches));
    for (const RegexMatch& match : matches) found.AddMatch(match.begin, match.end);
  } else if (step.kind == PreTokenizerKind::kText) {
    for (size_t at = 0; (at = text.find(step.text, at)) != text.npos; at += step.text.size()) {
      found.AddMatch(at, at + step.text.size());
    }
  } else {
    size_t length;
    for (size_t at = 0; at < text.size(); at += length) {
      if (step.set->Has(DecodeValid(text.data() + at, &length))) found.AddMatch(at, at + length);
    }
  }
  *parts = found.Take();
  return OkStatus();
}

// Joins parts as the behaviour says, and leaves out what it drops.
void Behave(SplitBehavior behavior, std::vector<Part>* parts) {
  std::vector<Part> out;
  bool before = false;  // whether the part before was a match
  const auto join = [&](const Part& part, bool joined) {
    if (joined && !out.empty()) {
      out.back().begin = std::min(out.back().begin, part.begin);
      out.back().end = std::max(out.back().end, part.end);
    } else {
      out.push_back(part);
    }
    before = part.match;
  };
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const Part& part : *parts) {
        if (!part.match) out.push_back(part);
      }
      break;
    case SplitBehavior::kIsolated:
      return;
    case SplitBehavior::kContiguous:
      for (const Part& part : *parts) join(part, part.match == before);
      break;
    case SplitBehavior::kMergedWithPrevious:
      for (const Part& part : *parts) join(part, part.match && !before);
      break;
    case SplitBehavior::kMergedWithNext:
      for (size_t i = parts->size(); i-- > 0;) join((*parts)[i], (*parts)[i].match && !before);
      std::reverse(out.begin(), out.end());
      break;
  }
  *parts = std::move(out);
}

// Cuts every piece anew.
Status Cut(const PreTokenizerStep& step, const CharClasses& classes, Pieces* pieces) {
  std::vector<std::pair<size_t, size_t>> spans;
  for (const auto& [begin, end] : pieces->spans) {
    const absl::string_view text = pieces->text.substr(begin, end - begin);
    if (step.kind == PreTokenizerKind::kScan) {
      for (size_t at = 0; at < text.size();) {
        const size_t length = step.scanner(text.substr(at), classes);
        spans.emplace_back(begin + at, begin + at + length);
        at += length;
      }
      continue;
    }
    std::vector<Part> parts;
    RETURN_IF_ERROR(FindParts(step, text, &parts));
    if (step.invert) {
      for (Part& part : parts) part.match = !part.match;
    }
    Behave(step.behavior, &parts);
    for (const Part& part : parts) {
      if (part.end > part.begin) spans.emplace_back(begin + part.begin, begin + part.end);
    }
  }
  pieces->spans = std::move(spans);
  return OkStatus();
}

// Writes every piece anew: `write` appends what one becomes, given whether it is at the text's
// front.
template <class Write>
void Rewrite(Pieces* pieces, const Write& write) {
  std::string text;
  for (auto& [begin, end] : pieces->spans) {
    const size_t at = text.size();
    write(pieces->text.substr(begin, end - begin), begin == 0, &text);
    begin = at;
    end = text.size();
  }
  pieces->storage = std::move(text);
  pieces->text = pieces->storage;
}

void ApplyMetaspace(const PreTokenizerStep& step, bool first, Pieces* pieces) {
  Rewrite(pieces, [&](absl::string_view piece, bool front, std::string* out) {
    const std::string changed = ReplaceAll(piece, " ", step.text);
    const bool wanted = step.scheme == PrependScheme::kAlways ||
                        (step.scheme == PrependScheme::kFirst && first && front);
    if (wanted && !absl::StartsWith(changed, step.text)) *out += step.text;
    *out += changed;
  });
}

}  // namespace

Status PreTokenizer::Run(absl::string_view utf8, bool first, const CharClasses& classes,
                         const ByteLevel& byte_level, Pieces* pieces) const {
  pieces->text = utf8;
  pieces->spans.assign(1, {0, utf8.size()});
  for (const PreTokenizerStep& step : steps_) {
    switch (step.kind) {
      case PreTokenizerKind::kScan:
      case PreTokenizerKind::kRegex:
      case PreTokenizerKind::kText:
      case PreTokenizerKind::kCharacter:
        RETURN_IF_ERROR(Cut(step, classes, pieces));
        break;
      case PreTokenizerKind::kByteLevel:
        Rewrite(pieces, [&](absl::string_view piece, bool, std::string* out) {
          for (const char c : piece)
            AppendUtf8(byte_level.PointOf(static_cast<unsigned char>(c)), out);
        });
        break;
      case PreTokenizerKind::kPrefix:
        Rewrite(pieces, [&](absl::string_view piece, bool, std::string* out) {
          if (!absl::StartsWith(piece, step.text)) *out += step.text;
          out->append(piece.data(), piece.size());
        });
        break;
      case PreTokenizerKind::kMetaspace:
        ApplyMetaspace(step, first, pieces);
        break;
    }
  }
  return OkStatus();
}

}  // namespace mainarch::text
