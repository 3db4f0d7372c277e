// SPDX-License-Identifier: MIT
//
// The figures of the timing model, one table a chip (gfx942.cc, gfx950.cc), each figure with where
// it is from and how sure that is. Latencies in core clocks unless the name ends in _ns.
#ifndef MAINARCH_SIM_TIME_PARAMS_H_
#define MAINARCH_SIM_TIME_PARAMS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "sim/isa/decode.h"

namespace mainarch::sim::timing {

// name, unit, what it is.
#define MAINARCH_TIME_PARAMS(X)                                                                     \
  X(clock_mhz, "MHz", "core clock that is held")                                                    \
  /* Issue and pipes of a SIMD. */                                                                  \
  X(issue, "clk", "between two instructions of a wave; a SIMD's turn")                              \
  X(valu, "clk", "a SIMD's vector pipe for 64 lanes of 32 bits")                                    \
  X(valu_double, "clk", "the same for 64-bit arithmetic")                                           \
  X(valu_quarter, "clk", "32-bit integer products")                                                 \
  X(trans, "clk", "exp, log, rcp, rsq, sqrt, sin, cos")                                             \
  X(convert_wide, "clk", "conversions of 16 or 32 elements a lane")                                 \
  X(cross_lane, "clk", "v_permlane*, v_readlane, v_writelane")                                      \
  X(mfma_pass, "clk", "one pass of the matrix core")                                                \
  X(mfma_result, "pass", "from the last pass to a use of the result by other instructions")         \
  X(mfma_stretch, "", "time of dense matrix work over that at full clock: power")                   \
  X(salu, "clk", "a scalar instruction, issue to use")                                              \
  X(branch_taken, "clk", "a wave's next issue after a taken branch")                                \
  X(branch_not_taken, "clk", "the same after one not taken")                                        \
  X(fetch_l2, "clk", "instruction cache miss answered by the L2")                                   \
  X(fetch_ahead, "line", "lines of 64 bytes that are fetched ahead")                                \
  X(barrier, "clk", "s_barrier: from the last wave's arrival to the next issue")                    \
  X(sleep_unit, "clk", "s_sleep 1")                                                                 \
  /* Scalar memory, LDS. */                                                                         \
  X(smem_hit, "clk", "s_load answered by the scalar cache")                                         \
  X(smem_kb, "KiB", "scalar cache of two compute units")                                            \
  X(lds_latency, "clk", "ds_read_b32 to use")                                                       \
  X(lds_bytes, "B/clk", "LDS of a compute unit")                                                    \
  X(lds_wide_bytes, "B/clk", "the same, reads of 8 or 16 bytes a lane")                             \
  X(lds_atomic, "clk", "more for an LDS atomic that returns")                                       \
  /* Vector memory of a compute unit. */                                                            \
  X(l1_latency, "clk", "global load to use, answered by the L1")                                    \
  X(l1_kb, "KiB", "vector L1")                                                                      \
  X(l1_bytes, "B/clk", "data path of the vector L1")                                                \
  X(l1_lookup, "clk", "one line of 128 bytes looked up")                                            \
  X(l1_lanes, "lane/clk", "addresses taken in")                                                     \
  X(store_bytes, "B/clk", "data path of stores out of a compute unit")                              \
  X(misses, "line", "lines of 128 bytes that a compute unit may be waiting for")                    \
  /* L2 of an XCD. */                                                                               \
  X(l2_latency, "clk", "global load to use, answered by the L2")                                    \
  X(l2_kb, "KiB", "L2 of an XCD")                                                                   \
  X(l2_channels, "", "channels of an XCD's L2")                                                     \
  X(l2_read_bytes, "B/clk", "a channel, reads")                                                     \
  X(l2_write_bytes, "B/clk", "a channel, writes")                                                   \
  /* Fabric, MALL, memory. */                                                                       \
  X(mall_ns, "ns", "global load to use, answered by the MALL")                                      \
  X(mall_mb, "MiB", "MALL; 0: none")                                                                \
  X(mall_share, "", "of the lines that nobody in the model has touched, those that the MALL holds")  \
  X(fabric_read_tbs, "TB/s", "all XCDs together, reads past the L2")                                \
  X(fabric_write_tbs, "TB/s", "the same, writes")                                                   \
  X(hbm_ns, "ns", "global load to use, answered by memory")                                         \
  X(hbm_tbs, "TB/s", "memory, nominal")                                                             \
  X(hbm_channels, "", "channels of memory")                                                         \
  X(hbm_interleave, "B", "bytes in a row on one channel")                                           \
  X(hbm_read_share, "", "of the nominal, streamed reads")                                           \
  X(hbm_write_share, "", "of the nominal, streamed writes")                                         \
  X(hbm_turn_ns, "ns", "a channel's change between reads and writes")                               \
  /* Coherence. */                                                                                  \
  X(far_ns, "ns", "load or atomic past the L2 (sc1) that another XCD's copy or the memory side "    \
                  "answers")                                                                        \
  X(cross_ns, "ns", "more for a line that another XCD wrote last")                                  \
  X(line_serial_ns, "ns", "between two operations of the memory side on one line")                  \
  X(wbl2_ns, "ns", "buffer_wbl2 sc1 with little to write")                                          \
  X(inv_ns, "ns", "buffer_inv sc1")                                                                 \
  X(store_ack_ns, "ns", "a store past the L2 to its acknowledgement")                               \
  /* Other GPUs and the host. */                                                                    \
  X(xgmi_ns, "ns", "a load of a peer's memory")                                                     \
  X(xgmi_store_ns, "ns", "a store to a peer's memory, to its acknowledgement")                      \
  X(xgmi_gbs, "GB/s", "a link to one peer, each direction, payload")                                \
  X(pcie_ns, "ns", "a load of host memory")                                                         \
  X(pcie_gbs, "GB/s", "PCIe, each direction, payload")                                              \
  /* Packets. */                                                                                    \
  X(packet_ns, "ns", "a packet behind another: fetched, read, made a dispatch of")                  \
  X(acquire_ns, "ns", "acquire of the packet processor, agent scope")                               \
  X(release_ns, "ns", "its release, agent scope, with nothing to write back")                       \
  X(system_ns, "ns", "more for either at system scope")                                             \
  X(first_wave_ns, "ns", "dispatch to first instruction")                                           \
  X(complete_ns, "ns", "last wave's end to the release")                                            \
  X(kernarg_host_ns, "ns", "reading arguments that lie in host memory, before the first s_load")    \
  X(handoff_ns, "ns", "host to packet processor; only before a queue's first packet")               \
  X(groups_per_us, "1/us", "workgroups that one XCD starts")                                        \
  X(waves_per_us, "1/us", "waves that one XCD starts")                                              \
  /* Copy engines. */                                                                               \
  X(sdma_fixed_ns, "ns", "more for the first copy of a batch")                                      \
  X(sdma_packet_ns, "ns", "each packet")                                                            \
  X(sdma_gbs, "GB/s", "an engine's copy")

struct Params {
#define MAINARCH_TIME_FIELD(name, unit, what) double name = 0;
  MAINARCH_TIME_PARAMS(MAINARCH_TIME_FIELD)
#undef MAINARCH_TIME_FIELD

  // The chip's own figures.
  static Params Of(isa::Isa isa);
  // Overrides one, for calibration: the name must be known, the value not negative.
  Status Set(absl::string_view name, double value);

  double clocks(double ns) const { return ns * clock_mhz / 1000; }
  double us(double clocks) const { return clocks / clock_mhz; }
};

struct ParamInfo {
  const char* name;
  const char* unit;
  const char* what;
  double Params::* field;
};
absl::Span<const ParamInfo> AllParams();

// A line of a chip's table.
struct Given {
  double Params::* field;
  double value;
  // H measured, and by more than one or in detail; M one measurement or a document; L derived or
  // guessed; F fitted, to what the source says.
  char confidence;
  const char* source;
};
absl::Span<const Given> GivenOf(isa::Isa isa);
absl::Span<const Given> Gfx942();  // gfx942.cc
absl::Span<const Given> Gfx950();  // gfx950.cc

}  // namespace mainarch::sim::timing

#endif  // MAINARCH_SIM_TIME_PARAMS_H_
