// SPDX-License-Identifier: MIT
//
// Between the machine's threads, which use page tables and queues all the time, and the driver's
// calls, which change them now and then. Machine threads hold the gate open for one sweep at a
// time; a call that closes it waits for the sweeps under way and keeps new ones out. A waiting
// closer goes first, so that sweeps cannot starve it.
#ifndef MAINARCH_SIM_GATE_H_
#define MAINARCH_SIM_GATE_H_

#include <condition_variable>
#include <mutex>

namespace mainarch::sim {

class Gate {
 public:
  class Sweep {
   public:
    explicit Sweep(Gate& gate) : gate_(gate) {
      std::unique_lock lock(gate_.mutex_);
      gate_.changed_.wait(lock, [this] { return gate_.closers_ == 0; });
      ++gate_.sweeps_;
    }
    ~Sweep() {
      std::lock_guard lock(gate_.mutex_);
      if (--gate_.sweeps_ == 0) gate_.changed_.notify_all();
    }
    Sweep(const Sweep&) = delete;
    Sweep& operator=(const Sweep&) = delete;

   private:
    Gate& gate_;
  };

  class Closed {
   public:
    explicit Closed(Gate& gate) : gate_(gate) {
      std::unique_lock lock(gate_.mutex_);
      ++gate_.closers_;
      gate_.changed_.wait(lock, [this] { return gate_.sweeps_ == 0 && !gate_.closed_; });
      gate_.closed_ = true;
    }
    ~Closed() {
      std::lock_guard lock(gate_.mutex_);
      gate_.closed_ = false;
      --gate_.closers_;
      gate_.changed_.notify_all();
    }
    Closed(const Closed&) = delete;
    Closed& operator=(const Closed&) = delete;

   private:
    Gate& gate_;
  };

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int sweeps_ = 0;
  int closers_ = 0;  // waiting or inside
  bool closed_ = false;
};

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_GATE_H_
