// SPDX-License-Identifier: MIT
#include "text/split_patterns.h"

#include "text/scanner.h"

namespace mainarch::text {
namespace {

// Words of mixed case: o200k, and what follows it.
#define MAINARCH_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define MAINARCH_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define MAINARCH_SUFFIX R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
#define MAINARCH_LEAD R"([^\r\n\p{L}\p{N}]?)"
#define MAINARCH_TAIL R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
// Kimi's, without ideographs.
#define MAINARCH_UPPER_NOT_HAN R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]])"
#define MAINARCH_LOWER_NOT_HAN R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]])"

constexpr absl::string_view kLlama3[] = {kLlama3Pattern};
constexpr absl::string_view kQwen2[] = {kQwen3Pattern};
constexpr absl::string_view kQwen35[] = {kQwen35Pattern};
constexpr absl::string_view kGpt2[] = {kGpt2Pattern};
constexpr absl::string_view kDigitsGpt2[] = {R"(\p{N})", kGpt2Pattern};
constexpr absl::string_view kO200k[] = {MAINARCH_LEAD MAINARCH_UPPER
                                        "*" MAINARCH_LOWER "+" MAINARCH_SUFFIX
                                        "|" MAINARCH_LEAD MAINARCH_UPPER "+" MAINARCH_LOWER
                                        "*" MAINARCH_SUFFIX R"(|\p{N}{1,3})" MAINARCH_TAIL};
constexpr absl::string_view kTekken[] = {MAINARCH_LEAD MAINARCH_UPPER
                                         "*" MAINARCH_LOWER "+|" MAINARCH_LEAD MAINARCH_UPPER
                                         "+" MAINARCH_LOWER R"(*|\p{N})" MAINARCH_TAIL};
constexpr absl::string_view kTinyAya[] = {R"(\d{1,3}(?=(?:\d{3})*\b))", kO200k[0]};
constexpr absl::string_view kKimi[] = {
    R"([\p{Han}]+|)" MAINARCH_LEAD MAINARCH_UPPER_NOT_HAN "*" MAINARCH_LOWER_NOT_HAN
    "+" MAINARCH_SUFFIX "|" MAINARCH_LEAD MAINARCH_UPPER_NOT_HAN "+" MAINARCH_LOWER_NOT_HAN
    "*" MAINARCH_SUFFIX R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr absl::string_view kDeepSeekWords =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kDeepSeek3[] = {
    R"(\p{N}{1,3})", R"([\x{4E00}-\x{9FA5}\x{3040}-\x{30FF}]+)", kDeepSeekWords};
constexpr absl::string_view kOldIdeographs =
    R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";
constexpr absl::string_view kDeepSeekCoder[] = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
                                                kOldIdeographs, R"(\p{N})"};
constexpr absl::string_view kDeepSeekLlm[] = {
    R"([\r\n])",
    R"(\s?[)"
    R"(A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293})"
    R"(\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386})"
    R"(\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F})"
    R"(\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA})"
    R"(\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A})"
    R"(\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D})"
    R"(\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4})"
    R"(\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3})"
    R"(\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})"
    R"(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D})"
    R"(\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184})"
    R"(\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D})"
    R"(\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E})"
    R"(\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A})"
    R"(\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB})"
    R"(\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943})"
    R"(]+)",
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)",
    R"(\s+$)",
    kOldIdeographs,
    R"(\p{N}+)"};
constexpr absl::string_view kFalcon[] = {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2Pattern,
                                         "[0-9][0-9][0-9]"};
constexpr absl::string_view kDefault[] = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Pattern, R"(\p{N}+)",
                                          "[0-9][0-9][0-9]"};
#define MAINARCH_BLOOM R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)"
constexpr absl::string_view kBloom[] = {MAINARCH_BLOOM};
constexpr absl::string_view kViking[] = {MAINARCH_BLOOM, R"(\p{N})"};
constexpr absl::string_view kBailing[] = {
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|)"
    R"(\s*[\r\n]|\s+(?!\S)|\s+)"};
constexpr absl::string_view kSeedCoder[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr absl::string_view kExaoneMoe[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"};
constexpr absl::string_view kSuperBpe[] = {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"};

struct Entry {
  absl::string_view name;
  absl::Span<const absl::string_view> patterns;
  bool ignore_merges = false;
};

// The names of llama.cpp's src/llama-vocab.cpp.
constexpr Entry kEntries[] = {
    {"default", kDefault},
    {"llama3", kLlama3, true},
    {"llama-v3", kLlama3, true},
    {"llama-bpe", kLlama3, true},
    {"falcon3", kLlama3, true},
    {"falcon-h1", kLlama3, true},
    {"pixtral", kLlama3, true},
    {"midm-2.0", kLlama3, true},
    {"lfm2", kLlama3, true},
    {"dbrx", kLlama3},
    {"smaug-bpe", kLlama3},
    {"glm4", kLlama3},
    {"chatglm-bpe", kLlama3},
    {"qwen2", kQwen2},
    {"deepseek-r1-qwen", kQwen2},
    {"kormo", kQwen2},
    {"megrez", kQwen2},
    {"stablelm2", kQwen2},
    {"hunyuan", kQwen2},
    {"solar-open", kQwen2},
    {"grok-2", kQwen2},
    {"qwen35", kQwen35},
    {"gpt-2", kGpt2},
    {"phi-2", kGpt2},
    {"mpt", kGpt2},
    {"olmo", kGpt2},
    {"jais", kGpt2},
    {"exaone4", kGpt2},
    {"trillion", kGpt2},
    {"gigachat", kGpt2},
    {"a.x-4.0", kGpt2},
    {"mellum", kGpt2},
    {"modern-bert", kGpt2},
    {"granite-docling", kGpt2},
    {"jina-es", kGpt2},
    {"jina-de", kGpt2},
    {"jina-v2-es", kGpt2},
    {"jina-v2-de", kGpt2},
    {"starcoder", kDigitsGpt2},
    {"refact", kDigitsGpt2},
    {"command-r", kDigitsGpt2},
    {"smollm", kDigitsGpt2},
    {"codeshell", kDigitsGpt2},
    {"exaone", kDigitsGpt2},
    {"minerva-7b", kDigitsGpt2},
    {"mellum2", kDigitsGpt2},
    {"gpt-4o", kO200k},
    {"llama4", kO200k},
    {"kanana2", kO200k},
    {"minimax-m2", kO200k},
    {"tekken", kTekken, true},
    {"tiny_aya", kTinyAya},
    {"kimi-k2", kKimi},
    {"deepseek-v3", kDeepSeek3},
    {"hunyuan-dense", kDeepSeek3},
    {"joyai-llm", kDeepSeek3},
    {"deepseek-llm", kDeepSeekLlm},
    {"deepseek-coder", kDeepSeekCoder},
    {"falcon", kFalcon},
    {"bloom", kBloom},
    {"poro-chat", kBloom},
    {"gpt3-finnish", kBloom},
    {"viking", kViking},
    {"bailingmoe", kBailing},
    {"bailingmoe2", kBailing},
    {"llada-moe", kBailing},
    {"seed-coder", kSeedCoder},
    {"exaone-moe", kExaoneMoe},
    {"superbpe", kSuperBpe},
};

}  // namespace

bool FindNamedSplit(absl::string_view name, NamedSplit* out) {
  for (const Entry& entry : kEntries) {
    if (name != entry.name) continue;
    *out = {entry.patterns, entry.ignore_merges};
    return true;
  }
  return false;
}

}  // namespace mainarch::text
