// SPDX-License-Identifier: MIT
#include "sim/launcher.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/fd.h"
#include "kfd/sim_part.h"
#include "sim/script.h"

namespace mainarch::sim {
namespace {

namespace stdfs = std::filesystem;

Status WriteFile(const std::string& path, absl::string_view text) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444));
  if (!fd.valid()) return ErrnoError(Code::kIo, errno, "create ", path);
  while (!text.empty()) {
    const ssize_t part = write(fd.get(), text.data(), text.size());
    if (part < 0) return ErrnoError(Code::kIo, errno, "write ", path);
    text.remove_prefix(static_cast<size_t>(part));
  }
  return OkStatus();
}

// Makes directories, asking the kernel for each only once: a node of eight GPUs has five thousand.
class DirectoryMaker {
 public:
  explicit DirectoryMaker(const std::string& existing) { made_.insert(existing); }

  Status Make(const std::string& path) {
    if (made_.count(path) != 0) return OkStatus();
    const size_t slash = path.rfind('/');
    if (slash != std::string::npos && slash != 0) RETURN_IF_ERROR(Make(path.substr(0, slash)));
    if (mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) {
      return ErrnoError(Code::kIo, errno, "create the directory ", path);
    }
    made_.insert(path);
    return OkStatus();
  }
  Status MakeParent(const std::string& path) { return Make(path.substr(0, path.rfind('/'))); }

 private:
  std::unordered_set<std::string> made_;
};

constexpr char kMemory[] = "/dev/shm", kPrefix[] = "mainarch-sim-";
constexpr uint64_t kTreeBytes = uint64_t{128} << 20;  // 10,500 files, a page each, and directories
constexpr int64_t kYoung = 60;                        // seconds

// Where the tree goes: memory, as sysfs is, where there is room for it; a disk takes seconds.
std::string TreeParent() {
  struct statfs fs = {};
  std::error_code error;
  if (statfs(kMemory, &fs) == 0 && fs.f_type == TMPFS_MAGIC && access(kMemory, W_OK | X_OK) == 0 &&
      uint64_t{fs.f_bavail} * static_cast<uint64_t>(fs.f_bsize) > kTreeBytes) {
    return kMemory;
  }
  return stdfs::temp_directory_path(error).string();
}

// Removes what launchers left that were killed: each holds a lock on its directory while it lives.
// One that has just been made may not be locked yet.
void RemoveAbandoned(const std::string& parent) {
  std::error_code error;
  for (stdfs::directory_iterator at(parent, error), end; !error && at != end; at.increment(error)) {
    const std::string path = at->path().string();
    if (!absl::StartsWith(at->path().filename().string(), kPrefix)) continue;
    const UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat info = {};
    if (!fd.valid() || fstat(fd.get(), &info) != 0 || info.st_uid != geteuid()) continue;
    if (time(nullptr) - info.st_mtime < kYoung || flock(fd.get(), LOCK_EX | LOCK_NB) != 0) continue;
    std::error_code ignored;  // another launcher may be at it, too
    stdfs::remove_all(path, ignored);
  }
}

// A directory that goes, with what is in it, at the end of the scope.
class Directory {
 public:
  static StatusOr<Directory> Create() {
    const std::string parent = TreeParent();
    RemoveAbandoned(parent);
    std::string pattern = parent + "/" + kPrefix + "XXXXXX";
    if (parent.empty() || mkdtemp(pattern.data()) == nullptr) {
      return ErrnoError(Code::kIo, errno, "create a directory ", pattern);
    }
    UniqueFd lock(open(pattern.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (lock.valid()) flock(lock.get(), LOCK_SH);
    return Directory(pattern, std::move(lock));
  }
  Directory(Directory&& other) noexcept
      : path_(std::exchange(other.path_, "")), lock_(std::move(other.lock_)) {}
  ~Directory() {
    std::error_code ignored;
    if (!path_.empty()) stdfs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  Directory(std::string path, UniqueFd lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  UniqueFd lock_;
};

std::vector<std::string> Environment(const LaunchOptions& options, const std::string& root) {
  std::vector<std::string> result;
  std::string preload = options.library;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const absl::string_view text = *entry;
    if (absl::StartsWith(text, "LD_PRELOAD=")) {
      absl::StrAppend(&preload, ":", text.substr(11));
    } else if (!absl::StartsWith(text, "MAINARCH_SIM_")) {
      result.emplace_back(text);
    }
  }
  result.push_back(absl::StrCat("LD_PRELOAD=", preload));
  result.push_back(absl::StrCat(kNodeVariable, "=", options.node));
  result.push_back(absl::StrCat(kRootVariable, "=", root));
  if (!options.faults.empty()) result.push_back(absl::StrCat(kScriptVariable, "=", options.faults));
  if (!options.log.empty()) result.push_back(absl::StrCat(kLogVariable, "=", options.log));
  if (!options.lines.empty()) {
    result.push_back(absl::StrCat(kLinesVariable, "=", absl::StrJoin(options.lines, ":")));
  }
  return result;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& one : strings) result.push_back(one.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Status WriteTree(const VirtualFs& fs, const std::string& root) {
  DirectoryMaker directories(root);
  for (const auto& [path, entry] : fs.entries()) {
    const std::string target = root + path;
    RETURN_IF_ERROR(directories.MakeParent(target));
    if (entry.kind == VirtualFs::Entry::Kind::kLink) {
      if (symlink((root + entry.text).c_str(), target.c_str()) != 0) {
        return ErrnoError(Code::kIo, errno, "link ", target);
      }
    } else if (entry.kind == VirtualFs::Entry::Kind::kDirectory) {
      RETURN_IF_ERROR(directories.Make(target));
    } else if (entry.error == 0) {
      RETURN_IF_ERROR(WriteFile(target, entry.text));
    }
  }
  for (const auto& [from, to] : fs.directory_links()) {
    RETURN_IF_ERROR(directories.MakeParent(root + from));
    if (symlink((root + to).c_str(), (root + from).c_str()) != 0) {
      return ErrnoError(Code::kIo, errno, "link ", root, from);
    }
  }
  return OkStatus();
}

StatusOr<LaunchOptions> ParseLaunch(absl::Span<const std::string> arguments,
                                    const std::string& library) {
  LaunchOptions options;
  options.library = library;
  size_t at = 0;
  while (at < arguments.size() && absl::StartsWith(arguments[at], "--")) {
    const absl::string_view name = arguments[at];
    ++at;
    if (name == "--") break;
    std::string* value = name == "--node"      ? &options.node
                         : name == "--faults"  ? &options.faults
                         : name == "--log"     ? &options.log
                         : name == "--library" ? &options.library
                         : name == "--lines"   ? &options.lines.emplace_back()
                                               : nullptr;
    if (value == nullptr) {
      return Error(Code::kInvalidArgument, "sim: unknown option ", name,
                   "; known: --node --faults --log --lines --library");
    }
    if (at == arguments.size()) {
      return Error(Code::kInvalidArgument, "sim: option ", name, " needs a value");
    }
    *value = arguments[at++];
  }
  options.command.assign(arguments.begin() + static_cast<ptrdiff_t>(at), arguments.end());
  if (options.command.empty()) {
    return Error(Code::kInvalidArgument,
                 "sim: no program named; try: sim --node gfx90ax2 -- rocminfo");
  }
  RETURN_IF_ERROR(ParseNode(options.node).status());
  return options;
}

StatusOr<int> RunProgram(const LaunchOptions& given) {
  if (given.command.empty()) return Error(Code::kInvalidArgument, "no program to run");
  ASSIGN_OR_RETURN(NodeConfig config, ParseNode(given.node));
  LaunchOptions options = given;
  if (config.sockets == 0 && access("/sys/devices/system/node/node1", F_OK) != 0) {
    config.sockets = 1;
    absl::StrAppend(&options.node, ",sockets=1");  // what the library makes the node of
  }
  Script script;
  RETURN_IF_ERROR(script.Add(options.faults));
  for (const std::string& path : options.lines) RETURN_IF_ERROR(AddLines(path, &config));
  if (access(options.library.c_str(), R_OK) != 0) {
    return ErrnoError(Code::kNotFound, errno, "on Debian the virtual node is in the package ",
                      kfd::kSimPackage, "; preload library '", options.library, "'");
  }
  // By its full path, because it looks for the node beside itself.
  std::error_code relative;
  options.library = stdfs::absolute(options.library, relative).string();
  ASSIGN_OR_RETURN(const Directory root, Directory::Create());
  RETURN_IF_ERROR(WriteTree(VirtualFs(config), root.path()));
  if (!options.log.empty()) {
    // Emptied here: every process of the program that has a node adds to it.
    const UniqueFd log(open(options.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!log.valid()) return ErrnoError(Code::kIo, errno, "create ", options.log);
    options.log = stdfs::absolute(options.log, relative).string();
  }
  std::vector<std::string> environment = Environment(options, root.path());
  std::vector<std::string> command = options.command;
  pid_t child = 0;
  const int error = posix_spawnp(&child, command[0].c_str(), nullptr, nullptr,
                                 Pointers(command).data(), Pointers(environment).data());
  if (error != 0) return ErrnoError(Code::kNotFound, error, "run ", command[0]);
  if (options.running) {
    options.running(child);
    siginfo_t ended;
    while (waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) < 0 && errno == EINTR)
      continue;
    options.running(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return ErrnoError(Code::kInternal, errno, "wait for ", command[0]);
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace mainarch::sim
