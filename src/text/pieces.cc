// SPDX-License-Identifier: MIT
#include "text/pieces.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "text/split_patterns.h"
#include "text/tokenizer_parts.h"
#include "text/unicode_property.h"
#include "text/utf8.h"

namespace mainarch::text {
namespace {

constexpr absl::string_view kMark = "\xE2\x96\x81";  // U+2581, SentencePiece's space
constexpr size_t kMaxPieceBytes = 2048;              // of one that is made of two others

std::string Shown(absl::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, 64)), "\"");
}

class Builder {
 public:
  Builder(const TokenizerPieces& pieces, const ByteLevel& byte_level, TokenizerParts* parts)
      : in_(pieces),
        byte_level_(pieces.model == PieceModel::kByteLevelBpe ? &byte_level : nullptr),
        out_(*parts) {}

  Status Run() {
    RETURN_IF_ERROR(CheckSizes());
    out_.model.byte_level = byte_level_ != nullptr;
    RETURN_IF_ERROR(AddPieces());
    RETURN_IF_ERROR(Around());
    switch (in_.model) {
      case PieceModel::kByteLevelBpe:
        return ByteLevelBpe();
      case PieceModel::kSpacedBpe:
        RETURN_IF_ERROR(AddMerges());
        return Spaced();
      case PieceModel::kSentencePieceBpe:
        RETURN_IF_ERROR(AddScoredMerges());
        return Spaced();
      case PieceModel::kUnigram:
        return Unigram();
      case PieceModel::kWordPiece:
        break;
    }
    return Error(Code::kUnsupported, "WordPiece vocabularies are read from tokenizer.json only");
  }

 private:
  PieceType TypeOf(size_t id) const {
    return in_.types.empty() ? PieceType::kNormal : in_.types[id];
  }

  Status CheckSizes() const {
    const size_t count = in_.pieces.size();
    if (count == 0 || count > kMaxTokens) {
      return Error(Code::kBadModel, count, " pieces, not 1 to ", kMaxTokens);
    }
    if (!in_.types.empty() && in_.types.size() != count) {
      return Error(Code::kBadModel, in_.types.size(), " types of ", count, " pieces");
    }
    const bool scored =
        in_.model == PieceModel::kSentencePieceBpe || in_.model == PieceModel::kUnigram;
    if ((scored || !in_.scores.empty()) && in_.scores.size() != count) {
      return Error(Code::kBadModel, in_.scores.size(), " scores of ", count, " pieces");
    }
    for (const float score : in_.scores) {
      if (score != score) return Error(Code::kBadModel, "a score is not a number");
    }
    for (const auto& [name, id] : {std::pair("bos", in_.bos), std::pair("eos", in_.eos),
                                   std::pair("unk", in_.unk), std::pair("pad", in_.pad)}) {
      if (id.has_value() && *id >= count) {
        return Error(Code::kBadModel, name, " is ", *id, ", but there are ", count, " pieces");
      }
    }
    return OkStatus();
  }

  // Control pieces, and those of users, are looked for in the text and are none of the model's.
  Status AddPieces() {
    out_.model.vocabulary.Reserve(in_.pieces.size());
    HashSet<std::string> added;
    for (size_t id = 0; id < in_.pieces.size(); ++id) {
      const absl::string_view piece = in_.pieces[id];
      if (!IsValidUtf8(piece)) return Error(Code::kBadModel, "piece ", id, " is not UTF-8");
      const PieceType type = TypeOf(id);
      if (type != PieceType::kControl && type != PieceType::kUserDefined) {
        if (type == PieceType::kUnused && byte_level_ != nullptr) continue;
        RETURN_IF_ERROR(out_.model.vocabulary.Add(piece, id, byte_level_));
        continue;
      }
      // A second one of the same text could never be found.
      if (piece.empty() || piece.size() > kMaxTokenBytes ||
          !added.insert(std::string(piece)).second) {
        continue;
      }
      AddedToken token;
      token.content = std::string(piece);
      token.id = static_cast<uint32_t>(id);
      token.special = type == PieceType::kControl;
      token.verbatim = true;
      out_.added.push_back(std::move(token));
    }
    RETURN_IF_ERROR(out_.model.vocabulary.Finish());
    return TakeUnknown();
  }

  Status TakeUnknown() {
    if (!in_.unk.has_value()) return OkStatus();
    out_.model.unk = *in_.unk;
    const bool added = std::any_of(out_.added.begin(), out_.added.end(),
                                   [&](const AddedToken& token) { return token.id == *in_.unk; });
    if (added || out_.model.vocabulary.Has(*in_.unk)) return OkStatus();
    return Error(Code::kBadModel, "unk is ", *in_.unk, ", which is no piece that could be used");
  }

  Status Around() {
    if (in_.add_bos && in_.bos.has_value()) out_.before.push_back(*in_.bos);
    if (in_.add_eos && in_.eos.has_value()) out_.after.push_back(*in_.eos);
    return OkStatus();
  }

  // "left right", by rank.
  Status AddMerges() {
    Merges& merges = out_.model.merges;
    const Vocabulary& vocabulary = out_.model.vocabulary;
    RETURN_IF_ERROR(merges.Begin(in_.merges.size()));
    for (size_t i = 0; i < in_.merges.size(); ++i) {
      const absl::string_view text = in_.merges[i];
      // A part may be spaces itself: the one between stands behind the first character.
      const size_t space = text.find(' ', 1);
      if (text.empty() || space == text.npos || space + 1 == text.size()) {
        return Error(Code::kBadModel, "merge ", i, " is ", Shown(text), ", not two pieces");
      }
      const absl::string_view left = text.substr(0, space), right = text.substr(space + 1);
      const uint32_t ids[] = {vocabulary.FindSpelling(left, byte_level_),
                              vocabulary.FindSpelling(right, byte_level_),
                              vocabulary.FindSpelling(absl::StrCat(left, right), byte_level_)};
      for (const uint32_t id : ids) {
        if (id == kNoToken) {
          return Error(Code::kBadModel, "merge ", i, ", ", Shown(text), ": one is no piece");
        }
      }
      const Status added = merges.Add(ids[0], ids[1], ids[2]);
      if (!added.ok()) return WithContext(added, absl::StrCat("merge ", i, ", ", Shown(text)));
    }
    return OkStatus();
  }

  // SentencePiece joins any two neighbours that are a piece together, the best score first. So
  // every way to cut a piece in two is a merge, all of the rank that the piece's score has.
  Status AddScoredMerges() {
    const Vocabulary& vocabulary = out_.model.vocabulary;
    std::vector<uint32_t> order(in_.pieces.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return in_.scores[a] > in_.scores[b]; });
    struct Pair {
      uint32_t left, right, both;
    };
    std::vector<Pair> pairs;
    for (const uint32_t id : order) {
      if (!vocabulary.Has(id) || TypeOf(id) != PieceType::kNormal) continue;
      const absl::string_view piece = vocabulary.Bytes(id);
      if (piece.size() > kMaxPieceBytes) {
        return Error(Code::kBadModel, "piece ", id, " has ", piece.size(),
                     " bytes, over the limit ", kMaxPieceBytes);
      }
      for (size_t cut = 1; cut < piece.size(); ++cut) {
        if ((piece[cut] & 0xC0) == 0x80) continue;
        const uint32_t left = vocabulary.Find(piece.substr(0, cut));
        if (left == kNoToken) continue;
        const uint32_t right = vocabulary.Find(piece.substr(cut));
        if (right != kNoToken) pairs.push_back({left, right, id});
      }
    }
    RETURN_IF_ERROR(out_.model.merges.Begin(pairs.size()));
    uint32_t before = kNoToken;
    for (const Pair& pair : pairs) {
      RETURN_IF_ERROR(out_.model.merges.Add(pair.left, pair.right, pair.both, pair.both == before));
      before = pair.both;
    }
    return OkStatus();
  }

  // Vocabularies by rank alone (tiktoken): a token is made of the two that the tokens before it
  // make of its bytes.
  Status AddRankedMerges() {
    Merges& merges = out_.model.merges;
    const Vocabulary& vocabulary = out_.model.vocabulary;
    RETURN_IF_ERROR(merges.Begin(vocabulary.size()));
    merges.TakeBytes(vocabulary);
    std::vector<uint32_t> ids;
    for (uint32_t id = 0; id < vocabulary.size(); ++id) {
      const absl::string_view bytes = vocabulary.Bytes(id);
      if (bytes.size() < 2 || bytes.size() > kMaxPieceBytes) continue;
      ids.clear();
      merges.Encode(bytes, &ids);
      if (ids.size() == 2 && ids[0] != kNoToken && ids[1] != kNoToken) {
        RETURN_IF_ERROR(merges.Add(ids[0], ids[1], id));
      }
    }
    return OkStatus();
  }

  Status ByteLevelBpe() {
    NamedSplit split;
    if (!FindNamedSplit(in_.pre, &split)) {
      return Error(Code::kUnsupported, "the pre-tokenizer ", Shown(in_.pre), " is not known");
    }
    for (const absl::string_view pattern : split.patterns) {
      PreTokenizerStep step;
      step.scanner = FindScanner(pattern);
      if (step.scanner == nullptr) {
        step.kind = PreTokenizerKind::kRegex;
        ASSIGN_OR_RETURN(step.regex, Regex::Create(pattern));
      }
      out_.pre_tokenizer.Add(std::move(step));
    }
    out_.model.ignore_merges = in_.ignore_merges || split.ignore_merges;
    DecoderStage stage;
    stage.kind = DecoderKind::kByteLevel;
    out_.decoder.Add(std::move(stage));
    return in_.merges.empty() ? AddRankedMerges() : AddMerges();
  }

  void AddReplace(absl::string_view pattern, absl::string_view content) {
    NormalizerStep step;
    step.kind = NormalizerKind::kReplace;
    step.pattern = std::string(pattern);
    step.content = std::string(content);
    out_.normalizer.Add(std::move(step));
  }

  // The table of the model, and what becomes of spaces.
  Status Normalize() {
    if (!in_.charsmap.empty()) {
      auto charsmap = Charsmap::Create(in_.charsmap);
      if (!charsmap.ok()) return WithContext(charsmap.status(), "charsmap");
      NormalizerStep step;
      step.kind = NormalizerKind::kCharsmap;
      step.charsmap = *std::move(charsmap);
      out_.normalizer.Add(std::move(step));
    }
    if (!in_.remove_extra_whitespaces) return OkStatus();
    NormalizerStep step;
    step.kind = NormalizerKind::kStrip;
    out_.normalizer.Add(step);
    step.kind = NormalizerKind::kOneSpace;
    out_.normalizer.Add(step);
    return OkStatus();
  }

  void AddStage(DecoderKind kind) {
    DecoderStage stage;
    stage.kind = kind;
    if (kind == DecoderKind::kReplace) stage.pattern = std::string(kMark);
    if (kind != DecoderKind::kFuse)
      stage.content = kind == DecoderKind::kMetaspace ? std::string(kMark) : " ";
    stage.start = 1;
    stage.drop_first = in_.add_space_prefix;
    out_.decoder.Add(std::move(stage));
  }

  // Llama 2, Mistral, Gemma: a mark for every space, and bytes for what has no piece.
  Status Spaced() {
    RETURN_IF_ERROR(Normalize());
    if (in_.add_space_prefix) {
      NormalizerStep step;
      step.kind = NormalizerKind::kPrepend;
      step.content = std::string(kMark);
      out_.normalizer.Add(std::move(step));
    }
    AddReplace(" ", kMark);
    out_.model.byte_fallback = true;
    out_.model.fuse_unk = true;
    out_.model.ignore_merges = in_.ignore_merges;
    AddStage(DecoderKind::kReplace);
    AddStage(DecoderKind::kByteFallback);
    AddStage(DecoderKind::kFuse);
    if (in_.add_space_prefix) AddStage(DecoderKind::kStrip);
    return OkStatus();
  }

  Status Unigram() {
    RETURN_IF_ERROR(Normalize());
    PreTokenizerStep step;
    step.kind = PreTokenizerKind::kMetaspace;
    step.text = std::string(kMark);
    step.scheme = in_.add_space_prefix ? PrependScheme::kAlways : PrependScheme::kNever;
    out_.pre_tokenizer.Add(step);
    step.kind = PreTokenizerKind::kText;
    step.behavior = SplitBehavior::kMergedWithNext;
    out_.pre_tokenizer.Add(std::move(step));
    out_.model.kind = ModelKind::kUnigram;
    out_.model.scores.assign(in_.scores.begin(), in_.scores.end());
    out_.model.byte_fallback = std::any_of(in_.types.begin(), in_.types.end(),
                                           [](PieceType t) { return t == PieceType::kByte; });
    AddStage(DecoderKind::kMetaspace);
    return OkStatus();
  }

  const TokenizerPieces& in_;
  const ByteLevel* byte_level_;  // null: pieces are spelled as they are
  TokenizerParts& out_;
};

}  // namespace

Status ReadPieces(const TokenizerPieces& pieces, const ByteLevel& byte_level,
                  TokenizerParts* parts) {
  return Builder(pieces, byte_level, parts).Run();
}

}  // namespace mainarch::text
