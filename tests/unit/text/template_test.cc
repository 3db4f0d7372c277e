// SPDX-License-Identifier: MIT
// The Jinja interpreter: what Jinja itself made of templates of our own
// (tests/golden/template_goldens.py), and its limits.
#include "text/jinja/template.h"

#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "support/test.h"
#include "text/jinja/json_value.h"
#include "text/jinja/parser.h"

using namespace mainarch;
using namespace mainarch::text::jinja;

namespace {

std::string Text(const simdjson::dom::element& value) {
  return std::string(value.get_string().value_unsafe());
}

StatusOr<std::string> Render(absl::string_view source, const simdjson::dom::element& variables,
                             const Limits& limits = {}) {
  ASSIGN_OR_RETURN(const Template parsed, Template::Parse(source));
  Heap heap(limits);
  const Value given = FromJson(&heap, variables, "variables");
  return parsed.Render(&heap, *given.table);
}

// The output, or the error's message.
std::string Said(absl::string_view source, const Limits& limits = {}) {
  simdjson::dom::parser parser;
  const auto out = Render(
      source, parser.parse(std::string(R"({"x": [1, 2, 3], "s": "abc"})")).value_unsafe(), limits);
  return out.ok() ? *out : std::string(out.status().message());
}

Code CodeFor(absl::string_view source) {
  simdjson::dom::parser parser;
  return CodeOf(Render(source, parser.parse(std::string("{}")).value_unsafe()).status());
}

}  // namespace

TEST(templates_are_rendered_as_jinja_does) {
  std::ifstream in(test::SourcePath("tests/golden/data/templates.json"), std::ios::binary);
  std::stringstream file;
  file << in.rdbuf();
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  CHECK(!parser.parse(file.str()).get(root));
  simdjson::dom::array cases;
  CHECK(!root["cases"].get(cases));
  size_t equal = 0, refused = 0, different = 0;
  for (const simdjson::dom::element golden : cases) {
    const std::string source = Text(golden.at(0).value_unsafe());
    const simdjson::dom::element want = golden.at(1).value_unsafe();
    const auto out = Render(source, root["variables"].value_unsafe());
    if (want.is_null() && !out.ok()) {
      ++refused;
    } else if (!want.is_null() && out.ok() && *out == Text(want)) {
      ++equal;
    } else {
      ++different;
      std::printf("# %s\n#   jinja: %s\n#   ours:  %s\n", source.c_str(),
                  want.is_null() ? "(refuses)" : Text(want).c_str(),
                  out.ok() ? out->c_str() : std::string(out.status().message()).c_str());
    }
  }
  CHECK_EQ(different, 0u);
  CHECK_GE(equal, 100u);
  CHECK_GE(refused, 60u);
}

TEST(errors_name_the_line) {
  CHECK_EQ(Said("a\nb {{ x.y.z }}"), "line 2: 'list object' has no attribute 'y'");
  CHECK_EQ(Said("a\n\n{{ x[ }}"), "line 3: unexpected \"}\"");
  CHECK_EQ(Said("a\n{% if x %}"), "line 2: the template ends without {% endif %}");
  CHECK_EQ(Said("{{ nowhere() }}"), "line 1: 'nowhere' is undefined");
  CHECK_EQ(Said("{{ 'a'|nofilter }}"), "line 1: no filter named 'nofilter'");
  CHECK_EQ(Said("{{ s.replace('a') }}"), "line 1: replace() misses its argument 'new'");
  CHECK_EQ(Said("{{ s|trim(c='a') }}"), "line 1: trim() has no parameter 'c'");
  CHECK_EQ(Said("\n{{ raise_exception('only this') }}"), "only this");
}

TEST(what_is_not_known_is_refused_by_name) {
  for (const char* source :
       {"{% include 'a' %}", "{% import 'a' as b %}", "{% from 'a' import b %}",
        "{% extends 'a' %}", "{% block a %}{% endblock %}",
        "{% for a in b recursive %}{% endfor %}", "{{ 'a'.encode() }}", "{{ lipsum() }}",
        "{{ 'a'|pprint }}", "{{ 123456789012345678901234567890 }}"}) {
    if (CodeFor(source) != Code::kUnsupported) CHECK_EQ(source, "UNSUPPORTED");
  }
  CHECK_EQ(Said("\n{% include 'a' %}"), "line 2: {% include %} is not supported in chat templates");
}

TEST(the_limits_are_those_of_the_header) {
  CHECK_EQ(Limits{}.steps, 33554432u);
  CHECK_EQ(Limits{}.bytes, size_t{256} << 20);
  CHECK_EQ(Limits{}.depth, 400);
}

TEST(steps_are_bounded) {
  const Limits few = {.steps = 10000};
  CHECK_EQ(Said("{% for a in range(100) %}{% for b in range(100) %}{{ a }}{% endfor %}{% endfor %}",
                few),
           "line 1: needs more than the limit of 10000 steps");
  // A hundred thousand times a hundred thousand.
  CHECK(
      absl::StrContains(Said("{% set r = range(100000) %}{% for a in r %}{{ r|sum }}{% endfor %}"),
                        "33554432 steps"));
  CHECK(absl::StrContains(Said("{% set t = 'a' * 100000 %}{% for a in range(100000) %}"
                               "{% if t ~ a in t %}{% endif %}{% endfor %}"),
                          "limit"));
}

TEST(memory_is_bounded) {
  for (const char* source :
       {"{{ 'a' * 1000000000000 }}", "{{ [0] * 1000000000000 }}", "{{ 'a'.center(1000000000000) }}",
        "{% set n = namespace(s='a') %}{% for a in range(100) %}{% set n.s = n.s ~ n.s %}{% endfor "
        "%}",
        "{% set n = namespace(s=[1]) %}{% for a in range(100) %}{% set n.s = n.s + n.s %}{% endfor "
        "%}",
        "{% set t = 'a' * 100000 %}{{ t.replace('a', t) }}",
        "{% set t = 'a' * 100000 %}{{ t|join(t) }}",
        "{% set t = 'a' * 10000 %}{% for a in range(100000) %}{{ t }}{% endfor %}",
        "{{ [1]|batch(100000000000, 1)|list }}", "{{ [1]|slice(100000000000)|list }}",
        "{{ 'a\nb'|indent(100000000000) }}", "{{ s.zfill(100000000000) }}"}) {
    if (!absl::StrContains(Said(source, {.bytes = size_t{16} << 20}), "limit of")) {
      CHECK_EQ(source, "refused");
    }
  }
  CHECK(absl::StrContains(Said("{{ '%999999999d' % 1 }}"), "the limit is 10000"));
  CHECK(absl::StrContains(Said("{{ '{:.999999999f}'.format(1.0) }}"), "the limit is 10000"));
}

TEST(depth_is_bounded) {
  const auto nested = [](const std::string& open, const std::string& inside,
                         const std::string& close, int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += open;
    text += inside;
    for (int i = 0; i < n; ++i) text += close;
    return text;
  };
  for (const auto& source :
       {"{{ " + nested("(", "1", ")", 100000) + " }}",
        "{{ " + nested("[", "1", "]", 100000) + " }}", "{{ " + nested("-", "1", "", 100000) + " }}",
        "{{ " + nested("not ", "1", "", 50000) + " }}",
        "{{ " + nested("{1:", "1", "}", 60000) + " }}",
        "{{ " + nested("s[", "1", "]", 60000) + " }}",
        nested("{% if x %}", "1", "{% endif %}", 10000),
        "{% set " + nested("(", "a", ",)", 50000) + " = 1 %}"}) {
    const std::string said = Said(source);
    if (!absl::StrContains(said, "nested deeper than the limit of 100"))
      CHECK_EQ(said, source.substr(0, 40));
  }
  // What stands side by side in the text is deep in the tree.
  CHECK(absl::StrContains(Said("{{ 1" + nested("", "", " + 1", 20000) + " }}"), "limit of 400"));
  CHECK(absl::StrContains(Said("{{ s" + nested("", "", "|trim", 20000) + " }}"), "limit of 400"));
  CHECK(absl::StrContains(Said("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), "limit of 400"));
  CHECK_EQ(Said("{{ 1" + nested("", "", " + 1", 300) + " }}"), "301");
  // Values in one another.
  const std::string deep =
      "{% set n = namespace(v=[]) %}{% for a in range(1000) %}{% set n.v = [n.v] %}{% endfor %}";
  for (const char* use :
       {"{{ n.v }}", "{{ n.v|tojson }}", "{{ n.v == [n.v] }}", "{{ n.v < [n.v] }}"}) {
    CHECK(absl::StrContains(Said(deep + use), "limit of 200"));
  }
  CHECK(
      absl::StrContains(Said("{% set n = namespace() %}{% set n.n = n %}{{ n }}"), "limit of 200"));
}

TEST(templates_of_any_size_are_refused_or_read) {
  CHECK(CodeFor(std::string(kMaxSource + 1, 'a')) == Code::kBadModel);
  CHECK(CodeFor(std::string(kMaxSource, 'a')) == Code::kOk);
  CHECK(CodeFor("\xff") == Code::kBadModel);
  CHECK(CodeFor("{{ '\\N{BULLET}' }}") == Code::kBadModel);
}

TEST(the_names_that_a_template_reads_are_known) {
  const auto parsed =
      Template::Parse("{% set a = b %}{{ c.d }}{% macro m(x) %}{{ e|f(g) }}{% endmacro %}");
  CHECK_OK(parsed);
  for (const char* name : {"b", "c", "e", "g"}) CHECK(parsed->Reads(name));
  for (const char* name : {"a", "d", "f", "m", "x", ""}) CHECK(!parsed->Reads(name));
}
