// SPDX-License-Identifier: MIT
//
// Any bytes as a chat template, and behind the first zero byte a chat as JSON for it: refused with
// a status, or a prompt that is valid UTF-8, the same each time, within the limits.
#include <algorithm>
#include <cstdlib>

#include "text/chat.h"
#include "text/chat_request.h"
#include "text/jinja/template.h"
#include "text/utf8.h"

using namespace mainarch;
using namespace mainarch::text;

namespace {

constexpr char kChat[] =
    R"({"messages": [{"role": "system", "content": "s\u00e9"}, {"role": "user", "content": [{"type":
    "text", "text": "a <b> 'c'"}]}, {"role": "assistant", "content": null, "reasoning": "r",
    "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, true, null, {}]}}}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": {"b": -1}}}}],
    "chat_template_kwargs": {"n": 3, "names": ["b", "A", "c"]}})";

void Require(bool condition) {
  if (!condition) std::abort();
}

// Low limits, so that many templates are tried in a second.
constexpr jinja::Limits kLimits = {.steps = 20000, .bytes = size_t{1} << 20, .depth = 100};

StatusOr<std::string> Render(const jinja::Template& parsed, absl::string_view json) {
  jinja::Heap heap(kLimits);
  jinja::Table variables;
  RETURN_IF_ERROR(jinja::WithinLimits([&]() -> Status {
    ChatRequest request;
    RETURN_IF_ERROR(ReadChatRequest(json, size_t{1} << 20, &heap, &request));
    variables = request.others;
    AddInputs(&heap, request.messages, request.tools, request.documents,
              request.add_generation_prompt, &variables);
    return OkStatus();
  }));
  return parsed.Render(&heap, variables);
}

void Run(const jinja::Template& parsed, absl::string_view json) {
  const auto first = Render(parsed, json), second = Render(parsed, json);
  Require(first.ok() == second.ok());
  if (first.ok()) {
    Require(IsValidUtf8(*first) && *first == *second && first->size() <= kLimits.bytes);
  } else {
    Require(!first.status().message().empty());
    Require(first.status().message() == second.status().message());
    Require(CodeOf(first.status()) != Code::kInternal);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t zero = std::min(all.find('\0'), all.size());
  const auto parsed = jinja::Template::Parse(all.substr(0, zero));
  if (!parsed.ok()) {
    Require(!parsed.status().message().empty());
    return 0;
  }
  Run(*parsed, kChat);
  if (zero < all.size()) Run(*parsed, all.substr(zero + 1));
  return 0;
}
