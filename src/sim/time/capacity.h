// SPDX-License-Identifier: MIT
//
// Something that serves so many bytes a clock: a channel, a link, a data path. Work is booked when it
// is issued, for the time at which it will arrive; it need not come in the order of its arrivals, so
// time is cut into buckets of fixed capacity and each piece of work takes the first with room.
#ifndef MAINARCH_SIM_TIME_CAPACITY_H_
#define MAINARCH_SIM_TIME_CAPACITY_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace mainarch::sim::timing {

using Clocks = int64_t;

class Capacity {
 public:
  Capacity() = default;
  // bucket: a power of two, in clocks.
  Capacity(double units_a_clock, int bucket_bits)
      : rate_(std::max(units_a_clock, 1e-6)),
        bits_(bucket_bits),
        room_(static_cast<float>(rate_ * static_cast<double>(Clocks{1} << bucket_bits))),
        ring_(kBuckets) {}

  // Books `units` that arrive at `at`; when their service begins.
  Clocks Take(Clocks at, double units) {
    int64_t b = FirstWithRoom(at >> bits_);
    Bucket& bucket = Of(b);
    const Clocks begins =
        (b << bits_) + static_cast<Clocks>(static_cast<double>(bucket.used) / rate_);
    float left = static_cast<float>(units);
    // What is larger than a bucket's rest goes on in the next ones.
    int64_t to = b;
    while (left > 0) {
      Bucket& part = Of(to);
      const float take = std::min(left, room_ - part.used);
      part.used += take;
      left -= take;
      if (left <= 0) break;
      to = FirstWithRoom(to + 1);
    }
    return std::max(at, begins);
  }
  double rate() const { return rate_; }
  // Clocks that `units` alone take.
  Clocks Span(double units) const { return static_cast<Clocks>(units / rate_ + 0.5); }

 private:
  static constexpr int64_t kBuckets = 2048;
  struct Bucket {
    int64_t number = -1;
    float used = 0;
    int32_t skip = 1;  // buckets to the next that may have room
  };

  Bucket& Of(int64_t b) {
    Bucket& bucket = ring_[static_cast<size_t>(b & (kBuckets - 1))];
    if (bucket.number != b) bucket = {b, 0, 1};
    return bucket;
  }
  bool Full(const Bucket& bucket) const { return bucket.used >= room_ * 0.9999f; }

  int64_t FirstWithRoom(int64_t b) {
    // Buckets that a later time has taken over are past and gone.
    b = std::max(b, newest_ - kBuckets + 1);
    const int64_t from = b;
    for (;;) {
      Bucket& bucket = ring_[static_cast<size_t>(b & (kBuckets - 1))];
      if (bucket.number != b || !Full(bucket)) break;
      b += bucket.skip;
    }
    newest_ = std::max(newest_, b);
    if (b != from) {
      Bucket& first = ring_[static_cast<size_t>(from & (kBuckets - 1))];
      if (first.number == from) first.skip = static_cast<int32_t>(std::min<int64_t>(b - from, kBuckets / 2));
    }
    return b;
  }

  double rate_ = 1;
  int bits_ = 5;
  float room_ = 32;
  int64_t newest_ = 0;
  std::vector<Bucket> ring_;
};

}  // namespace mainarch::sim::timing

#endif  // MAINARCH_SIM_TIME_CAPACITY_H_
