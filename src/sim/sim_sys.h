// SPDX-License-Identifier: MIT
//
// The virtual node behind the driver seam: one process' view of a Node. Open, ioctl and mmap on the
// node's devices lead to the node; its sysfs files are served from memory; everything else goes to
// the host. Every file descriptor is a real one (a memory file stands for a device), so numbers
// never collide with the host's, and a file is known by its device and inode, so duplicates work.
//
// Several SimSys on one Node are several processes that share the GPUs.
//
// Threads: any, as kfd::Sys. The Node must outlive it (it holds a reference).
#ifndef MAINARCH_SIM_SIM_SYS_H_
#define MAINARCH_SIM_SIM_SYS_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/fd.h"
#include "kfd/sim_part.h"
#include "sim/node.h"
#include "sim/process.h"

namespace mainarch::sim {

class SimSys final : public kfd::VirtualSys {
 public:
  explicit SimSys(std::shared_ptr<Node> node);
  ~SimSys() override;

  int Open(const char* path, int flags) override;
  int Close(int fd) override;
  int Dup(int fd) override;
  int Ioctl(int fd, uint32_t request, void* argument) override;
  int64_t Read(int fd, void* buffer, size_t size) override;
  int64_t Write(int fd, const void* buffer, size_t size) override;
  int Poll(pollfd* fds, size_t count, int timeout_ms) override;
  int Mmap(void* hint, size_t size, int protection, int flags, int fd, uint64_t offset,
           void** address) override;
  int Munmap(void* address, size_t size) override;
  int Madvise(void* address, size_t size, int advice) override;
  int ReadFile(const std::string& path, size_t limit, std::string* text) override;
  int ListDir(const std::string& path, std::vector<std::string>* names) override;
  int Stat(const std::string& path, kfd::FileStat* out) override;
  kfd::Identity WhoAmI() override;
  int64_t DriverPid() override { return process_->pid(); }
  // The first line of the node's log that tells of a halted wave, as after a checker's finding.
  std::string Diagnose() override;
  kfd::DeviceTime Time() override { return node_->Time(); }

  bool IsDevice(int fd) const override;
  bool StatDevice(int fd, kfd::FileStat* out) const override;
  int CloseShared(int fd) override;
  int Mprotect(void* address, size_t size, int protection) override {
    return process_->ProtectUserMemory(address, size, protection);
  }
  void LogTo(UniqueFd file) override { node_->LogTo(std::move(file)); }
  void Stop() override { node_->Stop(); }

  Node& node() { return *node_; }
  Process& process() { return *process_; }
  // Everything this process holds now.
  Ledger ledger();

 private:
  struct File {
    enum class Kind : uint8_t { kKfd, kRender, kDmabuf, kSmi, kText };
    Kind kind = Kind::kText;
    uint32_t gpu = 0;
    uint64_t id = 0;  // of a DRM file, unique on the node
    int owner = 0;    // pid that opened it
    int opens = 1;
    std::shared_ptr<Buffer> buffer;
  };

  std::shared_ptr<File> Lookup(int fd) const;
  void Dropped(const File* file);  // its last descriptor is closed
  int Install(int fd, std::shared_ptr<File> file);
  int OpenText(const std::string& text, int flags);
  int ExportFd(std::shared_ptr<Buffer> buffer, int flags);
  std::shared_ptr<Buffer> ImportFd(int fd) const;
  int SmiFd(uint32_t gpu, UniqueFd* driver_end);
  int64_t DeviceOffset(const File& file, uint64_t cookie, uint64_t size);
  void NoteMapped(uint64_t address, uint64_t size);
  void NoteUnmapped(uint64_t address, uint64_t size);

  std::shared_ptr<Node> node_;
  std::unique_ptr<Process> process_;
  Process::Caller caller_;
  mutable std::mutex mutex_;
  std::map<FileKey, std::shared_ptr<File>> files_;
  std::map<uint64_t, uint64_t> mapped_;  // address -> end, disjoint
};

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_SIM_SYS_H_
