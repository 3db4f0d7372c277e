// SPDX-License-Identifier: MIT
//
// The mainarch command: finds the subcommand and hands it its words. A new subcommand is a file, a
// declaration in command.h and a line here.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/json_mode.h"
#include "cli/options.h"
#include "cli/output.h"

namespace mainarch::cli {
namespace {

constexpr Command kCommands[] = {
    {"generate", "write text after a prompt, or answer in a chat", RunGenerate},
    {"model-decode", "decode tokens and check every step against an fp64 reference",
     RunModelDecode},
    {"attn-decode", "a token's paged attention alone, checked against fp64 and counted",
     RunAttnDecode},
    {"kv-accuracy", "what smaller KV caches cost in a text's predictions", RunKvAccuracy},
    {"bench", "measure prefill and decode against this machine's limits", RunBench},
    {"embed", "texts as vectors, and how alike they are", RunEmbed},
    {"tokenize", "text to tokens and back", RunTokenize},
    {"inspect", "what a checkpoint holds, and what a token of it costs", RunInspect},
    {"make-checkpoint", "write a synthetic checkpoint of any geometry and format",
     RunMakeCheckpoint},
    {"topology", "what the GPUs of this machine, or of a virtual node, say of themselves",
     RunTopologyCommand},
    {"doctor", "why a GPU cannot be used, and what mends it", RunDoctorCommand},
    {"sim", "run any GPU program on a virtual node", RunSimCommand},
    {"probe", "what a GPU answers where documents are silent, as fingerprints to compare",
     RunProbeCommand},
    {"gpu-allreduce-bench", "the all-reduce of a group of ranks, by size", RunAllReduceBench},
    {"estimate", "the floor of a token on real GPUs, from shapes and data sheets", RunEstimate},
    {"time", "how long a kernel or a step would take, by a timing model", RunTime},
    {"kernels", "the GPU kernels in this build", RunKernels},
    {"version", "print the version", RunVersion},
};

std::string Help() {
  std::string out = "usage: mainarch <command> [options]\n\nCommands:\n";
  for (const Command& command : kCommands) {
    absl::StrAppendFormat(&out, "  %-21s%s\n", command.name, command.help);
  }
  return out +
         "  help <command>       the options of a command, with examples\n"
         "\n"
         "Text goes to stdout; statistics, progress and errors go to stderr. --json makes any "
         "command\n"
         "write one JSON object to stdout, an error too. Exit codes: 0 done, 1 failed, 2 wrong use,\n"
         "130 interrupted.\n";
}

// Which command it is, for the thread that ends it.
std::atomic<const char*> running{"help"};

const Command* Find(const std::string& name) {
  for (const Command& command : kCommands) {
    if (name == command.name) return &command;
  }
  return nullptr;
}

int Unknown(const std::string& name) {
  std::vector<std::string> names = {"help"};
  for (const Command& command : kCommands) names.push_back(command.name);
  const absl::string_view near = Nearest(name, names);
  std::fprintf(stderr, "mainarch: unknown command \"%s\"%s\nsee mainarch help\n", name.c_str(),
               near.empty() ? "" : absl::StrCat("; did you mean ", near, "?").c_str());
  PrintJsonError({kExitUsage, 0, absl::StrCat("unknown command \"", name, "\""), "see mainarch help"});
  return kExitUsage;
}

int Dispatch(std::vector<std::string> words) {
  SetJsonWanted(HasJsonWord(words));
  if (words.empty()) {
    std::fputs(Help().c_str(), stderr);
    return kExitUsage;
  }
  std::string name = words[0];
  words.erase(words.begin());
  if (name == "--version") name = "version";
  if (name == "help" && !words.empty() && words[0] != "--json") {
    name = words[0];
    words = {"--help"};
    if (JsonWanted()) words.push_back("--json");
  }
  if (name == "help" || name == "--help" || name == "-h") {
    JsonWanted() ? PrintJsonHelp(Help()) : static_cast<void>(std::fputs(Help().c_str(), stdout));
    return kExitOk;
  }
  const Command* command = Find(name);
  if (command == nullptr) return Unknown(name);
  running = command->name;
  return command->run(words);
}

// Whatever is opened in place of a standard stream that was closed would be written over: a model, say.
// Something that cannot be written to stands there instead.
void HoldStandardStreams() {
  int fd;
  do {
    fd = open("/dev/null", O_RDONLY);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

// Of a command that did not end by itself. Not at the price of waiting for a thread that is stuck in a write.
void SayInterrupted() {
  if (ftrylockfile(stdout) != 0) return;
  FailInterrupted(running.load());
  funlockfile(stdout);
}

int Run(int argc, char** argv) {
  const InterruptHook say(InterruptHook::When::kAtEnd, SayInterrupted);
  int code = kExitFailure;
  try {
    code = Dispatch(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "mainarch: %s\n", e.what());  // out of memory, that is
    PrintJsonError({kExitFailure, static_cast<int32_t>(Code::kOutOfHostMemory), e.what(), {}});
  }
  // A full disk behind stdout shows here at the latest.
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  if (PipeBroken()) return kExitInterrupted;
  std::fprintf(stderr, "mainarch: writing to stdout failed\n");
  return kExitFailure;
}

}  // namespace
}  // namespace mainarch::cli

int main(int argc, char** argv) {
  mainarch::cli::HoldStandardStreams();
  mainarch::cli::CatchInterrupts();
  return mainarch::cli::Run(argc, argv);
}
