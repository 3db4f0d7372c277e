// SPDX-License-Identifier: MIT
// Tokenizers made of lists of pieces, as GGUF has them.
#include "absl/strings/match.h"
#include "support/test.h"
#include "unit/text/small_tokenizer.h"

using namespace mainarch;
using namespace mainarch::text;

namespace {

#define MARK "\xE2\x96\x81"

TokenizerPieces SentencePiece() {
  TokenizerPieces pieces;
  pieces.model = PieceModel::kSentencePieceBpe;
  pieces.pieces = {"<unk>", "<s>", MARK "aa", "aa",     "aaa",    "a",
                   "b",     MARK,  "<0xC3>",  "<0xA9>", "<turn>", "ab"};
  pieces.scores = {0, 0, -1, -2, -1.5f, -9, -9, -9, 0, 0, 0, -3};
  using T = PieceType;
  pieces.types = {T::kUnknown, T::kControl, T::kNormal, T::kNormal, T::kNormal,      T::kNormal,
                  T::kNormal,  T::kNormal,  T::kByte,   T::kByte,   T::kUserDefined, T::kNormal};
  pieces.bos = 1;
  pieces.unk = 0;
  pieces.add_bos = true;
  return pieces;
}

std::string MessageOf(const TokenizerPieces& pieces) {
  const auto t = Tokenizer::FromPieces(pieces, "x.gguf");
  return t.ok() ? "made" : std::string(t.status().message());
}

}  // namespace

TEST(sentencepiece_joins_the_best_score_first_and_the_leftmost_of_equals) {
  const auto t = Tokenizer::FromPieces(SentencePiece(), "x.gguf");
  CHECK_OK(t);
  using Tokens = std::vector<uint32_t>;
  // "aaa" scores better than "aa", but is only there once two are joined; and the mark's better
  // still.
  CHECK(Ids(**t, "aaaa") == (Tokens{2, 3}));
  CHECK(Ids(**t, "baaaa") == (Tokens{7, 6, 4, 5}));
  CHECK(Ids(**t, "aa") == Tokens{2});
  CHECK(Ids(**t, "b ab") == (Tokens{7, 6, 7, 11}));
  CHECK(Ids(**t, "\xC3\xA9") == (Tokens{7, 8, 9}));         // a character in bytes
  CHECK(Ids(**t, "\xC3\xA8") == (Tokens{7, 0}));            // of which not all are there
  CHECK(Ids(**t, "b<turn>b") == (Tokens{7, 6, 10, 7, 6}));  // each text gets its space
  CHECK(Ids(**t, "b", {.add_special = true}) == (Tokens{1, 7, 6}));
  CHECK_EQ((*t)->Decode(Tokens{7, 6, 7, 11, 8, 9}, false), "b ab\xC3\xA9");
  CHECK_EQ((*t)->Decode(Tokens{8, 8, 9}, false), "\xEF\xBF\xBD\xC3\xA9");
  CHECK_EQ((*t)->TokenBytes(2), " aa");
  CHECK_EQ((*t)->TokenBytes(8), "\xC3");
  CHECK_EQ((*t)->TokenOfBytes(" aa").value_or(99), 2u);
  CHECK_EQ((*t)->TokenOfBytes("\xA9").value_or(99), 9u);
  CHECK_EQ((*t)->bos_token().value_or(99), 1u);
}

TEST(unigram_takes_the_best_sum_of_scores) {
  TokenizerPieces pieces = SentencePiece();
  pieces.model = PieceModel::kUnigram;
  const auto t = Tokenizer::FromPieces(pieces, "x.gguf");
  CHECK_OK(t);
  CHECK(Ids(**t, "aaab") == (std::vector<uint32_t>{2, 11}));
  CHECK_EQ((*t)->Decode(std::vector<uint32_t>{2, 11, 2}, false), "aaab aa");
}

TEST(many_pieces_take_linear_time) {
  TokenizerPieces pieces = SentencePiece();
  pieces.model = PieceModel::kUnigram;
  const auto t = Tokenizer::FromPieces(pieces, "x.gguf");
  CHECK_OK(t);
  // Half a million pieces: what moved the tokens found so far at each of them took minutes.
  CHECK_EQ(Ids(**t, std::string(500000, ' ')).size(), 500000u);
}

TEST(ranks_without_merges_give_the_tokens_that_merges_give) {
  TokenizerPieces pieces;
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    bytes.push_back(Spelling({&text, 1}));
  }
  for (const char* text : {"he", "ll", "hell", "hello", " w", "or", " wor"}) {
    bytes.push_back(Spelling(text));
  }
  pieces.pieces.assign(bytes.begin(), bytes.end());
  pieces.pre = "gpt-4o";
  const auto ranked = Tokenizer::FromPieces(pieces, "x.gguf");
  CHECK_OK(ranked);
  const std::string space_w = Spelling(" ") + " w", space_wor = Spelling(" w") + " or";
  pieces.merges = {"h e", "l l", "he ll", "hell o", space_w, "o r", space_wor};
  const auto merged = Tokenizer::FromPieces(pieces, "x.gguf");
  CHECK_OK(merged);
  for (const char* text : {"hello world", "hellohello", "ow or wor", ""}) {
    CHECK_EQ(Pieces(**ranked, text), Pieces(**merged, text));
  }
  CHECK_EQ(Pieces(**merged, "hello worhe"), "hello| wor|he");
}

TEST(what_contradicts_itself_is_refused_by_name) {
  const auto says = [](const TokenizerPieces& pieces, const char* text) {
    const std::string message = MessageOf(pieces);
    return absl::StrContains(message, text) ? std::string(text) : message;
  };
#define CHECK_PIECES(change, text)            \
  do {                                        \
    TokenizerPieces pieces = SentencePiece(); \
    change;                                   \
    CHECK_EQ(says(pieces, text), text);       \
  } while (0)
  CHECK_PIECES(pieces.pieces.clear(), "x.gguf: 0 pieces");
  CHECK_PIECES(pieces.scores.pop_back(), "11 scores of 12 pieces");
  CHECK_PIECES(pieces.types.pop_back(), "11 types of 12 pieces");
  CHECK_PIECES(pieces.bos = 12, "bos is 12, but there are 12 pieces");
  CHECK_PIECES((pieces.pieces[10] = "", pieces.unk = 10), "unk is 10, which is no piece");
  CHECK_PIECES(pieces.pieces[3] = "a", "token \"a\" stands twice");
  CHECK_PIECES(pieces.pieces[3] = "\xFF", "piece 3 is not UTF-8");
  CHECK_PIECES(pieces.pieces[3] = "", "token 3 is empty");
  CHECK_PIECES(pieces.scores[3] = __builtin_nanf(""), "a score is not a number");
  CHECK_PIECES(pieces.charsmap = "xx", "charsmap: has 2 bytes");
  CHECK_PIECES(pieces.model = PieceModel::kWordPiece, "WordPiece");
  CHECK_PIECES((pieces.model = PieceModel::kSpacedBpe, pieces.merges = {"ab"}), "not two pieces");
  CHECK_PIECES((pieces.model = PieceModel::kSpacedBpe, pieces.merges = {"a z"}), "one is no piece");
  TokenizerPieces pieces;
  pieces.pieces = {"a"};
  pieces.pre = "nobody";
  CHECK_EQ(says(pieces, "the pre-tokenizer \"nobody\" is not known"),
           "the pre-tokenizer \"nobody\" is not known");
}
