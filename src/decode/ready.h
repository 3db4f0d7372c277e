// SPDX-License-Identifier: MIT
//
// Which sequences have something for the caller, in the order in which they came to have it: a list
// through an array, so that joining and leaving take constant time and no memory.
#ifndef MAINARCH_DECODE_READY_H_
#define MAINARCH_DECODE_READY_H_

#include <cstdint>
#include <vector>

namespace mainarch::decode {

class ReadyList {
 public:
  explicit ReadyList(uint32_t sequences) : links_(sequences + 1, {kOut, kOut}), end_(sequences) {
    links_[end_] = {end_, end_};
  }

  void Set(uint32_t index, bool ready) {
    if (ready != (links_[index].next != kOut)) ready ? Join(index) : Leave(index);
  }
  uint32_t size() const { return size_; }
  // for (i = begin(); i != end(); i = next(i))
  uint32_t begin() const { return links_[end_].next; }
  uint32_t end() const { return end_; }
  uint32_t next(uint32_t index) const { return links_[index].next; }

 private:
  static constexpr uint32_t kOut = UINT32_MAX;
  struct Link {
    uint32_t before, next;  // kOut: not in the list
  };

  void Join(uint32_t index) {
    links_[index] = {links_[end_].before, end_};
    links_[links_[end_].before].next = index;
    links_[end_].before = index;
    ++size_;
  }
  void Leave(uint32_t index) {
    links_[links_[index].before].next = links_[index].next;
    links_[links_[index].next].before = links_[index].before;
    links_[index] = {kOut, kOut};
    --size_;
  }

  std::vector<Link> links_;  // [sequences], then the ring's own
  uint32_t end_;
  uint32_t size_ = 0;
};

}  // namespace mainarch::decode

#endif  // MAINARCH_DECODE_READY_H_
