// SPDX-License-Identifier: MIT
#include "text/chat.h"

#include "absl/strings/match.h"
#include "support/test.h"

using namespace mainarch;
using namespace mainarch::text;

namespace {

using Messages = std::vector<ChatMessage>;

// The ways in which released templates open the assistant's turn; our own words.
constexpr char kTurns[] =
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{%- endfor %}";
constexpr char kQwen3[] =
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{%- if enable_thinking is defined and "
    "enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}";
constexpr char kInstruct[] = "{%- if add_generation_prompt %}<|im_start|>assistant\n{%- endif %}";
constexpr char kAlways[] =
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{{ '<think>\\n' }}{%- endif %}";
constexpr char kOther[] =
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{{ '<think>' if thinking else "
    "'</think>' }}{%- endif %}";

Chat ChatOf(const std::string& source) { return Chat(ChatConfig{{{"default", source}}, {}}); }

std::tm Noon() {
  std::tm time{};
  time.tm_year = 126;
  time.tm_mon = 1;
  time.tm_mday = 3;
  time.tm_hour = 12;
  return time;
}

// The prompt, or the message of the error.
std::string Said(const StatusOr<std::string>& prompt) {
  return prompt.ok() ? *prompt : std::string(prompt.status().message());
}

std::string Said(const Status& status) { return std::string(status.message()); }

// What follows the turn of the user.
std::string Opening(const char* ending, Thinking thinking) {
  const std::string turns = "{%- for m in messages %}{%- endfor %}";
  return Said(ChatOf(turns + ending).Render(Messages{{"user", "hi"}}, true, thinking, Noon()));
}

std::string Json(const Chat& chat, absl::string_view json) {
  return Said(chat.RenderJson(json, Noon()));
}

// Writes the names and values of what it is given.
constexpr char kShow[] =
    "{% for m in messages %}{{ m|tojson }};{% endfor %}{{ tools|tojson }};{{ documents|tojson }};"
    "{{ add_generation_prompt }};{{ bos_token }};{{ extra }}";

}  // namespace

TEST(the_switch_does_what_each_template_does) {
  const std::string turn = "<|im_start|>assistant";
  const std::string open = turn + "<think>\n", empty = turn + "<think>\n\n</think>\n\n";
  CHECK_EQ(Opening(kQwen3, Thinking::kDefault), turn);
  CHECK_EQ(Opening(kQwen3, Thinking::kOn), turn);
  CHECK_EQ(Opening(kQwen3, Thinking::kOff), empty);
  CHECK_EQ(Opening(kInstruct, Thinking::kDefault), turn);
  CHECK_EQ(Opening(kInstruct, Thinking::kOff), turn);
  CHECK_EQ(Opening(kAlways, Thinking::kDefault), turn + "\n<think>\n");
  CHECK_EQ(Opening(kAlways, Thinking::kOn), turn + "\n<think>\n");
  CHECK_EQ(Opening(kOther, Thinking::kOn), turn + "\n<think>");
  CHECK_EQ(Opening(kOther, Thinking::kOff), turn + "\n</think>");
}

TEST(a_switch_that_a_model_does_not_have_is_refused) {
  CHECK_EQ(Opening(kInstruct, Thinking::kOn),
           "this model does not think; leave the thinking switch at its default");
  CHECK_EQ(Opening(kAlways, Thinking::kOff),
           "this model always thinks; leave the thinking switch at its default");
}

// All of them were once taken for ChatML by a marker in them.
TEST(templates_that_look_like_chatml_are_run_and_not_guessed) {
  const std::pair<const char*, const char*> cases[] = {
      {"{% if messages[0].role != 'system' %}<|im_start|>system\nYou are a helpful "
       "assistant.<|im_end|>"
       "{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>"
       "{% endfor %}",
       "<|im_start|>system\nYou are a helpful assistant.<|im_end|><|im_start|>user\n hi "
       "<|im_end|>"},
      {"{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}"
       "<|im_end|>{% endfor %}",
       "<s><|im_start|>user<|im_sep|> hi <|im_end|>"},
      {"{% for m in messages %}<|im_start|>{{ 'human' if m.role == 'user' else m.role }}\n"
       "{{ m.content|trim }}<|im_end|>{% endfor %}",
       "<|im_start|>human\nhi<|im_end|>"},
      {"{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}"
       "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n\n</think>\n\n{% endif %}",
       "<|im_start|> hi <|im_start|>assistant\n<think>\n\n</think>\n\n"},
  };
  for (const auto& [source, prompt] : cases) {
    const Chat chat(ChatConfig{{{"default", source}}, {{"bos_token", "<s>"}}});
    CHECK_EQ(Said(chat.Render(Messages{{"user", " hi "}}, true, Thinking::kDefault, Noon())),
             std::string(prompt));
  }
}

// As Qwen3's: what the user really asked counts, not a tool's result in a user's turn.
TEST(thinking_stays_behind_a_tool_s_result) {
  const Chat chat = ChatOf(
      "{%- set ns = namespace(last=0, open=true) %}{%- for m in messages[::-1] %}"
      "{%- if ns.open and m.role == 'user' and not m.content.startswith('<tool_response>') %}"
      "{%- set ns.last = messages|length - loop.index %}{%- set ns.open = false %}{%- endif %}"
      "{%- endfor %}{%- for m in messages %}{%- if loop.index0 > ns.last %}{{- m.content }}"
      "{%- else %}{{- m.content.split('</think>')[-1] }}{%- endif %}{{- '|' }}{%- endfor %}");
  CHECK_EQ(Said(chat.Render(Messages{{"user", "q"},
                                     {"assistant", "<think>a</think>call"},
                                     {"user", "<tool_response>r</tool_response>"},
                                     {"assistant", "<think>b</think>answer"}},
                            false, Thinking::kDefault, Noon())),
           "q|<think>a</think>call|<tool_response>r</tool_response>|<think>b</think>answer|");
}

TEST(without_a_template_there_is_no_prompt) {
  const Chat none{ChatConfig{}};
  CHECK(!none.status().ok());
  const auto prompt = none.Render(Messages{{"user", "x"}}, true, Thinking::kDefault, Noon());
  CHECK(CodeOf(prompt.status()) == Code::kUnsupported);
  CHECK(absl::StrContains(Said(prompt), "no chat template"));
}

TEST(a_template_that_cannot_be_read_says_so_when_it_is_asked_for) {
  const Chat broken = ChatOf("a\n{% for %}");
  CHECK(CodeOf(broken.status()) == Code::kBadModel);
  const Messages hi = {{"user", "x"}};
  CHECK(absl::StartsWith(Said(broken.Render(hi, true, Thinking::kDefault, Noon())),
                         "chat template \"default\": line 2: "));
  CHECK(CodeOf(ChatOf("{% include 'x' %}").status()) == Code::kUnsupported);
}

TEST(roles_are_checked_and_named) {
  const Chat chat = ChatOf(kTurns);
  const auto says = [&](Messages messages) {
    return Said(chat.Render(messages, false, Thinking::kDefault, Noon()));
  };
  CHECK_EQ(says({}), "a chat needs at least one message");
  CHECK_EQ(says({{"user", "a"}, {"User", "b"}}),
           "message 1 has role \"User\", not system, user or assistant");
  CHECK(absl::StrContains(says({{"tool", "a"}}), "message 0 has role \"tool\""));
  CHECK_EQ(says({{"user", "a"}, {"system", "b"}}),
           "<|im_start|>user\na<|im_end|><|im_start|>system\nb<|im_end|>");
}

TEST(what_a_template_raises_is_the_error) {
  const Chat chat = ChatOf("x\n{{ raise_exception('Roles must alternate: ' ~ messages|length) }}");
  const auto prompt = chat.Render(Messages{{"user", "a"}}, true, Thinking::kDefault, Noon());
  CHECK(CodeOf(prompt.status()) == Code::kInvalidArgument);
  CHECK_EQ(Said(prompt), "chat template: Roles must alternate: 1");
  CHECK_EQ(Said(ChatOf("x\n{{ messages[0].nothing.more }}")
                    .Render(Messages{{"user", "a"}}, true, Thinking::kDefault, Noon())),
           "chat template: line 2: 'dict object' has no attribute 'nothing'");
}

TEST(a_template_knows_the_date) {
  CHECK_EQ(Said(ChatOf("{{ strftime_now('%d %B %Y, %-d.%-m.') }}")
                    .Render(Messages{{"user", "a"}}, true, Thinking::kDefault, Noon())),
           "03 February 2026, 3.2.");
}

TEST(json_is_shown_to_the_template_as_transformers_does) {
  const Chat chat(ChatConfig{{{"default", kShow}}, {{"bos_token", "<s>"}}});
  CHECK_EQ(Json(chat, R"({"messages": [{"role": "user", "content": "ü", "name": null}]})"),
           R"({"role": "user", "content": "ü"};null;null;True;<s>;)");
  CHECK_EQ(Json(chat, R"({"messages": [{"role": "a", "reasoning": "r"}], "tools": [{"b": 1.0}],
                          "documents": [], "add_generation_prompt": false,
                          "chat_template_kwargs": {"extra": [true, null], "bos_token": "B"}})"),
           R"({"thinking": "r", "role": "a", "reasoning": "r", "reasoning_content": "r"};)"
           R"([{"b": 1.0}];[];False;B;[True, None])");
}

TEST(a_chat_may_end_within_its_last_message) {
  const Chat chat = ChatOf(
      "{% for m in messages %}[{{ m.content|trim }}]{% endfor %}{{ 'P' if "
      "add_generation_prompt }}");
  CHECK_EQ(Json(chat, R"({"messages": [{"content": "a"}, {"content": " b c "}],
                          "continue_final_message": true})"),
           "[a][b c");
  CHECK_EQ(Json(chat, R"({"messages": [{"content": "a"}], "continue_final_message": false})"),
           "[a]P");
  const Chat parts = ChatOf(
      "{% for m in messages %}{% for p in m.content %}<{{ p.text }}>"
      "{% endfor %}{% endfor %}");
  CHECK_EQ(Json(parts, R"({"messages": [{"content": [{"text": "a "}, {"type": "image"}]}],
                           "continue_final_message": true})"),
           "<a ");
  const Chat deaf = ChatOf("x");
  CHECK(absl::StrContains(Json(deaf, R"({"messages": [{"content": "a"}],
                                         "continue_final_message": true})"),
                          "leaves it out"));
}

TEST(templates_are_chosen_by_tools_by_name_and_by_text) {
  const Chat chat(ChatConfig{{{"default", "D"}, {"tool_use", "T"}, {"rag", "R"}}, {}});
  const std::string messages = R"({"messages": [{"role": "user", "content": "x"}])";
  CHECK_EQ(Json(chat, messages + "}"), "D");
  CHECK_EQ(Json(chat, messages + R"(, "tools": []})"), "T");
  CHECK_EQ(Json(chat, messages + R"(, "tools": null})"), "D");
  CHECK_EQ(Json(chat, messages + R"(, "chat_template": "rag"})"), "R");
  CHECK_EQ(Json(chat, messages + R"(, "chat_template": "{{ messages[0].role }}"})"), "user");
  CHECK_EQ(Json(chat, messages + R"(, "chat_template": "rga"})"),
           "chat_template: the model has no template \"rga\"; it has default, tool_use, rag");
  const Chat named(ChatConfig{{{"rag", "R"}}, {}});
  CHECK(absl::StrContains(Json(named, messages + "}"), "name one of rag"));
}

TEST(wrong_json_is_refused_by_name) {
  const Chat chat = ChatOf("x");
  const std::pair<const char*, const char*> cases[] = {
      {"", "the chat is not json"},
      {"[]", "the chat the root is an array, not an object"},
      {"{}", "messages is missing"},
      {R"({"messages": {}})", "messages is no array"},
      {R"({"messages": []})", "at least one message"},
      {R"({"messages": ["a"]})", "messages[0] is no object"},
      {R"({"messages": [{}], "tools": {}})", "tools is no array"},
      {R"({"messages": [{}], "tools": ["f"]})", "tools[0] is no object"},
      {R"({"messages": [{}], "tool": []})", "\"tool\" is no key of a chat"},
      {R"({"messages": [{}], "add_generation_prompt": 1})", "neither true nor false"},
      {R"({"messages": [{}], "chat_template": 1})", "chat_template is no text"},
      {R"({"messages": [{}], "chat_template_kwargs": []})", "is no object"},
      {R"({"messages": [{}], "chat_template_kwargs": {"tools": []}})", "beside"},
      {R"({"messages": [{"a": 1, "a": 2}]})", "stands twice"},
      {R"({"messages": [{"a": 18446744073709551615}]})", "is more than"},
      {R"({"messages": [{"a": 123456789012345678901234567890}]})", "not json"},
      {R"({"messages": [{}], "continue_final_message": true})", "has no content"},
      {R"({"messages": [{"content": "a"}], "continue_final_message": true,
           "add_generation_prompt": true})",
       "exclude one another"},
  };
  for (const auto& [json, message] : cases) {
    const auto prompt = chat.RenderJson(json, Noon());
    CHECK(CodeOf(prompt.status()) == Code::kInvalidArgument);
    if (!absl::StrContains(Said(prompt), message)) CHECK_EQ(Said(prompt), std::string(message));
  }
}

TEST(what_a_checkpoint_says_of_chats_is_read) {
  const auto config = ReadChatConfig(
      R"({"bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "</s>"},
          "pad_token": null, "image_token": "<i>", "add_bos_token": true, "model_max_length": 1e30,
          "extra_special_tokens": {"boi": "<b>"},
          "chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]})");
  CHECK_OK(config);
  CHECK_EQ(config->templates.size(), 2u);
  CHECK_EQ(config->templates[1].source, "d");
  std::string tokens;
  for (const auto& [name, text] : config->tokens) tokens += name + "=" + text + " ";
  CHECK_EQ(tokens, "bos_token=<s> eos_token=</s> image_token=<i> boi=<b> ");
  CHECK_EQ(Said(ReadChatConfig(R"({"chat_template": 1})").status()),
           "chat_template is an integer, not a string");
  CHECK_EQ(Said(ReadChatConfig(R"({"chat_template": [{"name": "a"}]})").status()),
           "chat_template[].template is missing");
}
