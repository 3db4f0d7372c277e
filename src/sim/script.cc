// SPDX-License-Identifier: MIT
#include "sim/script.h"

#include <cerrno>
#include <iterator>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace mainarch::sim {
namespace {

constexpr const char* kIoctlNames[] = {"",
                                       "GET_VERSION",
                                       "CREATE_QUEUE",
                                       "DESTROY_QUEUE",
                                       "SET_MEMORY_POLICY",
                                       "GET_CLOCK_COUNTERS",
                                       "GET_PROCESS_APERTURES",
                                       "UPDATE_QUEUE",
                                       "CREATE_EVENT",
                                       "DESTROY_EVENT",
                                       "SET_EVENT",
                                       "RESET_EVENT",
                                       "WAIT_EVENTS",
                                       "DBG_REGISTER",
                                       "DBG_UNREGISTER",
                                       "DBG_ADDRESS_WATCH",
                                       "DBG_WAVE_CONTROL",
                                       "SET_SCRATCH_BACKING_VA",
                                       "GET_TILE_CONFIG",
                                       "SET_TRAP_HANDLER",
                                       "GET_PROCESS_APERTURES_NEW",
                                       "ACQUIRE_VM",
                                       "ALLOC_MEMORY",
                                       "FREE_MEMORY",
                                       "MAP_MEMORY",
                                       "UNMAP_MEMORY",
                                       "SET_CU_MASK",
                                       "GET_QUEUE_WAVE_STATE",
                                       "GET_DMABUF_INFO",
                                       "IMPORT_DMABUF",
                                       "ALLOC_QUEUE_GWS",
                                       "SMI_EVENTS",
                                       "SVM",
                                       "SET_XNACK_MODE",
                                       "CRIU_OP",
                                       "AVAILABLE_MEMORY",
                                       "EXPORT_DMABUF",
                                       "RUNTIME_ENABLE",
                                       "DBG_TRAP"};

constexpr std::pair<const char*, int> kErrnos[] = {
    {"EPERM", EPERM},   {"ENOENT", ENOENT}, {"ESRCH", ESRCH},   {"EINTR", EINTR},
    {"EIO", EIO},       {"EBADF", EBADF},   {"EAGAIN", EAGAIN}, {"ENOMEM", ENOMEM},
    {"EACCES", EACCES}, {"EFAULT", EFAULT}, {"EBUSY", EBUSY},   {"EEXIST", EEXIST},
    {"ENODEV", ENODEV}, {"EINVAL", EINVAL}, {"EMFILE", EMFILE}, {"ENOTTY", ENOTTY},
    {"ENOSPC", ENOSPC}, {"ETIME", ETIME},   {"ENFILE", ENFILE}, {"ENOSYS", ENOSYS}};

// Calls that are counted whatever they are about.
bool IsPlainCall(absl::string_view what) {
  return what == "open" || what == "mmap" || what == "munmap" || what == "madvise";
}

Status Wrong(absl::string_view rule, absl::string_view why) {
  return Error(Code::kInvalidArgument, "fault rule '", rule, "': ", why);
}

}  // namespace

absl::string_view IoctlName(uint32_t number) {
  return number < std::size(kIoctlNames) ? kIoctlNames[number] : "";
}

// `rest` is what stands behind '@' or ':': a count, and for calls an errno.
Status Script::ParseEnd(absl::string_view text, absl::string_view rest, Rule* rule) {
  const bool is_call = rule->what == "ioctl" || IsPlainCall(rule->what);
  const std::vector<absl::string_view> parts = absl::StrSplit(rest, absl::MaxSplits(':', 1));
  if (!is_call && rule->what != "page" && rule->what != "lose") rule->turn = absl::ConsumePrefix(&rest, "t");
  const bool hex = absl::ConsumePrefix(&rest, "0x");
  const bool number = hex && !is_call ? absl::SimpleHexAtoi(rest, &rule->at)
                                      : absl::SimpleAtoi(rule->turn ? rest : parts[0], &rule->at);
  if (!number || rule->at == 0) return Wrong(text, "a number from 1 on must stand behind '@'");
  if (!is_call) return OkStatus();
  if (parts.size() < 2) return Wrong(text, "':ERRNO' is missing");
  for (const auto& [name, value] : kErrnos) {
    if (parts[1] == name) rule->error = value;
  }
  if (rule->error == 0) return Wrong(text, absl::StrCat("no errno '", parts[1], "' is known"));
  return OkStatus();
}

StatusOr<Script::Rule> Script::ParseRule(absl::string_view text) {
  Rule rule;
  const size_t stop = text.find_first_of("=@");
  rule.what = std::string(text.substr(0, stop));
  if (stop == absl::string_view::npos) return Wrong(text, "'=' or '@' is missing");
  absl::string_view rest = text.substr(stop + 1);
  if (IsPlainCall(rule.what)) {
    RETURN_IF_ERROR(ParseEnd(text, rest, &rule));
    return rule;
  }
  if (rule.what == "slow") {
    const std::vector<absl::string_view> parts = absl::StrSplit(rest, absl::ByAnyChar("-:"));
    uint32_t gpu = 0;
    if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &gpu) ||
        !absl::SimpleAtoi(parts[1], &rule.peer) || !absl::SimpleAtoi(parts[2], &rule.at)) {
      return Wrong(text, "expected slow=GPU-GPU:MICROSECONDS");
    }
    rule.subject = absl::StrCat(gpu);
    return rule;
  }
  const size_t at = rest.find('@');
  if (at == absl::string_view::npos) return Wrong(text, "'@' is missing");
  rule.subject = std::string(rest.substr(0, at));
  if (rule.what == "ioctl") {
    uint32_t number = 1;
    while (number < std::size(kIoctlNames) && rule.subject != kIoctlNames[number]) ++number;
    if (rule.subject != "*") {
      if (number == std::size(kIoctlNames)) return Wrong(text, "no such ioctl is known");
      rule.subject = absl::StrCat(number);
    }
  } else {
    bool known = false;
    for (absl::string_view name : {"hang", "lose", "fault", "reset", "ecc", "gone", "page"}) {
      known = known || rule.what == name;
    }
    if (!known) return Wrong(text, absl::StrCat("no fault '", rule.what, "' is known"));
    uint32_t gpu = 0;
    if (!absl::SimpleAtoi(rule.subject, &gpu)) return Wrong(text, "expected a GPU's index");
    rule.subject = absl::StrCat(gpu);
  }
  RETURN_IF_ERROR(ParseEnd(text, rest.substr(at + 1), &rule));
  return rule;
}

Status Script::Add(absl::string_view text) {
  std::vector<Rule> added;
  for (absl::string_view part : absl::StrSplit(text, ';', absl::SkipWhitespace())) {
    ASSIGN_OR_RETURN(Rule rule, ParseRule(absl::StripAsciiWhitespace(part)));
    added.push_back(std::move(rule));
  }
  std::lock_guard lock(mutex_);
  for (Rule& rule : added) rules_.push_back(std::move(rule));
  return OkStatus();
}

void Script::Clear() {
  std::lock_guard lock(mutex_);
  rules_.clear();
}

int Script::Match(absl::string_view what, const std::string& subject, uint64_t count, bool turn) const {
  for (const Rule& rule : rules_) {
    if (rule.what == what && rule.subject == subject && rule.at == count && rule.turn == turn) {
      return rule.error != 0 ? rule.error : 1;
    }
  }
  return 0;
}

int Script::OnIoctl(uint32_t number) {
  std::lock_guard lock(mutex_);
  const uint64_t any = ++counts_["ioctl"];
  const std::string subject = absl::StrCat(number);
  const uint64_t same = ++counts_[absl::StrCat("ioctl=", subject)];
  const int error = Match("ioctl", "*", any);
  return error != 0 ? error : Match("ioctl", subject, same);
}

int Script::OnCall(const char* what) {
  std::lock_guard lock(mutex_);
  return Match(what, "", ++counts_[what]);
}

int Script::OnOpen() { return OnCall("open"); }
int Script::OnMmap() { return OnCall("mmap"); }
int Script::OnMunmap() { return OnCall("munmap"); }
int Script::OnMadvise() { return OnCall("madvise"); }

Trouble Script::OnPacket(uint32_t gpu) {
  std::lock_guard lock(mutex_);
  if (rules_.empty()) return Trouble::kNone;
  const std::string subject = absl::StrCat(gpu);
  const uint64_t count = ++counts_[absl::StrCat("packet=", subject)];
  return TroubleAt(subject, count, false);
}

Trouble Script::OnTurn(uint32_t gpu) {
  std::lock_guard lock(mutex_);
  if (rules_.empty()) return Trouble::kNone;
  const std::string subject = absl::StrCat(gpu);
  return TroubleAt(subject, ++counts_[absl::StrCat("turn=", subject)], true);
}

Trouble Script::TroubleAt(const std::string& subject, uint64_t count, bool turn) const {
  constexpr std::pair<const char*, Trouble> kTroubles[] = {{"hang", Trouble::kHang},
                                                           {"fault", Trouble::kFault},
                                                           {"reset", Trouble::kReset},
                                                           {"ecc", Trouble::kEcc},
                                                           {"gone", Trouble::kGone}};
  for (const auto& [name, trouble] : kTroubles) {
    if (Match(name, subject, count, turn) != 0) return trouble;
  }
  return Trouble::kNone;
}

bool Script::LosesSignal(uint32_t gpu) {
  std::lock_guard lock(mutex_);
  if (rules_.empty()) return false;
  const std::string subject = absl::StrCat(gpu);
  return Match("lose", subject, ++counts_[absl::StrCat("signal=", subject)]) != 0;
}

uint32_t Script::ChunkDelayUs(uint32_t gpu_a, uint32_t gpu_b) const {
  std::lock_guard lock(mutex_);
  for (const Rule& rule : rules_) {
    if (rule.what != "slow") continue;
    const std::string a = absl::StrCat(gpu_a), b = absl::StrCat(gpu_b);
    if ((rule.subject == a && rule.peer == gpu_b) || (rule.subject == b && rule.peer == gpu_a)) {
      return static_cast<uint32_t>(rule.at);
    }
  }
  return 0;
}

std::vector<uint64_t> Script::BadPages(uint32_t gpu) const {
  std::lock_guard lock(mutex_);
  std::vector<uint64_t> pages;
  for (const Rule& rule : rules_) {
    if (rule.what == "page" && rule.subject == absl::StrCat(gpu)) pages.push_back(rule.at);
  }
  return pages;
}

uint64_t Script::ioctls() const {
  std::lock_guard lock(mutex_);
  const auto found = counts_.find("ioctl");
  return found == counts_.end() ? 0 : found->second;
}

}  // namespace mainarch::sim
