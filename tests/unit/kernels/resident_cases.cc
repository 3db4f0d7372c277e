// SPDX-License-Identifier: MIT
#include <cmath>

#include "kernels/quant/bf16.h"
#include "unit/kernels/case.h"

namespace mainarch::kernels_test {
namespace {

using namespace kernels;

template <class Args>
Command MakeCommand(Opcode opcode, const Args& args, uint32_t sequence) {
  Command out;
  static_assert(sizeof(args) <= sizeof(out.words));
  std::memcpy(out.words, &args, sizeof(args));
  out.opcode = static_cast<uint32_t>(opcode);
  out.sequence = sequence;
  return out;
}

// Everything is posted before the launch, so that no host has to run beside the kernel.
Case ResidentCase(uint32_t workgroups, uint32_t first_sequence) {
  Random random(workgroups);
  const uint32_t rows = 3, n = 512, outputs = 32;
  const std::vector<uint16_t> x = random.Bf16(rows * n), w = random.Bf16(n),
                              m = random.Bf16(outputs * n, 0.1);
  Case out;
  out.name = absl::StrCat("resident, ", workgroups, " workgroups, from sequence ", first_sequence);
  out.bound = "copies exact; the product within that of bf16_mfma plus the rounding of its input";
  out.buffers = {{"x", ToBytes(x)},
                 {"w", ToBytes(w)},
                 {"m", ToBytes(m)},
                 {"normal", Bytes(x.size() * 2, 0xee)},
                 {"copied", Bytes(x.size() * 2, 0xee)},
                 {"product", Bytes(rows * outputs * 4, 0xee)},
                 {"sums", Bytes(workgroups * 4, 0xee)},
                 {"relay", Bytes(2 * sizeof(Command), 0), 0, Home::kUncached},
                 {"flags", Bytes(8, 0), 0, Home::kUncached},
                 {"done", ToBytes<uint32_t>({first_sequence - 1}), 0, Home::kHost}};
  Buffer mailbox = {"mailbox", Bytes(8 * sizeof(Command), 0), 0, Home::kHost};
  mailbox.late = [=](const Addresses& at) {
    std::vector<Command> commands(8);
    uint32_t sequence = first_sequence;
    const auto post = [&](const Command& command) {
      commands[sequence++ % commands.size()] = command;
    };
    RmsNormArgs norm;
    norm.x = at.Of<const uint16_t>("x");
    norm.w = at.Of<const uint16_t>("w");
    norm.out = at.Of<uint16_t>("normal");
    norm.rows = rows;
    norm.n = n;
    norm.epsilon = 1e-6f;
    post(MakeCommand(Opcode::kRmsNorm, norm, sequence));
    CopyArgs copy;
    copy.source = at.Of<const uint8_t>("normal");
    copy.destination = at.Of<uint8_t>("copied");
    copy.bytes = x.size() * 2;
    post(MakeCommand(Opcode::kCopy, copy, sequence));
    Bf16MatrixArgs product;
    product.x = at.Of<const uint16_t>("copied");
    product.w = at.Of<const uint16_t>("m");
    product.out = at.Of<float>("product");
    product.rows = rows;
    product.outputs = outputs;
    product.k = n;
    post(MakeCommand(Opcode::kBf16Matrix, product, sequence));
    StreamReadArgs read;
    read.source = at.Of<const uint32_t>("m");
    read.sums = at.Of<uint32_t>("sums");
    read.bytes = m.size() * 2;
    post(MakeCommand(Opcode::kStreamRead, read, sequence));
    FillArgs fill;
    fill.destination = at.Of<uint8_t>("normal");
    fill.bytes = x.size() * 2;
    fill.pattern[0] = fill.pattern[1] = fill.pattern[2] = fill.pattern[3] = 0x3f803f80;
    post(MakeCommand(Opcode::kFill, fill, sequence));
    post(MakeCommand(Opcode::kStop, StreamReadArgs{}, sequence));
    return ToBytes(commands);
  };
  out.buffers.push_back(mailbox);
  out.steps = {{MakeLaunch<ResidentArgs>("resident", workgroups,
                                         [=](ResidentArgs& args, const Addresses& at) {
                                           args.mailbox = at.Of<const Command>("mailbox");
                                           args.done = at.Of<uint32_t>("done");
                                           args.relay = at.Of<Command>("relay");
                                           args.relay_flag = at.Of<uint32_t>("flags");
                                           args.arrivals = at.Of<uint32_t>("flags", 4);
                                           args.slots = 8;
                                           args.first_sequence = first_sequence;
                                         })}};

  const std::vector<double> in = FromBf16(x), weight = FromBf16(w), matrix = FromBf16(m);
  std::vector<double> normal(in.size()), product, allowed;
  for (uint32_t row = 0; row < rows; ++row) {
    double squares = 0;
    for (uint32_t i = 0; i < n; ++i) squares += in[row * n + i] * in[row * n + i];
    for (uint32_t i = 0; i < n; ++i) {
      normal[row * n + i] = in[row * n + i] / std::sqrt(squares / n + 1e-6) * weight[i];
    }
    for (uint32_t o = 0; o < outputs; ++o) {
      double sum = 0, magnitude = 0;
      for (uint32_t i = 0; i < n; ++i) {
        sum += normal[row * n + i] * matrix[o * n + i];
        magnitude += std::abs(normal[row * n + i] * matrix[o * n + i]);
      }
      product.push_back(sum);
      allowed.push_back(magnitude * (kBf16Half + 2e-6 + n / 4 * 0x1p-23));
    }
  }
  std::vector<uint32_t> sums(workgroups);
  const std::vector<uint32_t> words = FromBytes<uint32_t>(ToBytes(m));
  for (size_t i = 0; i < words.size(); ++i) sums[i / 4 / kThreads % workgroups] += words[i];
  out.expectations = {
      ExactlyValues<uint32_t>("done", {first_sequence + 5}),
      ExactlyValues("normal", std::vector<uint16_t>(x.size(), 0x3f80)),
      NearBf16("copied", normal, {1e-30, kBf16Half + 2e-6}),
      WithinFloat("product", product, allowed),
      ExactlyValues("sums", sums),
  };
  return out;
}

// Another GPU plays the host: it posts a command while the kernel runs, and looks at what the
// kernel has made as soon as `done` says so. Its program is ping_pong's server: the command that it
// writes is a payload, whose opcode means nothing, and its mismatches are not looked at.
Case ResidentToldByGpuCase() {
  constexpr uint32_t kWorkgroups = 3, kBytes = kWorkgroups * kThreads * 16, kHalf = kBytes / 2;
  Case out;
  out.name = "resident, told by another gpu";
  out.bound = "exact";
  out.buffers = {{"filled", Bytes(kBytes, 0xee)},
                 {"copied", Bytes(kBytes, 0xee)},
                 {"sums", Bytes(kWorkgroups * 4, 0xee)},
                 {"relay", Bytes(2 * sizeof(Command), 0)},
                 {"flags", Bytes(8, 0), 0, Home::kUncached},
                 {"done", ToBytes<uint32_t>({0}), 0, Home::kHost},
                 {"wrong", Bytes(4, 0xee), 1}};
  Buffer mailbox = {"mailbox", Bytes(8 * sizeof(Command), 0), 0, Home::kHost};
  mailbox.late = [](const Addresses& at) {
    std::vector<Command> commands(8);
    FillArgs fill;
    fill.destination = at.Of<uint8_t>("filled");
    fill.bytes = kBytes;
    fill.pattern[0] = fill.pattern[1] = fill.pattern[2] = fill.pattern[3] = 0x01020304;
    commands[1] = MakeCommand(Opcode::kFill, fill, 1);
    // The halves change places, so that every wave reads what others have written.
    CopyArgs copy;
    copy.destination = at.Of<uint8_t>("copied");
    copy.source = at.Of<const uint8_t>("filled", kHalf);
    copy.bytes = kHalf;
    commands[2] = MakeCommand(Opcode::kCopy, copy, 2);
    copy.destination = at.Of<uint8_t>("copied", kHalf);
    copy.source = at.Of<const uint8_t>("filled");
    commands[3] = MakeCommand(Opcode::kCopy, copy, 3);
    // Slot 4 is the other GPU's.
    StreamReadArgs read;
    read.source = at.Of<const uint32_t>("copied");
    read.sums = at.Of<uint32_t>("sums");
    read.bytes = kBytes;
    commands[5] = MakeCommand(Opcode::kStreamRead, read, 5);
    commands[6] = MakeCommand(Opcode::kStop, StreamReadArgs{}, 6);
    return ToBytes(commands);
  };
  out.buffers.push_back(mailbox);
  out.steps = {{MakeLaunch<ResidentArgs>("resident", kWorkgroups,
                                         [](ResidentArgs& args, const Addresses& at) {
                                           args.mailbox = at.Of<const Command>("mailbox");
                                           args.done = at.Of<uint32_t>("done");
                                           args.relay = at.Of<Command>("relay");
                                           args.relay_flag = at.Of<uint32_t>("flags");
                                           args.arrivals = at.Of<uint32_t>("flags", 4);
                                           args.slots = 8;
                                           args.first_sequence = 1;
                                         }),
                MakeLaunch<PingPongArgs>(
                    "ping_pong", 1,
                    [](PingPongArgs& args, const Addresses& at) {
                      const uint64_t slot = 4 * sizeof(Command);
                      args.my_flag = at.Of<uint32_t>("done");
                      // Written by the second wave of the second workgroup.
                      args.my_payload = at.Of<uint32_t>("copied", (kThreads + 70) * 16);
                      args.peer_flag = at.Of<uint32_t>("mailbox", slot + sizeof(Command) - 4);
                      args.peer_payload = at.Of<uint32_t>("mailbox", slot);
                      args.mismatches = at.Of<uint32_t>("wrong");
                      args.rounds = 1;
                      args.payload_words = sizeof(Command) / 4 - 1;
                      args.is_server = 1;
                      args.first_epoch = 3;  // sends 4, waits for 5
                    },
                    1)}};
  const uint32_t words = kBytes / 4;
  std::vector<uint32_t> sums(kWorkgroups);
  for (uint32_t i = 0; i < words; ++i) sums[i / 4 / kThreads % kWorkgroups] += 0x01020304;
  out.expectations = {ExactlyValues<uint32_t>("done", {6}),
                      ExactlyValues("copied", std::vector<uint32_t>(words, 0x01020304)),
                      ExactlyValues("sums", sums)};
  return out;
}

}  // namespace

std::vector<Case> ResidentCases() {
  return {ResidentCase(1, 1), ResidentCase(4, 1), ResidentCase(5, 0xfffffffd),
          ResidentToldByGpuCase()};
}

}  // namespace mainarch::kernels_test
