// SPDX-License-Identifier: MIT
#include "cli/launch/launch_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/decimal.h"
#include "file/json.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/f16.h"

namespace mainarch::cli {
namespace {

constexpr size_t kMostLine = 4096;  // characters
constexpr size_t kMostArguments = 1024, kMostChecks = 256;
constexpr size_t kMostName = 64;
constexpr size_t kShown = 64;  // characters of a bad word in a message

struct ElementFacts {
  Element element;
  const char* name;
  uint32_t bytes;
  double low, high;  // of integers
};
constexpr ElementFacts kElements[] = {
    {Element::kU8, "u8", 1, 0, 255},
    {Element::kI8, "i8", 1, -128, 127},
    {Element::kU16, "u16", 2, 0, 65535},
    {Element::kI16, "i16", 2, -32768, 32767},
    {Element::kU32, "u32", 4, 0, 4294967295.0},
    {Element::kI32, "i32", 4, -2147483648.0, 2147483647.0},
    // Of random fills: what a double holds exactly.
    {Element::kU64, "u64", 8, 0, 9007199254740992.0},
    {Element::kI64, "i64", 8, -9007199254740992.0, 9007199254740992.0},
    {Element::kF16, "f16", 2, 0, 0},
    {Element::kBF16, "bf16", 2, 0, 0},
    {Element::kF32, "f32", 4, 0, 0},
    {Element::kF64, "f64", 8, 0, 0},
    {Element::kFp8, "fp8", 1, 0, 0},
};

const ElementFacts& FactsOf(Element element) { return kElements[static_cast<size_t>(element)]; }
const ElementFacts* FindElement(absl::string_view name) {
  for (const ElementFacts& facts : kElements) {
    if (name == facts.name) return &facts;
  }
  return nullptr;
}
std::string ElementNames(bool fp8) {
  std::vector<absl::string_view> names;
  for (const ElementFacts& facts : kElements) {
    if (fp8 || facts.element != Element::kFp8) names.push_back(facts.name);
  }
  return absl::StrJoin(names, " ");
}

// As a message shows a word of the file.
std::string Shown(absl::string_view word) {
  return word.size() <= kShown ? file::Quote(word) : absl::StrCat(file::Quote(word.substr(0, kShown)), "...");
}

int HexDigit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}
bool ParseHexBytes(absl::string_view text, std::vector<uint8_t>* bytes) {
  if (text.empty() || text.size() % 2 != 0) return false;
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = HexDigit(text[i]), low = HexDigit(text[i + 1]);
    if (high < 0 || low < 0) return false;
    bytes->push_back(static_cast<uint8_t>(high << 4 | low));
  }
  return true;
}

// Finite, in plain or exponent form; nothing else that strtod takes.
std::optional<double> ParseReal(absl::string_view text) {
  for (const char c : text) {
    if (!(c >= '0' && c <= '9') && c != '.' && c != '-' && c != '+' && c != 'e') return std::nullopt;
  }
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !std::isfinite(value)) return std::nullopt;
  return value;
}

struct Word {
  std::string text;
  bool quoted = false;
};

// One statement, its words taken from the left.
class Statement {
 public:
  Statement(absl::string_view file, int line, std::vector<Word> words)
      : file_(file), line_(line), words_(std::move(words)) {}

  int line() const { return line_; }
  const std::string& keyword() const { return words_[0].text; }
  bool done() const { return at_ == words_.size(); }

  template <class... Parts>
  Status Wrong(const Parts&... parts) const {
    return Error(Code::kBadModel, file_, ":", line_, ": ", Keyword(), ": ", parts...);
  }
  StatusOr<std::string> Text(absl::string_view what) {
    if (done()) return Wrong(what, " is missing");
    if (words_[at_].text.empty()) return Wrong(what, " is empty");
    return words_[at_++].text;
  }
  StatusOr<std::string> Name(absl::string_view what) {
    ASSIGN_OR_RETURN(std::string name, Text(what));
    const bool good = std::all_of(name.begin(), name.end(), [](unsigned char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    });
    if (!good || name.size() > kMostName) {
      return Wrong(what, " ", Shown(name), ": expected at most ", kMostName, " letters, digits and _");
    }
    return name;
  }
  StatusOr<uint64_t> Number(absl::string_view what, uint64_t least, uint64_t most) {
    ASSIGN_OR_RETURN(const std::string text, Text(what));
    return NumberOf(text, what, least, most);
  }
  StatusOr<uint64_t> NumberOf(absl::string_view text, absl::string_view what, uint64_t least,
                              uint64_t most) const {
    const std::optional<uint64_t> value = ParseDecimal(text);
    if (!value.has_value() || *value < least || *value > most) {
      return Wrong(what, " ", Shown(text), ": expected a number from ", least, " to ", most);
    }
    return *value;
  }
  StatusOr<double> RealOf(absl::string_view text, absl::string_view what) const {
    const std::optional<double> value = ParseReal(text);
    if (!value.has_value()) return Wrong(what, " ", Shown(text), ": expected a finite number");
    return *value;
  }
  // The next word as `name=value`, or a plain name.
  struct Setting {
    std::string name, value;
    bool has_value = false;
  };
  Setting Next() {
    const std::string& word = words_[at_++].text;
    const size_t equals = word.find('=');
    if (equals == std::string::npos) return {word, "", false};
    return {word.substr(0, equals), word.substr(equals + 1), true};
  }
  Status End() const {
    return done() ? OkStatus() : Wrong("nothing is expected behind ", Shown(words_[at_ - 1].text),
                                       ", but there is ", Shown(words_[at_].text));
  }

 private:
  std::string Keyword() const {
    return file::Quote(words_[0].text.substr(0, kShown));
  }

  const absl::string_view file_;
  const int line_;
  const std::vector<Word> words_;
  size_t at_ = 1;
};

class Parser {
 public:
  explicit Parser(absl::string_view name) { out_.name = std::string(name); }

  StatusOr<LaunchFile> Parse(absl::string_view text) {
    if (text.size() > kMostLaunchBytes) {
      return Wrong("a launch file of ", text.size(), " bytes; at most ", kMostLaunchBytes);
    }
    int number = 0;
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      ++number;
      ASSIGN_OR_RETURN(std::vector<Word> words, Words(absl::StripSuffix(line, "\r"), number));
      if (words.empty()) continue;
      Statement statement(out_.name, number, std::move(words));
      if (!begun_) {
        RETURN_IF_ERROR(Begin(statement));
      } else {
        RETURN_IF_ERROR(Take(statement));
      }
    }
    RETURN_IF_ERROR(CheckWhole());
    return std::move(out_);
  }

 private:
  template <class... Parts>
  Status Wrong(const Parts&... parts) const {
    return Error(Code::kBadModel, out_.name, ": ", parts...);
  }

  // Words are apart by blanks; one in quotes may hold any character but a quote. What stands behind
  // a # at the start of a word is a comment. A quote may begin behind the = of a setting.
  StatusOr<std::vector<Word>> Words(absl::string_view line, int number) const {
    const auto wrong = [&](absl::string_view what) {
      return Error(Code::kBadModel, out_.name, ":", number, ": ", what);
    };
    if (line.size() > kMostLine) {
      return wrong(absl::StrCat("a line of ", line.size(), " characters; at most ", kMostLine));
    }
    std::vector<Word> words;
    size_t at = 0;
    while (at < line.size()) {
      if (line[at] == ' ' || line[at] == '\t') {
        ++at;
        continue;
      }
      if (line[at] == '#') break;
      Word word;
      while (at < line.size() && line[at] != ' ' && line[at] != '\t') {
        const unsigned char c = static_cast<unsigned char>(line[at]);
        if (c == '"') {
          const size_t end = line.find('"', at + 1);
          if (end == absl::string_view::npos) return wrong("a quote that does not end");
          word.quoted = true;
          absl::StrAppend(&word.text, line.substr(at + 1, end - at - 1));
          at = end + 1;
          continue;
        }
        if (c < 0x20 || c == 0x7f) return wrong("a control character");
        word.text += line[at++];
      }
      for (const unsigned char c : word.text) {
        if (c < 0x20 || c == 0x7f) return wrong("a control character");
      }
      words.push_back(std::move(word));
    }
    return words;
  }

  Status Begin(Statement& s) {
    if (s.keyword() != "mainarch-launch") {
      return Error(Code::kBadModel, out_.name, ":", s.line(),
                   ": expected \"mainarch-launch 1\" as the first statement, not ", Shown(s.keyword()));
    }
    RETURN_IF_ERROR(s.Number("version", 1, 1).status());
    begun_ = true;
    return s.End();
  }

  Status Once(const Statement& s, int* line) {
    if (*line != 0) return s.Wrong("given again; it stands in line ", *line);
    *line = s.line();
    return OkStatus();
  }

  Status Take(Statement& s) {
    const std::string& word = s.keyword();
    if (word == "isa") return TakeIsa(s);
    if (word == "object") return TakeText(s, "path", &out_.object, &out_.object_line);
    if (word == "kernel") return TakeText(s, "name", &out_.kernel, &out_.kernel_line);
    if (word == "workgroups") return TakeWorkgroups(s);
    if (word == "workgroup") return TakeWorkgroup(s);
    if (word == "lds") return TakeNumber(s, "bytes", 0, 1 << 20, &out_.lds, &out_.lds_line);
    if (word == "kernarg") return TakeKernarg(s);
    if (word == "arguments") return TakeArguments(s);
    if (word == "resident") return TakeResident(s);
    if (word == "runs") return TakeNumber(s, "number", 1, 1000, &out_.runs, &runs_line_);
    if (word == "rotate") return TakeNumber(s, "number", 1, 1000, &out_.rotate, &rotate_line_);
    if (word == "buffer") return TakeBuffer(s);
    if (word == "arg") return TakeArgument(s);
    if (word == "expect") return TakeExpectation(s);
    if (word == "write") return TakeOutput(s);
    return Error(Code::kBadModel, out_.name, ":", s.line(), ": ", Shown(word),
                 ": no such statement; there are isa object kernel workgroups workgroup lds kernarg arguments resident "
                 "runs rotate buffer arg expect write");
  }

  Status TakeIsa(Statement& s) {
    RETURN_IF_ERROR(TakeText(s, "name", &out_.isa, &out_.isa_line));
    if (out_.isa == "gfx942" || out_.isa == "gfx950") return OkStatus();
    return s.Wrong("name ", Shown(out_.isa), ": expected gfx942 or gfx950");
  }
  Status TakeText(Statement& s, absl::string_view what, std::string* out, int* line) {
    RETURN_IF_ERROR(Once(s, line));
    ASSIGN_OR_RETURN(*out, s.Text(what));
    return s.End();
  }
  Status TakeNumber(Statement& s, absl::string_view what, uint64_t least, uint64_t most, uint32_t* out,
                    int* line) {
    RETURN_IF_ERROR(Once(s, line));
    ASSIGN_OR_RETURN(const uint64_t value, s.Number(what, least, most));
    *out = static_cast<uint32_t>(value);
    return s.End();
  }
  Status TakeKernarg(Statement& s) {
    uint32_t bytes = 0;
    RETURN_IF_ERROR(TakeNumber(s, "bytes", 0, kMostKernargBytes, &bytes, &out_.kernarg_line));
    out_.kernarg = bytes;
    return OkStatus();
  }
  Status TakeArguments(Statement& s) {
    std::string where;
    RETURN_IF_ERROR(TakeText(s, "place", &where, &out_.arguments_line));
    out_.device_arguments = where == "device";
    if (where == "device" || where == "host") return OkStatus();
    return s.Wrong("place ", Shown(where), ": expected host or device");
  }
  Status TakeResident(Statement& s) {
    RETURN_IF_ERROR(Once(s, &out_.resident_line));
    out_.resident = true;
    return s.End();
  }
  Status TakeThree(Statement& s, uint64_t most, std::array<uint32_t, 3>* out) {
    for (size_t d = 0; d < 3 && (d == 0 || !s.done()); ++d) {
      ASSIGN_OR_RETURN(const uint64_t value, s.Number(absl::string_view("xyz").substr(d, 1), 1, most));
      (*out)[d] = static_cast<uint32_t>(value);
    }
    return s.End();
  }
  Status TakeWorkgroups(Statement& s) {
    RETURN_IF_ERROR(Once(s, &out_.workgroups_line));
    return TakeThree(s, UINT32_MAX, &out_.workgroups);
  }
  Status TakeWorkgroup(Statement& s) {
    RETURN_IF_ERROR(Once(s, &out_.workgroup_line));
    RETURN_IF_ERROR(TakeThree(s, 1024, &out_.workgroup));
    const uint64_t items = uint64_t{out_.workgroup[0]} * out_.workgroup[1] * out_.workgroup[2];
    if (items > 1024) return s.Wrong(items, " work-items; at most 1024");
    return OkStatus();
  }

  Status TakeBuffer(Statement& s) {
    LaunchBuffer buffer;
    buffer.line = s.line();
    ASSIGN_OR_RETURN(buffer.name, s.Name("name"));
    if (const LaunchBuffer* other = FindBuffer(out_, buffer.name)) {
      return s.Wrong("name ", Shown(buffer.name), ": taken by line ", other->line);
    }
    if (out_.buffers.size() == kMostLaunchBuffers) return s.Wrong("more than ", kMostLaunchBuffers);
    ASSIGN_OR_RETURN(buffer.bytes, s.Number("bytes", 1, kMostBufferBytes));
    RETURN_IF_ERROR(TakeFill(s, buffer.bytes, &buffer.fill));
    out_.buffers.push_back(std::move(buffer));
    return OkStatus();
  }

  Status TakeFill(Statement& s, uint64_t bytes, Fill* fill) {
    bool seed = false, low = false, high = false, at = false;
    while (!s.done()) {
      const Statement::Setting set = s.Next();
      const bool is_fill = set.name == "zero" || set.name == "random" || set.name == "pattern" || set.name == "file";
      if (is_fill && fill->kind != Fill::Kind::kNone) return s.Wrong(Shown(set.name), ": filled twice");
      if (set.has_value == (set.name == "zero")) {
        return s.Wrong(Shown(set.name), set.has_value ? ": takes no value" : ": expected a setting such as random=f32");
      }
      if (set.name == "zero") {
        fill->kind = Fill::Kind::kZero;
      } else if (set.name == "random") {
        fill->kind = Fill::Kind::kRandom;
        RETURN_IF_ERROR(TakeElement(s, set.value, true, &fill->element));
      } else if (set.name == "pattern") {
        fill->kind = Fill::Kind::kPattern;
        if (!ParseHexBytes(set.value, &fill->pattern)) {
          return s.Wrong("pattern ", Shown(set.value), ": expected pairs of hexadecimal digits, in small letters");
        }
      } else if (set.name == "file") {
        fill->kind = Fill::Kind::kFile;
        if (set.value.empty()) return s.Wrong("file: the path is missing");
        fill->path = set.value;
      } else if (set.name == "seed" && !seed) {
        seed = true;
        ASSIGN_OR_RETURN(fill->seed, s.NumberOf(set.value, "seed", 0, UINT64_MAX));
      } else if (set.name == "low" && !low) {
        low = true;
        ASSIGN_OR_RETURN(fill->low, s.RealOf(set.value, "low"));
      } else if (set.name == "high" && !high) {
        high = true;
        ASSIGN_OR_RETURN(fill->high, s.RealOf(set.value, "high"));
      } else if (set.name == "at" && !at) {
        at = true;
        ASSIGN_OR_RETURN(fill->at, s.NumberOf(set.value, "at", 0, kMostBufferBytes));
      } else {
        return s.Wrong(Shown(set.name), ": given again, or no setting; there are zero random= seed= low= high= "
                       "pattern= file= at=");
      }
    }
    if (at && fill->kind != Fill::Kind::kFile) return s.Wrong("at: belongs to file=");
    if ((seed || low || high) && fill->kind != Fill::Kind::kRandom) {
      return s.Wrong("seed, low and high: belong to random=");
    }
    return fill->kind == Fill::Kind::kRandom ? CheckRandom(s, bytes, low, high, fill) : OkStatus();
  }
  Status TakeElement(const Statement& s, absl::string_view name, bool fp8, Element* out) const {
    const ElementFacts* facts = FindElement(name);
    if (facts == nullptr || (!fp8 && facts->element == Element::kFp8)) {
      return s.Wrong("type ", Shown(name), ": expected one of ", ElementNames(fp8));
    }
    *out = facts->element;
    return OkStatus();
  }
  Status CheckRandom(const Statement& s, uint64_t bytes, bool has_low, bool has_high, Fill* fill) const {
    const ElementFacts& facts = FactsOf(fill->element);
    if (bytes % facts.bytes != 0) {
      return s.Wrong(bytes, " bytes are no whole number of ", facts.name);
    }
    if (fill->element == Element::kFp8) {
      return has_low || has_high ? s.Wrong("low and high: not for fp8, which is from -1 to 1") : OkStatus();
    }
    const bool integer = IsInteger(fill->element);
    if (!has_low) fill->low = integer ? facts.low : -1;
    if (!has_high) fill->high = integer ? facts.high : 1;
    if (integer && (fill->low != std::floor(fill->low) || fill->high != std::floor(fill->high) ||
                    fill->low < facts.low || fill->high > facts.high)) {
      return s.Wrong("low and high: expected whole numbers from ", facts.low, " to ", facts.high);
    }
    if (!(fill->low <= fill->high)) return s.Wrong("low ", fill->low, " is above high ", fill->high);
    if (!std::isfinite(fill->high - fill->low)) return s.Wrong("low and high: too far apart");
    return OkStatus();
  }

  Status TakeArgument(Statement& s) {
    LaunchArgument argument;
    argument.line = s.line();
    if (out_.arguments.size() == kMostArguments) return s.Wrong("more than ", kMostArguments);
    ASSIGN_OR_RETURN(const uint64_t offset, s.Number("offset", 0, kMostKernargBytes - 1));
    argument.offset = static_cast<uint32_t>(offset);
    ASSIGN_OR_RETURN(argument.type, s.Text("type"));
    if (argument.type == "ptr") {
      argument.size = 8;
      ASSIGN_OR_RETURN(argument.buffer, s.Name("buffer"));
      const LaunchBuffer* buffer = FindBuffer(out_, argument.buffer);
      if (buffer == nullptr) return s.Wrong("buffer ", Shown(argument.buffer), ": no line above makes it");
      if (!s.done()) {
        ASSIGN_OR_RETURN(argument.value, s.Number("bytes behind its start", 0, buffer->bytes));
      }
    } else {
      RETURN_IF_ERROR(TakeValue(s, &argument));
    }
    RETURN_IF_ERROR(s.End());
    const uint32_t end = argument.offset + argument.size;
    if (end > kMostKernargBytes) return s.Wrong("ends at byte ", end, "; at most ", kMostKernargBytes);
    for (const LaunchArgument& other : out_.arguments) {
      if (argument.offset < other.offset + other.size && other.offset < end) {
        return s.Wrong("bytes ", argument.offset, " to ", end - 1, ": line ", other.line, " has set some of them");
      }
    }
    out_.arguments.push_back(std::move(argument));
    return OkStatus();
  }
  Status TakeValue(Statement& s, LaunchArgument* argument) {
    Element element;
    const ElementFacts* facts = FindElement(argument->type);
    if (facts == nullptr || facts->element == Element::kFp8) {
      return s.Wrong("type ", Shown(argument->type), ": expected ptr or one of ", ElementNames(false));
    }
    element = facts->element;
    argument->size = facts->bytes;
    ASSIGN_OR_RETURN(argument->text, s.Text("value"));
    absl::string_view text = argument->text;
    if (!IsInteger(element)) {
      ASSIGN_OR_RETURN(const double value, s.RealOf(text, "value"));
      const float narrow = static_cast<float>(value);
      if (element == Element::kF64) argument->value = __builtin_bit_cast(uint64_t, value);
      if (element == Element::kF32) argument->value = __builtin_bit_cast(uint32_t, narrow);
      if (element == Element::kF16) argument->value = quant::F16FromFloat(narrow);
      if (element == Element::kBF16) argument->value = quant::Bf16FromFloat(narrow);
      const bool fits = element == Element::kF64    ? true
                        : element == Element::kF32  ? std::isfinite(narrow)
                        : element == Element::kF16  ? (argument->value & 0x7c00) != 0x7c00
                                                    : (argument->value & 0x7f80) != 0x7f80;
      return fits ? OkStatus() : s.Wrong("value ", Shown(argument->text), ": too large for ", argument->type);
    }
    const bool is_signed = argument->type[0] == 'i';
    const bool negative = is_signed && absl::ConsumePrefix(&text, "-");
    const uint32_t bits = facts->bytes * 8;
    const uint64_t top = UINT64_MAX >> (64 - bits + (is_signed ? 1 : 0));
    const std::optional<uint64_t> value = ParseDecimal(text);
    if (!value.has_value() || *value > top + (negative ? 1 : 0)) {
      return s.Wrong("value ", Shown(argument->text), ": expected a whole number from ",
                     is_signed ? absl::StrCat("-", top + 1) : "0", " to ", top);
    }
    argument->value = (negative ? 0 - *value : *value) & (UINT64_MAX >> (64 - bits));
    return OkStatus();
  }

  Status CheckRange(const Statement& s, const LaunchBuffer& buffer, const Expectation& e) const {
    if (e.from > buffer.bytes || e.bytes.value_or(buffer.bytes - e.from) > buffer.bytes - e.from) {
      return s.Wrong("from ", e.from, e.bytes.has_value() ? absl::StrCat(", ", *e.bytes, " bytes") : "", ": ",
                     buffer.name, " has ", buffer.bytes, " bytes");
    }
    const uint64_t size = e.bytes.value_or(buffer.bytes - e.from);
    if (size == 0) return s.Wrong("no byte is compared");
    if (e.kind != Expectation::Kind::kSum && size % BytesOf(e.element) != 0) {
      return s.Wrong(size, " bytes are no whole number of ", NameOf(e.element));
    }
    return OkStatus();
  }
  Status TakeExpectation(Statement& s) {
    Expectation e;
    e.line = s.line();
    if (out_.expectations.size() == kMostChecks) return s.Wrong("more than ", kMostChecks);
    ASSIGN_OR_RETURN(e.buffer, s.Name("buffer"));
    const LaunchBuffer* buffer = FindBuffer(out_, e.buffer);
    if (buffer == nullptr) return s.Wrong("buffer ", Shown(e.buffer), ": no line above makes it");
    bool element = false, what = false, from = false, abs = false, rel = false;
    while (!s.done()) {
      const Statement::Setting set = s.Next();
      if (!set.has_value && !element) {
        element = true;
        RETURN_IF_ERROR(TakeElement(s, set.name, false, &e.element));
      } else if (set.name == "file" && !what && !set.value.empty()) {
        what = true;
        e.kind = Expectation::Kind::kFile;
        e.path = set.value;
      } else if (set.name == "value" && !what) {
        what = true;
        e.kind = Expectation::Kind::kValue;
        ASSIGN_OR_RETURN(e.value, s.RealOf(set.value, "value"));
      } else if (set.name == "sum" && !what) {
        what = true;
        e.kind = Expectation::Kind::kSum;
        std::vector<uint8_t> bytes;
        if (set.value.size() != 16 || !ParseHexBytes(set.value, &bytes)) {
          return s.Wrong("sum ", Shown(set.value), ": expected 16 hexadecimal digits, in small letters");
        }
        for (const uint8_t byte : bytes) e.sum = e.sum << 8 | byte;
      } else if (set.name == "from" && !from) {
        from = true;
        ASSIGN_OR_RETURN(e.from, s.NumberOf(set.value, "from", 0, kMostBufferBytes));
      } else if (set.name == "bytes" && !e.bytes.has_value()) {
        ASSIGN_OR_RETURN(e.bytes, s.NumberOf(set.value, "bytes", 1, kMostBufferBytes));
      } else if (set.name == "abs" && !abs) {
        abs = true;
        ASSIGN_OR_RETURN(e.absolute, s.RealOf(set.value, "abs"));
      } else if (set.name == "rel" && !rel) {
        rel = true;
        ASSIGN_OR_RETURN(e.relative, s.RealOf(set.value, "rel"));
      } else {
        return s.Wrong(Shown(set.name), ": given again, or no setting; there are a type, file= value= sum= from= "
                       "bytes= abs= rel=");
      }
    }
    if (!what) return s.Wrong("one of file= value= sum= is missing");
    if ((e.kind == Expectation::Kind::kSum) == element) {
      return s.Wrong(element ? "sum= takes no type" : "the type of its elements is missing");
    }
    if ((abs || rel) && e.kind == Expectation::Kind::kSum) return s.Wrong("sum= takes neither abs= nor rel=");
    if (e.absolute < 0 || e.relative < 0) return s.Wrong("abs and rel: expected 0 or more");
    RETURN_IF_ERROR(CheckRange(s, *buffer, e));
    out_.expectations.push_back(std::move(e));
    return OkStatus();
  }

  Status TakeOutput(Statement& s) {
    LaunchOutput output;
    output.line = s.line();
    if (out_.outputs.size() == kMostChecks) return s.Wrong("more than ", kMostChecks);
    ASSIGN_OR_RETURN(output.buffer, s.Name("buffer"));
    if (FindBuffer(out_, output.buffer) == nullptr) {
      return s.Wrong("buffer ", Shown(output.buffer), ": no line above makes it");
    }
    ASSIGN_OR_RETURN(output.path, s.Text("path"));
    out_.outputs.push_back(std::move(output));
    return s.End();
  }

  Status CheckWhole() const {
    if (!begun_) return Wrong("no statement; expected \"mainarch-launch 1\"");
    if (out_.object_line == 0) return Wrong("there is no statement \"object\"");
    if (out_.kernel_line == 0) return Wrong("there is no statement \"kernel\"");
    if (out_.workgroups_line == 0) return Wrong("there is no statement \"workgroups\"");
    if (out_.workgroup_line == 0) return Wrong("there is no statement \"workgroup\"");
    for (size_t d = 0; d < 3; ++d) {
      const uint64_t items = uint64_t{out_.workgroups[d]} * out_.workgroup[d];
      if (items > UINT32_MAX) {
        return Error(Code::kBadModel, out_.name, ":", out_.workgroups_line, ": \"workgroups\": ", items,
                     " work-items along ", absl::string_view("xyz").substr(d, 1), "; at most ", UINT32_MAX);
      }
    }
    uint64_t total = 0;
    for (const LaunchBuffer& buffer : out_.buffers) total += buffer.bytes * out_.rotate;  // < 2^58
    if (total > kMostBufferBytes) {
      return Wrong("buffers of ", total, " bytes in all, with their copies; at most ", kMostBufferBytes);
    }
    if (out_.kernarg.has_value()) {
      for (const LaunchArgument& argument : out_.arguments) {
        if (argument.offset + argument.size > *out_.kernarg) {
          return Error(Code::kBadModel, out_.name, ":", argument.line, ": \"arg\": ends at byte ",
                       argument.offset + argument.size, "; line ", out_.kernarg_line, " says kernarg ",
                       *out_.kernarg);
        }
      }
    }
    return OkStatus();
  }

  LaunchFile out_;
  bool begun_ = false;
  int runs_line_ = 0, rotate_line_ = 0;
};

std::string Quoted(const std::string& text) { return absl::StrCat("\"", text, "\""); }
std::string Real(double value) { return absl::StrFormat("%.17g", value); }

std::string FillText(const Fill& fill) {
  switch (fill.kind) {
    case Fill::Kind::kNone:
      return "";
    case Fill::Kind::kZero:
      return " zero";
    case Fill::Kind::kRandom: {
      std::string text = absl::StrCat(" random=", NameOf(fill.element), " seed=", fill.seed);
      if (fill.element != Element::kFp8) {
        absl::StrAppend(&text, " low=", Real(fill.low), " high=", Real(fill.high));
      }
      return text;
    }
    case Fill::Kind::kPattern: {
      std::string text = " pattern=";
      for (const uint8_t byte : fill.pattern) absl::StrAppendFormat(&text, "%02x", byte);
      return text;
    }
    case Fill::Kind::kFile:
      return absl::StrCat(" file=", Quoted(fill.path), " at=", fill.at);
  }
  return "";
}

std::string ExpectationText(const Expectation& e) {
  std::string text = absl::StrCat("expect ", e.buffer);
  if (e.kind != Expectation::Kind::kSum) absl::StrAppend(&text, " ", NameOf(e.element));
  if (e.kind == Expectation::Kind::kFile) absl::StrAppend(&text, " file=", Quoted(e.path));
  if (e.kind == Expectation::Kind::kValue) absl::StrAppend(&text, " value=", Real(e.value));
  if (e.kind == Expectation::Kind::kSum) absl::StrAppendFormat(&text, " sum=%016x", e.sum);
  absl::StrAppend(&text, " from=", e.from);
  if (e.bytes.has_value()) absl::StrAppend(&text, " bytes=", *e.bytes);
  if (e.kind != Expectation::Kind::kSum) {
    absl::StrAppend(&text, " abs=", Real(e.absolute), " rel=", Real(e.relative));
  }
  return text;
}

}  // namespace

uint32_t BytesOf(Element element) { return FactsOf(element).bytes; }
absl::string_view NameOf(Element element) { return FactsOf(element).name; }
bool IsInteger(Element element) { return element <= Element::kI64; }

const LaunchBuffer* FindBuffer(const LaunchFile& launch, absl::string_view name) {
  for (const LaunchBuffer& buffer : launch.buffers) {
    if (buffer.name == name) return &buffer;
  }
  return nullptr;
}

StatusOr<LaunchFile> ParseLaunchFile(absl::string_view text, absl::string_view name) {
  return Parser(name).Parse(text);
}

std::string LaunchText(const LaunchFile& l) {
  std::string text = "mainarch-launch 1\n";
  if (!l.isa.empty()) absl::StrAppend(&text, "isa ", l.isa, "\n");
  absl::StrAppend(&text, "object ", Quoted(l.object), "\nkernel ", Quoted(l.kernel), "\n");
  absl::StrAppend(&text, "workgroups ", absl::StrJoin(l.workgroups, " "), "\n");
  absl::StrAppend(&text, "workgroup ", absl::StrJoin(l.workgroup, " "), "\n");
  if (l.lds_line != 0) absl::StrAppend(&text, "lds ", l.lds, "\n");
  if (l.kernarg.has_value()) absl::StrAppend(&text, "kernarg ", *l.kernarg, "\n");
  if (l.device_arguments) absl::StrAppend(&text, "arguments device\n");
  if (l.resident) absl::StrAppend(&text, "resident\n");
  absl::StrAppend(&text, "runs ", l.runs, "\nrotate ", l.rotate, "\n");
  for (const LaunchBuffer& buffer : l.buffers) {
    absl::StrAppend(&text, "buffer ", buffer.name, " ", buffer.bytes, FillText(buffer.fill), "\n");
  }
  for (const LaunchArgument& argument : l.arguments) {
    absl::StrAppend(&text, "arg ", argument.offset, " ", argument.type, " ");
    if (argument.buffer.empty()) {
      absl::StrAppend(&text, Quoted(argument.text), "\n");
    } else {
      absl::StrAppend(&text, argument.buffer, " ", argument.value, "\n");
    }
  }
  for (const Expectation& e : l.expectations) absl::StrAppend(&text, ExpectationText(e), "\n");
  for (const LaunchOutput& output : l.outputs) {
    absl::StrAppend(&text, "write ", output.buffer, " ", Quoted(output.path), "\n");
  }
  return text;
}

}  // namespace mainarch::cli
