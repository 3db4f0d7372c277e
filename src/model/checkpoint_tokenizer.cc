// SPDX-License-Identifier: MIT
#include "model/checkpoint_tokenizer.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "file/gguf.h"
#include "file/json.h"
#include "text/pieces.h"

namespace mainarch::model {
namespace {

using text::PieceModel;
using text::PieceType;
using text::TokenizerPieces;

constexpr absl::string_view kTokens = "tokenizer.ggml.tokens";
constexpr absl::string_view kModel = "tokenizer.ggml.model";

constexpr struct {
  absl::string_view name;
  PieceModel model;
} kModels[] = {{"gpt2", PieceModel::kByteLevelBpe},
               {"llama", PieceModel::kSentencePieceBpe},
               {"t5", PieceModel::kUnigram},
               {"gemma4", PieceModel::kSpacedBpe},
               {"bert", PieceModel::kWordPiece}};

// Where a file does not say whether BOS comes first, it does with SentencePiece, and with these of
// tokenizer.ggml.pre (llama.cpp's src/llama-vocab.cpp).
constexpr absl::string_view kBeginWithBos[] = {"llama3",   "llama-v3",  "llama-bpe",
                                               "falcon3",  "falcon-h1", "pixtral",
                                               "midm-2.0", "lfm2",      "tekken"};

class PieceReader {
 public:
  explicit PieceReader(const file::GgufMetadata& metadata) : metadata_(metadata) {}

  StatusOr<TokenizerPieces> Run() {
    RETURN_IF_ERROR(Model());
    RETURN_IF_ERROR(Lists());
    RETURN_IF_ERROR(Id("bos", &out_.bos));
    RETURN_IF_ERROR(Id("eos", &out_.eos));
    RETURN_IF_ERROR(Id("unknown", &out_.unk));
    RETURN_IF_ERROR(Id("padding", &out_.pad));
    const bool spelled = out_.model == PieceModel::kByteLevelBpe;
    const bool bos_first = spelled ? std::find(std::begin(kBeginWithBos), std::end(kBeginWithBos),
                                               out_.pre) != std::end(kBeginWithBos)
                                   : out_.model == PieceModel::kSentencePieceBpe;
    RETURN_IF_ERROR(Flag("add_bos_token", bos_first, &out_.add_bos));
    RETURN_IF_ERROR(Flag("add_eos_token", out_.model == PieceModel::kUnigram, &out_.add_eos));
    RETURN_IF_ERROR(Flag("add_space_prefix", true, &out_.add_space_prefix));
    RETURN_IF_ERROR(Flag("remove_extra_whitespaces", false, &out_.remove_extra_whitespaces));
    RETURN_IF_ERROR(Charsmap());
    return std::move(out_);
  }

 private:
  static std::string Key(absl::string_view name) { return absl::StrCat("tokenizer.ggml.", name); }

  Status Model() {
    ASSIGN_OR_RETURN(const auto name, metadata_.String(kModel));
    if (!name) return metadata_.Bad(Code::kBadModel, kModel, "is missing");
    const auto* found = std::find_if(std::begin(kModels), std::end(kModels),
                                     [&](const auto& one) { return one.name == *name; });
    if (found == std::end(kModels)) {
      return metadata_.Bad(Code::kUnsupported, kModel, "is ", file::Quote(*name),
                           ", which is not supported; known are gpt2, llama, t5, gemma4 and bert");
    }
    out_.model = found->model;
    ASSIGN_OR_RETURN(const auto pre, metadata_.String(Key("pre")));
    if (pre) out_.pre = *pre;
    return OkStatus();
  }

  Status Lists() {
    ASSIGN_OR_RETURN(auto pieces, metadata_.Strings(kTokens));
    if (!pieces) return metadata_.Bad(Code::kNotFound, kTokens, "is missing");
    out_.pieces = std::move(*pieces);
    ASSIGN_OR_RETURN(auto scores, metadata_.Floats(Key("scores")));
    if (scores) out_.scores = std::move(*scores);
    ASSIGN_OR_RETURN(const auto types, metadata_.Integers(Key("token_type"), 1, 6));
    if (types) {
      for (const int64_t type : *types) out_.types.push_back(static_cast<PieceType>(type));
    }
    ASSIGN_OR_RETURN(auto merges, metadata_.Strings(Key("merges")));
    if (merges) out_.merges = std::move(*merges);
    return OkStatus();
  }

  Status Id(absl::string_view name, std::optional<uint32_t>* id) const {
    ASSIGN_OR_RETURN(const auto found, metadata_.Integer(Key(absl::StrCat(name, "_token_id")), 0,
                                                         std::numeric_limits<uint32_t>::max()));
    if (found) *id = static_cast<uint32_t>(*found);
    return OkStatus();
  }

  Status Flag(absl::string_view name, bool otherwise, bool* flag) const {
    ASSIGN_OR_RETURN(const auto found, metadata_.Boolean(Key(name)));
    *flag = found.value_or(otherwise);
    return OkStatus();
  }

  Status Charsmap() {
    const file::GgufValue* value = metadata_.Find(Key("precompiled_charsmap"));
    if (value == nullptr) return OkStatus();
    if (!value->array ||
        (value->type != file::GgufType::kI8 && value->type != file::GgufType::kU8)) {
      return metadata_.Bad(Code::kBadModel, Key("precompiled_charsmap"),
                           "is not an array of bytes");
    }
    out_.charsmap = {reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size()};
    return OkStatus();
  }

  const file::GgufMetadata& metadata_;
  TokenizerPieces out_;
};

}  // namespace

bool HasTokenizer(const file::Checkpoint& checkpoint) {
  if (checkpoint.gguf() != nullptr) return checkpoint.gguf()->Find(kTokens) != nullptr;
  return !checkpoint.tokenizer_json().empty();
}

StatusOr<std::shared_ptr<const text::Tokenizer>> ReadTokenizer(const file::Checkpoint& checkpoint) {
  if (!HasTokenizer(checkpoint)) {
    return Error(Code::kNotFound, checkpoint.directory(), ": the checkpoint has no tokenizer");
  }
  if (checkpoint.gguf() != nullptr) {
    ASSIGN_OR_RETURN(TokenizerPieces pieces, PieceReader(*checkpoint.gguf()).Run());
    return text::Tokenizer::FromPieces(std::move(pieces), checkpoint.directory());
  }
  return text::Tokenizer::Load(checkpoint.tokenizer_json(), checkpoint.tokenizer_config_json(),
                               absl::StrCat(checkpoint.directory(), "/tokenizer.json"));
}

}  // namespace mainarch::model
