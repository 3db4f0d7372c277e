// SPDX-License-Identifier: MIT
#include "text/chat.h"

#include "absl/strings/match.h"
#include "support/test.h"

using namespace mainarch;
using namespace mainarch::text;

namespace {

using Messages = std::vector<ChatMessage>;

// The ends of the released templates: what follows the messages.
constexpr char kQwen3[] =
    "{{- '<|im_start|>' }}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}";
constexpr char kInstruct[] =
    "{{- '<|im_start|>' }}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- endif %}";
constexpr char kAlways[] =
    "{{- '<|im_start|>' }}{%- if add_generation_prompt %}"
    "{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}";
constexpr char kQwen35[] =
    "{{- raise_exception('System message must be at the beginning.') }}{{ content|trim }}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}{%- else %}{{- '<think>\\n' }}{%- endif %}{%- endif %}";
constexpr char kQwen35Small[] =
    "{{- raise_exception('System message must be at the beginning.') }}{{ content|trim }}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is true %}{{- '<think>\\n' }}"
    "{%- else %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}";

// What follows the turn of the user, or the message of the error.
std::string Opening(const char* jinja, Thinking thinking) {
  const auto format = DetectChatFormat(jinja);
  if (!format.ok()) return std::string(format.status().message());
  const auto text = RenderChat(*format, Messages{{"user", "hi"}}, true, thinking);
  if (!text.ok()) return std::string(text.status().message());
  return text->substr(std::string("<|im_start|>user\nhi<|im_end|>\n").size());
}

}  // namespace

TEST(the_switch_does_what_each_template_does) {
  const std::string turn = "<|im_start|>assistant\n";
  const std::string open = turn + "<think>\n", empty = turn + "<think>\n\n</think>\n\n";
  CHECK_EQ(Opening(kQwen3, Thinking::kDefault), turn);
  CHECK_EQ(Opening(kQwen3, Thinking::kOn), turn);
  CHECK_EQ(Opening(kQwen3, Thinking::kOff), empty);
  CHECK_EQ(Opening(kQwen35, Thinking::kDefault), open);
  CHECK_EQ(Opening(kQwen35, Thinking::kOn), open);
  CHECK_EQ(Opening(kQwen35, Thinking::kOff), empty);
  CHECK_EQ(Opening(kQwen35Small, Thinking::kDefault), empty);
  CHECK_EQ(Opening(kQwen35Small, Thinking::kOn), open);
  CHECK_EQ(Opening(kQwen35Small, Thinking::kOff), empty);
  CHECK_EQ(Opening(kInstruct, Thinking::kDefault), turn);
  CHECK_EQ(Opening(kInstruct, Thinking::kOff), turn);
  CHECK_EQ(Opening(kAlways, Thinking::kDefault), open);
  CHECK_EQ(Opening(kAlways, Thinking::kOn), open);
}

TEST(a_switch_that_a_model_does_not_have_is_refused) {
  CHECK_EQ(Opening(kInstruct, Thinking::kOn),
           "this model does not think; leave the thinking switch at its default");
  CHECK_EQ(Opening(kAlways, Thinking::kOff),
           "this model always thinks; leave the thinking switch at its default");
}

TEST(templates_that_are_not_known_are_refused) {
  CHECK(absl::StrContains(Opening("", Thinking::kDefault), "no chat template"));
  CHECK(absl::StrContains(Opening("[INST] {{ x }}", Thinking::kDefault), "is not chatml"));
  CHECK(absl::StrContains(
      Opening("<|im_start|>system\\nYou are a helpful assistant.", Thinking::kDefault),
      "a system message of its own"));
}

TEST(earlier_assistant_turns_lose_their_thinking) {
  const auto format = DetectChatFormat(kQwen3);
  CHECK_OK(format);
  const std::vector<ChatMessage> messages = {{"system", "s"},
                                             {"user", "a"},
                                             {"assistant", "<think>\nwhy\n</think>\n\nb\n"},
                                             {"user", "c"}};
  const auto text = RenderChat(*format, messages, true, Thinking::kDefault);
  CHECK_OK(text);
  CHECK_EQ(*text,
           "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na<|im_end|>\n"
           "<|im_start|>assistant\nb\n<|im_end|>\n<|im_start|>user\nc<|im_end|>\n"
           "<|im_start|>assistant\n");
  // The answer to the last user message keeps its block; without one it gets an empty one.
  const auto kept =
      RenderChat(*format, absl::MakeSpan(messages).subspan(1, 2), false, Thinking::kDefault);
  CHECK_OK(kept);
  CHECK_EQ(*kept,
           "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\nwhy\n</think>\n\nb\n"
           "<|im_end|>\n");
  const auto plain =
      RenderChat(*format, Messages{{"user", "a"}, {"assistant", "b"}}, false, Thinking::kDefault);
  CHECK_OK(plain);
  CHECK(absl::EndsWith(*plain, "assistant\n<think>\n\n</think>\n\nb<|im_end|>\n"));
}

TEST(a_template_without_thinking_keeps_turns_as_they_are) {
  const auto format = DetectChatFormat(kInstruct);
  CHECK_OK(format);
  const auto text = RenderChat(
      *format, Messages{{"user", "a"}, {"assistant", "<think>x</think>b"}, {"user", "c"}}, false,
      Thinking::kDefault);
  CHECK_OK(text);
  CHECK(absl::StrContains(*text, "<think>x</think>b"));
}

TEST(roles_are_checked_and_named) {
  const auto says = [](const char* jinja, std::vector<ChatMessage> messages) {
    return std::string(RenderChat(*DetectChatFormat(jinja), messages, true, Thinking::kDefault)
                           .status()
                           .message());
  };
  CHECK_EQ(says(kQwen3, {}), "a chat needs at least one message");
  CHECK_EQ(says(kQwen3, {{"user", "a"}, {"User", "b"}}),
           "message 1 has role \"User\", not system, user or assistant");
  CHECK(absl::StrContains(says(kQwen3, {{"tool", "a"}}), "message 0 has role \"tool\""));
  CHECK_EQ(says(kQwen3, {{"user", "a"}, {"system", "b"}}), "");
  CHECK_EQ(says(kQwen35, {{"user", "a"}, {"system", "b"}}),
           "message 1 has role \"system\", which this template takes at the beginning only");
}

TEST(the_newer_templates_trim_contents) {
  const auto format = DetectChatFormat(kQwen35);
  CHECK_OK(format);
  const auto text = RenderChat(*format, Messages{{"user", "  a \n"}}, false, Thinking::kDefault);
  CHECK_OK(text);
  CHECK_EQ(*text, "<|im_start|>user\na<|im_end|>\n");
}
