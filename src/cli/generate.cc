// SPDX-License-Identifier: MIT
//
// mainarch generate: text after a prompt, or a chat, streamed to stdout as it comes.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "cli/command.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/json_writer.h"
#include "cli/model_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/writer.h"

namespace mainarch::cli {
namespace {

// Tokens of a chat that goes on, unless --context says more: the KV cache is sized before it.
constexpr uint32_t kChatContext = 8192;

struct Settings {
  ModelOptions model;
  std::vector<std::string> words, stops;
  std::string file, system, thinking = "default";
  std::string messages, tools;  // files of JSON
  bool chat = false, greedy = false, special = false, raw = false, ignore_end = false;
  bool echo = false, statistics = true, json = false;
  std::optional<double> temperature, top_p, min_p, repetition, frequency, presence;
  std::optional<int64_t> top_k;
  int64_t max_tokens = 256, min_tokens = 0, context = 0, logprobs = 0, drafts = 0;
  std::string draft_source = "auto";
  uint64_t seed = 0;
  double load_seconds = 0;

  bool conversation() const { return chat && words.empty() && file.empty() && messages.empty() && !json; }
};

void Declare(Settings* s, Options* options) {
  options->Section("Prompt");
  s->model.DeclareModel(options, "checkpoint, with its tokenizer, or the name of one that was downloaded");
  options->Text("file", "PATH", &s->file, "read the prompt from this file");
  options->Flag("chat", &s->chat,
                "the prompt is a user's message; without one, a conversation, a line a message");
  options->Text("system", "TEXT", &s->system, "system message of a chat");
  options->Choice("thinking", {"default", "on", "off"}, &s->thinking,
                  "whether a chat model thinks first");
  options->Text("messages", "PATH", &s->messages,
                "a chat as JSON, in place of a prompt: an array of messages, or an object with them "
                "and all else that its template takes");
  options->Text("tools", "PATH", &s->tools, "tools of a chat, an array of JSON schemas");
  options->Flag("raw", &s->raw, "special tokens in the prompt are plain text");
  options->Section("Sampling (what is not given is as the checkpoint recommends)");
  options->Flag("greedy", &s->greedy, "always the likeliest token");
  options->Number("temperature", &s->temperature, 0, 1e6, "0 is greedy");
  options->Integer("top-k", &s->top_k, 0, UINT32_MAX, "only the k likeliest; 0: all");
  options->Number("top-p", &s->top_p, 0, 1, "only the likeliest that make up p; 0 or 1: all");
  options->Number("min-p", &s->min_p, 0, 1,
                  "only those at least p times as likely as the likeliest");
  options->Number("repetition-penalty", &s->repetition, 1e-3, 1e3, "of tokens seen; 1: none");
  options->Number("frequency-penalty", &s->frequency, -1e3, 1e3, "per time a token was produced");
  options->Number("presence-penalty", &s->presence, -1e3, 1e3, "once a token was produced");
  options->Unsigned("seed", &s->seed, "the same seed gives the same text");
  options->Section("Ending");
  options->Integer("max-tokens", &s->max_tokens, 0, UINT32_MAX, "0: no limit but the context");
  options->Integer("min-tokens", &s->min_tokens, 0, UINT32_MAX, "no end before so many");
  options->Texts("stop", "TEXT", &s->stops, "end before this text; may be given again");
  options->Flag("ignore-end", &s->ignore_end, "go on after the model's end tokens");
  options->Integer("context", &s->context, 0, UINT32_MAX,
                   "tokens of prompt and text together; 0: as many as needed");
  options->Section("Speed (no token comes out differently)");
  options->Integer("drafts", &s->drafts, 0, 8,
                   "guess so many tokens ahead, and run them with the next one; 0: none");
  options->Choice("draft-source", {"auto", "head", "ngram"}, &s->draft_source,
                  "who guesses: a layer of the model's own (head), what followed the same tokens "
                  "before (ngram), or the first where there is one (auto)");
  options->Section("Output");
  options->Flag("echo", &s->echo, "write the prompt first");
  options->Flag("special", &s->special, "write special tokens, too");
  options->Integer("logprobs", &s->logprobs, 0, 32,
                   "with --json: so many likeliest tokens of each step");
  options->Flag("statistics", &s->statistics, "no statistics on stderr");
  options->Flag("json", &s->json, "one JSON object at the end, no streaming");
  s->model.DeclareDevice(options);
  s->model.DeclareTiers(options);
  s->model.DeclareResident(options);
  options->Positional("PROMPT", &s->words, 0, 1);
}

StatusOr<mainarch_sequence_options> SequenceOptions(const Settings& s, const Writer& writer) {
  ASSIGN_OR_RETURN(mainarch_sequence_options out, writer.RecommendedOptions());
  const auto set = [](const std::optional<double>& given, float* field) {
    if (given.has_value()) *field = static_cast<float>(*given);
  };
  set(s.temperature, &out.temperature);
  set(s.top_p, &out.top_p);
  set(s.min_p, &out.min_p);
  set(s.repetition, &out.repetition_penalty);
  set(s.frequency, &out.frequency_penalty);
  set(s.presence, &out.presence_penalty);
  if (s.top_k.has_value()) out.top_k = static_cast<uint32_t>(*s.top_k);
  if (s.greedy) out.temperature = 0;
  if (s.ignore_end) out.flags |= MAINARCH_SEQUENCE_IGNORE_END;
  out.seed = s.seed;
  out.max_tokens = static_cast<uint32_t>(s.max_tokens);
  out.min_tokens = static_cast<uint32_t>(s.min_tokens);
  out.logprobs = static_cast<uint32_t>(s.logprobs);
  return out;
}

// The largest context that is of use, within what the model was made for.
uint32_t ContextFor(const Settings& s, const Writer& writer, size_t prompt_tokens) {
  if (s.context > 0) return static_cast<uint32_t>(s.context);
  const uint64_t limit = writer.info().max_tokens;
  if (s.conversation()) return static_cast<uint32_t>(std::min<uint64_t>(limit, kChatContext));
  if (s.max_tokens == 0) return static_cast<uint32_t>(limit);
  const uint64_t need = prompt_tokens + static_cast<uint64_t>(s.max_tokens);
  return static_cast<uint32_t>(std::min(limit, need));
}

int32_t DraftsOf(const Settings& s) {
  if (s.drafts == 0) return MAINARCH_DRAFTS_OFF;
  if (s.draft_source == "head") return MAINARCH_DRAFTS_HEAD;
  return s.draft_source == "ngram" ? MAINARCH_DRAFTS_NGRAM : MAINARCH_DRAFTS_AUTO;
}

Status Start(const Settings& s, Writer* writer, size_t prompt_tokens) {
  const uint32_t context = ContextFor(s, *writer, prompt_tokens);
  // Here rather than at append: this message knows the options.
  if (prompt_tokens >= context) {
    return Error(Code::kKvFull, "the prompt has ", prompt_tokens, " tokens, the context ", context,
                 " (the model's limit is ", writer->info().max_tokens, ")");
  }
  ASSIGN_OR_RETURN(const mainarch_sequence_options options, SequenceOptions(s, *writer));
  return writer->Start(options,
                       {context, s.model.kv_type(), s.model.kv_tiers(), s.model.fast, s.model.int8, s.model.mxfp8, s.model.resident_mode(), DraftsOf(s),
                        static_cast<uint32_t>(s.drafts)},
                       s.stops, s.special);
}

int32_t ThinkingOf(const std::string& thinking) {
  if (thinking == "on") return MAINARCH_THINKING_ON;
  return thinking == "off" ? MAINARCH_THINKING_OFF : MAINARCH_THINKING_DEFAULT;
}

void Stream(absl::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

double Rate(uint64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : NAN;
}

uint64_t Decoded(const Written& w) { return w.tokens.empty() ? 0 : w.tokens.size() - 1; }

// A step's own token counted, whatever of the drafts was right.
double TokensAStep(const Written& w) {
  return w.decode_steps == 0 ? NAN
                             : static_cast<double>(Decoded(w)) / static_cast<double>(w.decode_steps);
}

void PrintDrafts(const Written& w) {
  std::fprintf(stderr, "drafts: %llu of %llu right | %s tokens a step\n",
               static_cast<unsigned long long>(w.drafts_accepted),
               static_cast<unsigned long long>(w.drafts), Fixed(TokensAStep(w), 2).c_str());
}

void PrintResident(const Written& w) {
  std::fprintf(stderr,
               "resident kernel: %llu steps of %llu commands, launched %llu times | waited for the host %llu times | paused %llu times | "
               "%llu steps had no room\n",
               static_cast<unsigned long long>(w.resident_steps),
               static_cast<unsigned long long>(w.resident_commands),
               static_cast<unsigned long long>(w.resident_launches),
               static_cast<unsigned long long>(w.resident_late),
               static_cast<unsigned long long>(w.resident_pauses),
               static_cast<unsigned long long>(w.resident_no_room));
}

void PrintStatistics(const Settings& s, const Written& w) {
  if (!s.statistics) return;
  if (s.drafts > 0) PrintDrafts(w);
  if (s.model.resident_mode() != backend::ResidentMode::kOff) PrintResident(w);
  if (s.model.is_virtual()) {
    std::fprintf(stderr,
                 "prompt %llu tokens | %zu tokens | finish: %s%s | a virtual node: its times say "
                 "nothing about hardware\n",
                 static_cast<unsigned long long>(w.prompt_tokens), w.tokens.size(),
                 w.finish.c_str(), w.finish == "max-tokens" ? " (see --max-tokens)" : "");
    return;
  }
  std::fprintf(
      stderr,
      "load %s | prompt %llu tokens in %s (%s tok/s) | %zu tokens, %s tok/s | finish: %s%s\n",
      Seconds(s.load_seconds).c_str(), static_cast<unsigned long long>(w.prompt_tokens),
      Seconds(w.prompt_seconds).c_str(), Fixed(Rate(w.prompt_tokens, w.prompt_seconds), 0).c_str(),
      w.tokens.size(), Fixed(Rate(Decoded(w), w.decode_seconds), 1).c_str(), w.finish.c_str(),
      w.finish == "max-tokens" ? " (see --max-tokens)" : "");
}

void WriteLogprobs(const Writer& writer, const Written& w, JsonWriter* out) {
  out->Key("logprobs").BeginArray();
  for (const TokenLogprobs& token : w.logprobs) {
    out->BeginArray();
    for (const mainarch_logprob& entry : token.logprobs) {
      out->BeginObject().Field("token", entry.token).Field("logprob", entry.logprob);
      const auto text = TokenText(writer.tokenizer(), entry.token);
      if (text.ok()) out->Field("text", *text);
      out->EndObject();
    }
    out->EndArray();
  }
  out->EndArray();
}

void PrintJson(const Settings& s, const Writer& writer, const std::string& prompt,
               const Written& w) {
  JsonWriter out;
  out.BeginObject().Field("prompt", prompt).Field("prompt_tokens", w.prompt_tokens);
  out.Field("text", w.text).List("tokens", w.tokens).Field("finish", w.finish);
  out.Field("seed", s.seed).Field("virtual", s.model.is_virtual());
  if (!s.model.is_virtual()) {
    out.Field("load_seconds", s.load_seconds);
    out.Field("prompt_seconds", w.prompt_seconds).Field("decode_seconds", w.decode_seconds);
    out.Field("prompt_tokens_per_second", Rate(w.prompt_tokens, w.prompt_seconds));
    out.Field("decode_tokens_per_second", Rate(Decoded(w), w.decode_seconds));
  }
  if (s.drafts > 0) {
    out.Field("drafts", w.drafts).Field("drafts_accepted", w.drafts_accepted);
    out.Field("tokens_a_step", TokensAStep(w));
  }
  if (s.model.resident_mode() != backend::ResidentMode::kOff) {
    out.Field("resident_steps", w.resident_steps).Field("resident_launches", w.resident_launches);
    out.Field("resident_late", w.resident_late).Field("resident_commands", w.resident_commands);
    out.Field("resident_pauses", w.resident_pauses).Field("resident_no_room", w.resident_no_room);
  }
  if (s.logprobs > 0) WriteLogprobs(writer, w, &out);
  out.EndObject().Print();
}

std::string MessagesOf(const std::vector<ChatTurn>& turns) {
  JsonWriter out;
  out.BeginArray();
  for (const ChatTurn& turn : turns) {
    out.BeginObject().Field("role", turn.role).Field("content", turn.content).EndObject();
  }
  return out.EndArray().text();
}

// A chat with what only JSON can say. What the files hold is checked by who reads the whole.
StatusOr<std::string> JsonChat(const Settings& s, const Writer& writer, const std::string& messages) {
  std::string chat = absl::StrCat("{\"messages\": ", messages);
  if (!s.tools.empty()) {
    ASSIGN_OR_RETURN(const std::string tools, ReadInput(s.tools));
    absl::StrAppend(&chat, ", \"tools\": ", tools);
  }
  if (s.thinking != "default") {
    // Templates know one of the two.
    const char* value = s.thinking == "on" ? "true" : "false";
    absl::StrAppend(&chat, ", \"chat_template_kwargs\": {\"enable_thinking\": ", value,
                    ", \"thinking\": ", value, "}");
  }
  return RenderChatJson(writer.tokenizer(), absl::StrCat(chat, "}"));
}

StatusOr<std::string> ChatPrompt(const Settings& s, const Writer& writer,
                                 const std::vector<ChatTurn>& turns) {
  if (!s.tools.empty()) return JsonChat(s, writer, MessagesOf(turns));
  return RenderChat(writer.tokenizer(), turns, ThinkingOf(s.thinking));
}

// The prompt as the model gets it.
StatusOr<std::string> PromptText(const Settings& s, const Writer& writer, std::string given) {
  if (!s.messages.empty()) {
    const bool whole = absl::StartsWith(absl::StripLeadingAsciiWhitespace(given), "{");
    if (!whole) return JsonChat(s, writer, given);
    if (s.tools.empty() && s.thinking == "default") return RenderChatJson(writer.tokenizer(), given);
    return Error(Code::kInvalidArgument, s.messages,
                 " is an object: tools and thinking stand in it, not in --tools and --thinking");
  }
  if (!s.chat) return given;
  std::vector<ChatTurn> turns;
  if (!s.system.empty()) turns.push_back({"system", s.system});
  turns.push_back({"user", std::move(given)});
  return ChatPrompt(s, writer, turns);
}

StatusOr<int> Single(const Settings& s, Writer* writer, std::string given) {
  ASSIGN_OR_RETURN(const std::string prompt, PromptText(s, *writer, std::move(given)));
  // A chat's prompt has the tokens around it written out.
  const uint64_t flags = s.chat ? 0
                                : MAINARCH_ENCODE_ADD_SPECIAL |
                                      (s.raw ? MAINARCH_ENCODE_NO_SPECIAL : uint64_t{0});
  ASSIGN_OR_RETURN(const std::vector<uint32_t> tokens,
                   Encode(writer->tokenizer(), prompt, flags));
  RETURN_IF_ERROR(Start(s, writer, tokens.size()));
  if (s.echo && !s.json) Stream(prompt);
  ASSIGN_OR_RETURN(const Written written, writer->Write(tokens, [&](absl::string_view text) {
    if (!s.json) Stream(text);
  }));
  if (s.json) {
    PrintJson(s, *writer, prompt, written);
  } else {
    Stream("\n");
  }
  PrintStatistics(s, written);
  return written.finish == "interrupted" ? kExitInterrupted : kExitOk;
}

// A line of stdin a message, until it ends.
StatusOr<int> Converse(const Settings& s, Writer* writer) {
  RETURN_IF_ERROR(Start(s, writer, 0));
  const bool terminal = isatty(0) != 0;
  std::vector<ChatTurn> turns;
  if (!s.system.empty()) turns.push_back({"system", s.system});
  std::string line;
  while (true) {
    if (terminal) std::fputs("> ", stderr);
    if (!std::getline(std::cin, line) || Interrupted()) break;
    if (line.empty()) continue;
    turns.push_back({"user", line});
    ASSIGN_OR_RETURN(const std::string prompt,
                     ChatPrompt(s, *writer, turns));
    ASSIGN_OR_RETURN(const std::vector<uint32_t> tokens, Encode(writer->tokenizer(), prompt, 0));
    ASSIGN_OR_RETURN(const Written written, writer->Write(tokens, Stream));
    Stream("\n");
    PrintStatistics(s, written);
    turns.push_back({"assistant", written.text});
  }
  if (terminal) std::fputs("\n", stderr);
  return Interrupted() ? kExitInterrupted : kExitOk;
}

}  // namespace

int RunGenerate(Arguments arguments) {
  Settings s;
  Options options("generate", "--model DIR [options] [PROMPT]",
                  "Writes what a model writes after the prompt, as it comes. The prompt is the "
                  "word given, else "
                  "--file, else stdin.",
                  "mainarch generate --model tests/golden/trained \"In the beginning\"\n"
                  "mainarch generate --model DIR --chat --system \"Be brief.\" --thinking off "
                  "\"Why is the sky blue?\"\n"
                  "mainarch generate --model Qwen/Qwen3-0.6B --chat\n"
                  "mainarch generate --model DIR --messages chat.json --tools tools.json\n"
                  "mainarch generate --model DIR --greedy --max-tokens 32 --json < prompt.txt");
  Declare(&s, &options);
  if (const auto code = options.Parse(arguments)) return *code;
  if (s.model.model.empty()) return options.Usage("--model DIR is missing");
  if (!s.words.empty() && !s.file.empty()) return options.Usage("give PROMPT or --file, not both");
  if (!s.messages.empty()) {
    if (!s.words.empty() || !s.file.empty() || options.given("system")) {
      return options.Usage("--messages stands in place of PROMPT, --file and --system");
    }
    s.chat = true;
  }
  if (!s.chat && (options.given("system") || options.given("thinking") || options.given("tools"))) {
    return options.Usage("--system, --thinking and --tools are for --chat");
  }
  if (s.logprobs > 0 && !s.json) return options.Usage("--logprobs needs --json");
  if (s.max_tokens > 0 && s.min_tokens > s.max_tokens) {
    return options.Usage("--min-tokens is more than --max-tokens");
  }
  if (s.words.empty() && s.file.empty() && !s.chat && isatty(0) != 0) {
    return options.Usage("PROMPT is missing");
  }
  const Status resolved = s.model.Resolve();
  if (!resolved.ok()) return options.Usage(resolved.message());

  StatusOr<std::string> given = std::string();
  if (!s.conversation())
    given = s.words.empty() ? ReadInput(s.messages.empty() ? s.file : s.messages)
                            : StatusOr<std::string>(s.words[0]);
  if (!given.ok()) return Fail("generate", given.status());
  const int64_t start = NowNs();
  auto writer = Writer::Open(s.model, options.given("device") || s.model.tp > 0,
                             s.drafts > 0 && s.draft_source != "ngram");
  if (!writer.ok()) return Fail("generate", writer.status());
  s.load_seconds = static_cast<double>(NowNs() - start) * 1e-9;
  const StatusOr<int> code =
      s.conversation() ? Converse(s, writer->get()) : Single(s, writer->get(), *std::move(given));
  return code.ok() ? *code : Fail("generate", code.status());
}

}  // namespace mainarch::cli
