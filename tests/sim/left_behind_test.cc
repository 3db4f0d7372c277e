// SPDX-License-Identifier: MIT
//
// Whatever becomes of a program on a virtual node (killed in any state, forking, short of address
// space, one of sixteen), nothing stays behind: no process, no file under TMPDIR or of the node's
// files. The program is outside/state_client.cc, on a node of its own and under the preloaded
// library.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "sim/launcher.h"
#include "support/test.h"

namespace mainarch::sim {
namespace {

namespace stdfs = std::filesystem;

constexpr bool kSanitized =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#else
    false;
#endif

constexpr const char* kStates[] = {"node",    "process", "device",  "memory", "queues",
                                   "copying", "running", "waiting", "closed"};

std::string BuildRoot() {
  const char* root = std::getenv("MAINARCH_BUILD_ROOT");
  return root == nullptr ? "." : root;
}

// Where programs of this test make their files, and how they are known.
struct Place {
  std::string directory = mainarch::test::ScratchDirectory();
  std::string mark = absl::StrCat("MAINARCH_TEST_MARK=", getpid(), "-", directory);

  Place() { stdfs::create_directories(directory + "/tmp"); }

  // What is left, or nothing: processes with our mark, files below TMPDIR.
  std::string Left() const {
    std::string left;
    std::error_code error;
    for (const auto& entry : stdfs::directory_iterator(directory + "/tmp", error)) {
      absl::StrAppend(&left, " ", entry.path().string());
    }
    for (const auto& entry : stdfs::directory_iterator("/proc", error)) {
      std::ifstream file(entry.path() / "environ", std::ios::binary);
      std::stringstream text;
      text << file.rdbuf();
      if (!absl::StrContains(text.str(), mark)) continue;
      absl::StrAppend(&left, " process ", entry.path().filename().string());
    }
    return left;
  }
  // The same, with some time for what ends by itself.
  std::string LeftSoon() const {
    std::string left = Left();
    for (int i = 0; i < 100 && !left.empty(); ++i) {
      usleep(50'000);
      left = Left();
    }
    return left;
  }
};

struct Child {
  pid_t pid = -1;
  UniqueFd out;

  // The first line that it says, or what it said until it ended; waits a minute at most.
  std::string Line() const {
    std::string text;
    char byte = 0;
    pollfd ready = {out.get(), POLLIN, 0};
    while (text.find('\n') == std::string::npos && poll(&ready, 1, 60'000) == 1 &&
           read(out.get(), &byte, 1) == 1) {
      text += byte;
    }
    return text;
  }
  // Its wait status; one that does not end within a minute is killed: -1.
  int Wait() {
    int status = 0;
    for (int i = 0; i < 6000; ++i) {
      if (waitpid(pid, &status, WNOHANG) == pid) return status;
      usleep(10'000);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return -1;
  }
};

// state_client in `mode`, its output in a pipe. `bytes`: of address space, 0 for no limit.
Child Spawn(const Place& place, const std::string& mode, const std::string& state,
            uint64_t bytes = 0) {
  int ends[2];
  Child child;
  if (pipe2(ends, O_CLOEXEC) != 0) return child;
  const std::string client = BuildRoot() + "/tests/sim/state_client";
  child.out = UniqueFd(ends[0]);
  child.pid = fork();
  if (child.pid != 0) {
    close(ends[1]);
    return child;
  }
  dup2(ends[1], 1);
  setenv("TMPDIR", (place.directory + "/tmp").c_str(), 1);
  putenv(const_cast<char*>(place.mark.c_str()));
  if (bytes != 0) {
    const rlimit limit = {bytes, bytes};
    setrlimit(RLIMIT_AS, &limit);
  }
  // A program that dies of what it should not leaves no core either.
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  if (mode == "preload") {
    LaunchOptions options;
    options.node = "gfx950x1";
    options.library = BuildRoot() + "/src/sim/preload/libmainarch-sim-preload.so";
    options.command = {client, "kernel", state};
    const StatusOr<int> code = RunProgram(options);
    _exit(code.ok() ? *code : 99);
  }
  execl(client.c_str(), client.c_str(), mode.c_str(), state.c_str(), nullptr);
  _exit(98);
}

// Of a process: the one that it started. 0: none.
pid_t ProgramOf(pid_t launcher) {
  std::ifstream file(absl::StrCat("/proc/", launcher, "/task/", launcher, "/children"));
  pid_t program = 0;
  file >> program;
  return program;
}

// The directory of the node's files that a preloaded program sees.
std::string TreeOf(pid_t program) {
  std::ifstream file(absl::StrCat("/proc/", program, "/environ"), std::ios::binary);
  const std::string name = absl::StrCat(kRootVariable, "=");
  for (std::string entry; std::getline(file, entry, '\0');) {
    if (absl::StartsWith(entry, name)) return entry.substr(name.size());
  }
  return "";
}

TEST(killed_in_every_state) {
  const Place place;
  for (const int signal : {SIGKILL, SIGTERM}) {
    for (const char* state : kStates) {
      Child child = Spawn(place, "direct", state);
      CHECK_EQ(absl::StrCat(state, ": ", child.Line()), absl::StrCat(state, ": ready\n"));
      CHECK_EQ(kill(child.pid, signal), 0);
      const int status = child.Wait();
      CHECK(WIFSIGNALED(status) && WTERMSIG(status) == signal);
      CHECK_EQ(absl::StrCat(state, place.LeftSoon()), state);
    }
  }
}

TEST(killed_in_every_state_under_the_preloaded_library) {
  if (kSanitized) SKIP("a sanitizer build cannot be preloaded");
  const Place place;
  for (const int signal : {SIGKILL, SIGTERM}) {
    for (const char* state : kStates) {
      Child child = Spawn(place, "preload", state);
      CHECK_EQ(absl::StrCat(state, ": ", child.Line()), absl::StrCat(state, ": ready\n"));
      const pid_t program = ProgramOf(child.pid);
      CHECK_GT(program, 0);
      const std::string tree = TreeOf(program);
      CHECK(stdfs::exists(tree));
      CHECK_EQ(kill(program, signal), 0);
      const int status = child.Wait();
      CHECK(WIFEXITED(status));
      CHECK_EQ(WEXITSTATUS(status), 128 + signal);
      CHECK(!tree.empty() && !stdfs::exists(tree));
      CHECK_EQ(absl::StrCat(state, place.LeftSoon()), state);
    }
  }
}

TEST(killed_at_any_moment) {
  const Place place;
  for (useconds_t wait = 0; wait < 60'000; wait += 3'000) {
    Child child = Spawn(place, "direct", "fork");
    usleep(wait);
    CHECK_EQ(kill(child.pid, SIGKILL), 0);
    child.Wait();
  }
  CHECK_EQ(place.LeftSoon(), "");
}

TEST(forks_and_vforks_between_pieces_of_work) {
  const Place place;
  for (const char* mode : {"direct", "preload"}) {
    if (kSanitized && std::strcmp(mode, "preload") == 0) continue;
    Child child = Spawn(place, mode, "fork");
    CHECK_EQ(absl::StrCat(mode, ": ", child.Line()), absl::StrCat(mode, ": done\n"));
    CHECK_EQ(child.Wait(), 0);
    CHECK_EQ(place.LeftSoon(), "");
  }
}

TEST(sixteen_clients_at_once) {
  const Place place;
  for (const char* mode : {"direct", "preload"}) {
    if (kSanitized && std::strcmp(mode, "preload") == 0) continue;
    std::vector<Child> children;
    for (int i = 0; i < 16; ++i) children.push_back(Spawn(place, mode, "work"));
    for (Child& child : children) {
      CHECK_EQ(absl::StrCat(mode, ": ", child.Line()), absl::StrCat(mode, ": done\n"));
      CHECK_EQ(child.Wait(), 0);
    }
    CHECK_EQ(place.LeftSoon(), "");
  }
}

// Short of address space at any point: an error that says so, or enough; never a signal.
TEST(any_limit_of_address_space) {
  if (kSanitized) SKIP("a sanitizer needs terabytes");
  const Place place;
  // How a client ends that has so much: 0 it worked, 3 it was refused by name, 127 the loader itself had no room.
  const auto end_within = [&](uint64_t mib) {
    Child child = Spawn(place, "direct", "work", mib << 20);
    const std::string line = child.Line();
    const int status = child.Wait();
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code != 0 && code != 3 && code != 127) {
      test_context.Fail(__FILE__, __LINE__, absl::StrCat(mib, " MiB: ", line, " status ", status));
    }
    return code;
  };
  int done = 0, refused = 0;
  uint64_t too_little = 0, enough = 0;
  for (uint64_t mib = 24; mib < 40'000; mib += mib / 5) {
    const int code = end_within(mib);
    done += code == 0;
    refused += code == 3;
    if (code != 0) too_little = mib;
    if (code == 0 && enough == 0) enough = mib;
  }
  // Between the two the last room goes to the node's own thread, at one point after another of its work.
  for (uint64_t mib = too_little + 1; mib < enough; ++mib) end_within(mib);
  std::cout << "# " << done << " limits were enough, " << refused << " refused by name; " << too_little
            << " MiB were too little, " << enough << " enough\n";
  CHECK_GT(done, 0);
  CHECK_GT(refused, 0);
  CHECK_EQ(place.LeftSoon(), "");
}

}  // namespace
}  // namespace mainarch::sim
