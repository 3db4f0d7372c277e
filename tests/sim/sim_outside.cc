// SPDX-License-Identifier: MIT
//
// Programs that know nothing of the virtual node see it through the preloaded library: ordinary
// tools, Debian's rocminfo, a small client of AMD's own runtime (outside/rocr_client.cc), and
// tinygrad (outside/tinygrad_client.py), which brings kernels of its own. MAINARCH_TINYGRAD_PYTHON is
// the Python that has it, and NumPy; without it that test is skipped.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>

#include "sim/launcher.h"
#include "support/test.h"

namespace mainarch::sim {
namespace {

std::string Library() {
  const char* root = std::getenv("MAINARCH_BUILD_ROOT");
  return std::string(root == nullptr ? "." : root) + "/src/sim/preload/libmainarch-sim-preload.so";
}

// Runs a shell command on a node; its output. One that does not end is ended, with code 124.
std::string OutputOf(const std::string& node, const std::string& command, int* code,
                     const std::string& log = "") {
  const std::string path = mainarch::test::ScratchDirectory() + "/out";
  LaunchOptions options;
  options.node = node;
  options.library = Library();
  options.log = log;
  options.command = {
      "timeout", "-k", "5", "200", "/bin/sh", "-c", "{ " + command + "; } > " + path + " 2>&1"};
  const StatusOr<int> result = RunProgram(options);
  *code = result.ok() ? *result : -1;
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

int CountOf(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// The instrumented builds cannot be preloaded into programs that were not built so.
constexpr bool kSanitized =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#else
    false;
#endif

TEST(ordinary_tools_see_the_devices_and_the_topology) {
  if (kSanitized) SKIP("a sanitizer build cannot be preloaded");
  int code = 0;
  const std::string text =
      OutputOf("gfx950x2",
               "ls -l /dev/kfd /dev/dri; cat /sys/class/kfd/kfd/topology/nodes/*/name;"
               "grep gfx_target /sys/devices/virtual/kfd/kfd/topology/nodes/1/properties;"
               "readlink /sys/class/drm/renderD128/device; test -c /dev/kfd && echo CHAR",
               &code);
  CHECK_EQ(code, 0);
  CHECK(text.find("234,") != std::string::npos);
  CHECK(text.find("renderD129") != std::string::npos);
  CHECK(text.find("gfx_target_version 90500") != std::string::npos);
  CHECK(text.find("/sys/bus/pci/devices/0000:05:00.0") != std::string::npos);
  CHECK(text.find("CHAR") != std::string::npos);
}

// The tree of a node is there while its program runs, in memory where the machine has some; what
// killed launchers left goes with the next one, and nothing else does.
TEST(the_tree_of_a_node_comes_and_goes) {
  if (kSanitized) SKIP("a sanitizer build cannot be preloaded");
  int code = 0;
  const std::string echo = std::string("test -d $") + kRootVariable + " && echo $" + kRootVariable;
  std::string root = OutputOf("gfx942", echo, &code);
  CHECK_EQ(code, 0);
  if (!root.empty()) root.pop_back();
  CHECK(root.find("/mainarch-sim-") != std::string::npos);
  CHECK_EQ(access(root.c_str(), F_OK), -1);
  const std::string parent = root.substr(0, root.rfind('/') + 1) + "mainarch-sim-test";
  const timespec old[2] = {{.tv_sec = time(nullptr) - 120, .tv_nsec = 0},
                           {.tv_sec = time(nullptr) - 120, .tv_nsec = 0}};
  const std::string abandoned = parent + "-abandoned", held = parent + "-held",
                    young = parent + "-young";
  for (const std::string& path : {abandoned, held, young}) {
    rmdir(path.c_str());
    CHECK_EQ(mkdir(path.c_str(), 0700), 0);
    if (path != young) CHECK_EQ(utimensat(AT_FDCWD, path.c_str(), old, 0), 0);
  }
  const int lock = open(held.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  CHECK_EQ(flock(lock, LOCK_SH), 0);
  OutputOf("gfx942", "true", &code);
  CHECK_EQ(code, 0);
  CHECK_EQ(access(abandoned.c_str(), F_OK), -1);
  CHECK_EQ(access(held.c_str(), F_OK), 0);
  CHECK_EQ(access(young.c_str(), F_OK), 0);
  close(lock);
  rmdir(held.c_str());
  rmdir(young.c_str());
}

// As on a server of the size that the node says it is.
TEST(a_program_maps_as_much_memory_as_the_node_has) {
  if (kSanitized) SKIP("a sanitizer build cannot be preloaded");
  int code = 0;
  const std::string text = OutputOf(
      "gfx950", "python3 -c 'import mmap, os; os.open(\"/dev/kfd\", os.O_RDWR);"
                "m = mmap.mmap(-1, 600 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS);"
                "m[5 << 30] = 7; print(m[5 << 30])'", &code);
  CHECK_EQ(text, "7\n");
  CHECK_EQ(code, 0);
}

TEST(a_program_exits_with_its_own_code) {
  if (kSanitized) SKIP("a sanitizer build cannot be preloaded");
  int code = 0;
  OutputOf("gfx942", "exit 7", &code);
  CHECK_EQ(code, 7);
  OutputOf("gfx942", "kill -9 $$", &code);
  CHECK_EQ(code, 128 + 9);
}

TEST(a_wrong_node_or_library_is_refused_by_name) {
  LaunchOptions options;
  options.command = {"true"};
  options.node = "gfx1100x2";
  options.library = Library();
  const StatusOr<int> node = RunProgram(options);
  CHECK(!node.ok());
  CHECK(node.status().message().find("gfx1100") != absl::string_view::npos);
  options.node = "gfx950";
  options.library = "/nowhere/libmainarch-sim-preload.so";
  const StatusOr<int> library = RunProgram(options);
  CHECK(!library.ok());
  CHECK(library.status().message().find("/nowhere") != absl::string_view::npos);
}

TEST(the_command_line_names_node_faults_log_and_program) {
  const std::vector<std::string> good = {"--node", "gfx942x2", "--faults", "hang=0@1",
                                         "--",     "ls",       "--color"};
  const StatusOr<LaunchOptions> options = ParseLaunch(good, "/lib/x.so");
  CHECK_OK(options);
  CHECK_EQ(options->node, "gfx942x2");
  CHECK_EQ(options->faults, "hang=0@1");
  CHECK_EQ(options->library, "/lib/x.so");
  CHECK_EQ(options->command.size(), 2u);
  CHECK_EQ(options->command[1], "--color");
  const std::vector<std::vector<std::string>> bad = {
      {}, {"--node"}, {"--nodes", "gfx942"}, {"--node", "gfx942"}, {"--node", "gfx1", "ls"}};
  for (const auto& arguments : bad) CHECK(!ParseLaunch(arguments, "").ok());
}

TEST(rocminfo_lists_the_agents_of_gfx90ax2) {
  if (kSanitized) SKIP("a sanitizer build cannot be preloaded");
  if (access("/usr/bin/rocminfo", X_OK) != 0) SKIP("rocminfo is not installed");
  int code = 0;
  const std::string text = OutputOf("gfx90ax2", "rocminfo", &code);
  if (code != 0) {
    test_context.Fail(__FILE__, __LINE__,
                      "rocminfo ended with " + std::to_string(code) + ":\n" + text.substr(0, 4000));
    return;
  }
  CHECK_EQ(CountOf(text, "Name:                    gfx90a"), 2);
  CHECK_EQ(CountOf(text, "Device Type:             CPU"), 1);
  CHECK_EQ(CountOf(text, "amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-"), 2);
  CHECK_EQ(CountOf(text, "Compute Unit:            104"), 2);
  CHECK(text.find("*** Done ***") != std::string::npos);
}

// A runtime that knows no newer chip than gfx90a is told to take the node's for one; the default
// node then has its eight agents.
TEST(rocminfo_lists_the_agents_of_the_default_node) {
  if (kSanitized) SKIP("a sanitizer build cannot be preloaded");
  if (access("/usr/bin/rocminfo", X_OK) != 0) SKIP("rocminfo is not installed");
  int code = 0;
  const std::string text =
      OutputOf(LaunchOptions().node, "HSA_OVERRIDE_GFX_VERSION=9.0.10 rocminfo", &code);
  CHECK_EQ(code, 0);
  CHECK_EQ(CountOf(text, "Device Type:             GPU"), 8);
}

TEST(amds_runtime_runs_queues_and_copies) {
  if (kSanitized) SKIP("a sanitizer build cannot be preloaded");
  const char* root = std::getenv("MAINARCH_BUILD_ROOT");
  const std::string client = std::string(root == nullptr ? "." : root) + "/tests/sim/rocr_client";
  if (access(client.c_str(), X_OK) != 0) SKIP("libhsa-runtime-dev is not installed");
  // Minor 11 is the driver of that runtime's time; 17 looks at queue buffers far more strictly.
  for (const char* node : {"gfx90ax2,minor=11", "gfx90ax2,minor=17,seed=3", "gfx90ax4,seed=8"}) {
    const std::string log = mainarch::test::ScratchDirectory() + "/log";
    int code = 0;
    const std::string text = OutputOf(node, client, &code, log);
    if (code != 0 || text.find("done") == std::string::npos) {
      test_context.Fail(__FILE__, __LINE__, std::string(node) + ": " + text);
      return;
    }
    std::stringstream notes;
    notes << std::ifstream(log).rdbuf();
    CHECK_EQ(notes.str().find("hangs"), std::string::npos);
    CHECK_EQ(notes.str().find("fault"), std::string::npos);
  }
}

// A program that forks while its other threads use the devices, and whose threads sleep in the
// driver when it ends.
TEST(a_forking_program_and_one_that_ends_in_mid_wait) {
  if (kSanitized) SKIP("a sanitizer build cannot be preloaded");
  const char* root = std::getenv("MAINARCH_BUILD_ROOT");
  const std::string client = std::string(root == nullptr ? "." : root) + "/tests/sim/fork_client";
  int code = 0;
  const std::string text = OutputOf("gfx950x2", client, &code);
  if (code != 0 || text.find("done") == std::string::npos) {
    test_context.Fail(__FILE__, __LINE__, "ended with " + std::to_string(code) + ": " + text);
  }
}

TEST(tinygrad_computes_on_several_gpus) {
  if (kSanitized) SKIP("a sanitizer build cannot be preloaded");
  // A Python that has tinygrad and NumPy; LLVM and clang by the names that tinygrad looks for.
  const char* python = std::getenv("MAINARCH_TINYGRAD_PYTHON");
  if (python == nullptr) SKIP("MAINARCH_TINYGRAD_PYTHON names no Python with tinygrad");
  const std::string tools = mainarch::test::ScratchDirectory();
  const std::string command =
      "ln -s $(command -v clang-22) " + tools + "/clang; PATH=" + tools +
      ":$PATH LLVM_PATH=$(ls /usr/lib/*/libLLVM-22.so) DEV=AMD:LLVM CACHELEVEL=0 " + python + " " +
      mainarch::test::SourcePath("tests/sim/outside/tinygrad_client.py");
  for (const char* isa : {"gfx942", "gfx950"}) {
    int code = 0;
    const std::string text = OutputOf(std::string(isa) + "x2", command + " 2", &code);
    if (code != 0 || text.find("bad results: 0") == std::string::npos) {
      test_context.Fail(__FILE__, __LINE__, std::string(isa) + ": " + text);
      return;
    }
  }
}

}  // namespace
}  // namespace mainarch::sim
