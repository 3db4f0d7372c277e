// SPDX-License-Identifier: MIT
#include <utility>

#include "text/regex.h"
#include "text/unicode_property.h"
#include "text/utf8.h"

namespace mainarch::text {

// Trees to code.
class RegexCompiler {
 public:
  explicit RegexCompiler(Regex* out) : out_(*out) {}

  Status Run(const RegexNode& root) {
    out_.may_be_empty_ = CanBeEmpty(root);
    if (!out_.may_be_empty_) out_.first_ = AddSet(FirstOf(root));
    RETURN_IF_ERROR(Emit(root, nullptr));
    Add(Op::kEnd);
    return OkStatus();
  }

 private:
  using Op = Regex::Op;
  static constexpr size_t kMaxCode = 8192;
  static constexpr size_t kMaxSets = 1024;

  uint32_t Here() const { return static_cast<uint32_t>(out_.code_.size()); }

  uint32_t Add(Op op, uint32_t a = 0, uint32_t b = 0) {
    out_.code_.push_back({op, a, b, {}});
    return Here() - 1;
  }

  uint32_t AddSet(const PointRanges& set) {
    out_.sets_.emplace_back(set);
    return static_cast<uint32_t>(out_.sets_.size() - 1);
  }

  // `next` is what follows, if that is known.
  Status Emit(const RegexNode& node, const RegexNode* next) {
    if (out_.code_.size() > kMaxCode || out_.sets_.size() > kMaxSets) {
      return Error(Code::kUnsupported, "pattern takes over ", kMaxCode, " steps when written out");
    }
    switch (node.kind) {
      case RegexKind::kEmpty:
        return OkStatus();
      case RegexKind::kSet:
        Add(Op::kSet, AddSet(node.set));
        return OkStatus();
      case RegexKind::kSequence:
        for (size_t i = 0; i < node.children.size(); ++i) {
          const bool last = i + 1 == node.children.size();
          RETURN_IF_ERROR(Emit(node.children[i], last ? next : &node.children[i + 1]));
        }
        return OkStatus();
      case RegexKind::kEither:
        return EmitEither(node);
      case RegexKind::kRepeat:
        return EmitRepeat(node, next);
      case RegexKind::kAhead:
        return EmitInner(Op::kAhead, node.children[0], node.negated);
      case RegexKind::kAtomic:
        return EmitInner(Op::kAtomic, node.children[0], false);
      case RegexKind::kBehind:
        Add(Op::kBehind, AddSet(node.set), node.negated);
        return OkStatus();
      case RegexKind::kAssert:
        Add(Op::kPlace, static_cast<uint32_t>(node.place));
        return OkStatus();
    }
    return OkStatus();
  }

  Status EmitInner(Op op, const RegexNode& child, bool negated) {
    const uint32_t at = Add(op, 0, negated);
    RETURN_IF_ERROR(Emit(child, nullptr));
    Add(Op::kEnd);
    out_.code_[at].a = Here();
    return OkStatus();
  }

  Status EmitEither(const RegexNode& node) {
    std::vector<uint32_t> jumps;
    for (size_t i = 0; i < node.children.size(); ++i) {
      const RegexNode& child = node.children[i];
      if (i + 1 == node.children.size()) {
        RETURN_IF_ERROR(Emit(child, nullptr));
        break;
      }
      const uint32_t fork =
          CanBeEmpty(child) ? Add(Op::kFork) : Add(Op::kForkIf, 0, AddSet(FirstOf(child)));
      RETURN_IF_ERROR(Emit(child, nullptr));
      jumps.push_back(Add(Op::kJump));
      out_.code_[fork].a = Here();
    }
    for (const uint32_t jump : jumps) out_.code_[jump].a = Here();
    return OkStatus();
  }

  Status EmitRepeat(const RegexNode& node, const RegexNode* next) {
    const RegexNode& child = node.children[0];
    if (child.kind == RegexKind::kSet) {
      const uint32_t at = Add(Op::kLoop, AddSet(child.set));
      out_.code_[at].loop = {node.min, node.max, node.greed};
      // What follows begins with none of these characters: giving one back never helps.
      if (node.greed == RegexGreed::kGreedy && next != nullptr && !CanBeEmpty(*next) &&
          FirstOf(*next).Intersection(child.set).empty()) {
        out_.code_[at].loop.greed = RegexGreed::kPossessive;
      }
      return OkStatus();
    }
    if (node.greed == RegexGreed::kPossessive) {
      RegexNode greedy = node;
      greedy.greed = RegexGreed::kGreedy;
      return EmitInner(Op::kAtomic, greedy, false);
    }
    for (uint32_t i = 0; i < node.min; ++i) RETURN_IF_ERROR(Emit(child, nullptr));
    const Op fork = node.greed == RegexGreed::kLazy ? Op::kForkFar : Op::kFork;
    if (node.max == kNoLimit) {
      const uint32_t at = Add(fork);
      RETURN_IF_ERROR(Emit(child, nullptr));
      Add(Op::kJump, at);
      out_.code_[at].a = Here();
      return OkStatus();
    }
    std::vector<uint32_t> forks;
    for (uint32_t i = node.min; i < node.max; ++i) {
      forks.push_back(Add(fork));
      RETURN_IF_ERROR(Emit(child, nullptr));
    }
    for (const uint32_t at : forks) out_.code_[at].a = Here();
    return OkStatus();
  }

  Regex& out_;
};

StatusOr<std::shared_ptr<const Regex>> Regex::Create(absl::string_view pattern) {
  ASSIGN_OR_RETURN(const RegexNode root, ParseRegex(pattern));
  std::shared_ptr<Regex> regex(new Regex);
  RETURN_IF_ERROR(RegexCompiler(regex.get()).Run(root));
  return std::shared_ptr<const Regex>(std::move(regex));
}

}  // namespace mainarch::text
