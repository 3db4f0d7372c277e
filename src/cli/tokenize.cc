// SPDX-License-Identifier: MIT
//
// mainarch tokenize: text to tokens and back, with a checkpoint's tokenizer and nothing else of it.
#include <cstdio>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/decimal.h"
#include "cli/command.h"
#include "cli/input.h"
#include "cli/json_writer.h"
#include "cli/options.h"
#include "cli/output.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace mainarch::cli {
namespace {

struct Settings {
  std::string model, file;
  std::vector<std::string> words;
  bool decode = false, ids_only = false, special = true, added = true, skip_special = false;
  bool around = false;
  bool json = false;
};

// What a token stands for, printable: quotes around, escapes for what is not text.
std::string Piece(absl::string_view bytes) {
  return absl::StrCat(
      "\"", text::IsValidUtf8(bytes) ? absl::Utf8SafeCEscape(bytes) : absl::CHexEscape(bytes),
      "\"");
}

StatusOr<std::vector<uint32_t>> ParseIds(const std::string& text) {
  std::vector<uint32_t> ids;
  for (absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(" ,\t\r\n[]"), absl::SkipEmpty())) {
    const std::optional<uint64_t> id = ParseDecimal(word);
    if (!id.has_value() || *id > UINT32_MAX) {
      return Error(Code::kInvalidArgument, "\"", absl::CHexEscape(word.substr(0, 40)),
                   "\" is no token id; give numbers separated by spaces or commas");
    }
    ids.push_back(static_cast<uint32_t>(*id));
  }
  return ids;
}

int Decode(const text::Tokenizer& tokenizer, const Settings& settings, const std::string& input) {
  auto ids = ParseIds(input);
  if (!ids.ok()) return Fail("tokenize", ids.status());
  for (const uint32_t id : *ids) {
    if (id < tokenizer.vocab_size()) continue;
    return Fail("tokenize",
                Error(Code::kInvalidArgument, "token ", id, " is outside the tokenizer's ",
                      tokenizer.vocab_size(), " tokens"));
  }
  const std::string text = tokenizer.Decode(*ids, settings.skip_special);
  if (settings.json) {
    JsonWriter out;
    out.BeginObject().Field("tokens", ids->size()).Field("text", text).EndObject().Print();
  } else {
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (text.empty() || text.back() != '\n') std::fputc('\n', stdout);
  }
  return kExitOk;
}

void PrintJson(const text::Tokenizer& tokenizer, const std::vector<uint32_t>& ids, size_t bytes) {
  JsonWriter out;
  out.BeginObject().Field("bytes", bytes).Field("tokens", ids.size()).List("ids", ids);
  out.Key("pieces").BeginArray();
  for (const uint32_t id : ids) out.Value(tokenizer.TokenBytes(id));
  out.EndArray().EndObject().Print();
}

int Encode(const text::Tokenizer& tokenizer, const Settings& settings, const std::string& input) {
  text::EncodeOptions options;
  options.parse_special = settings.special;
  options.parse_added = settings.added;
  options.add_special = settings.around;
  std::vector<uint32_t> ids;
  const Status status = tokenizer.Encode(input, options, &ids);
  if (!status.ok()) return Fail("tokenize", status);
  if (settings.json) {
    PrintJson(tokenizer, ids, input.size());
  } else if (settings.ids_only) {
    for (size_t i = 0; i < ids.size(); ++i) std::printf("%s%u", i == 0 ? "" : " ", ids[i]);
    std::printf("\n");
  } else {
    Table table({"id", "<piece", "<"});
    for (const uint32_t id : ids) {
      table.Row({absl::StrCat(id), Piece(tokenizer.TokenBytes(id)),
                 tokenizer.IsSpecial(id) ? "special"
                 : tokenizer.IsAdded(id) ? "added"
                                         : ""});
    }
    table.Print();
    std::fprintf(
        stderr, "%zu tokens, %zu bytes, %s bytes a token\n", ids.size(), input.size(),
        Fixed(static_cast<double>(input.size()) / static_cast<double>(ids.size()), 2).c_str());
  }
  return kExitOk;
}

}  // namespace

int RunTokenize(Arguments arguments) {
  Settings s;
  Options options(
      "tokenize", "--model DIR [options] [text | ids ..]",
      "Turns text into tokens, or with --decode tokens into text. The text is the word given, else "
      "--file, else stdin. Only tokenizer.json (and tokenizer_config.json) of DIR are read.",
      "mainarch tokenize --model tests/golden/trained \"In the beginning\"\n"
      "mainarch tokenize --model tests/golden/trained --ids < README.md\n"
      "mainarch tokenize --model tests/golden/trained --decode 362 262 1105");
  options.Text("model", "DIR", &s.model, "directory with tokenizer.json, a GGUF file, or the name of a checkpoint that was downloaded");
  options.Text("file", "PATH", &s.file, "read the text, or the ids, from this file");
  options.Flag("decode", &s.decode, "ids to text");
  options.Flag("ids", &s.ids_only, "print ids alone, on one line");
  options.Flag("special", &s.special, "special tokens in the text are plain text");
  options.Flag("added", &s.added, "no added token is looked for in the text at all");
  options.Flag("around", &s.around, "with the tokens that belong around a text (BOS, perhaps EOS)");
  options.Flag("skip-special", &s.skip_special, "with --decode: special tokens are no text");
  options.Flag("json", &s.json, "one JSON object");
  options.Positional("text", &s.words, 0, SIZE_MAX);
  if (const auto code = options.Parse(arguments)) return *code;
  if (s.model.empty()) return options.Usage("--model DIR is missing");
  if (!s.decode && s.words.size() > 1) {
    return options.Usage("the text is more than one word: put quotes around it");
  }
  if (!s.words.empty() && !s.file.empty()) return options.Usage("give text or --file, not both");
  auto tokenizer = LoadTokenizer(s.model);
  if (!tokenizer.ok()) return Fail("tokenize", tokenizer.status());
  auto input =
      s.words.empty() ? ReadInput(s.file) : StatusOr<std::string>(absl::StrJoin(s.words, " "));
  if (!input.ok()) return Fail("tokenize", input.status());
  return s.decode ? Decode(**tokenizer, s, *input) : Encode(**tokenizer, s, *input);
}

}  // namespace mainarch::cli
