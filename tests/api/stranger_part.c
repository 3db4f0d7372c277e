/* SPDX-License-Identifier: MIT */
/* A part of another build, for sim_part_test.c: nothing behind the first member may be looked at. */
struct part {
  const char* build;
  void* open;
};

const struct part* mainarch_sim_part(void);
const struct part* mainarch_sim_part(void) {
  static const struct part part = {"0.0.1-stranger", 0};
  return &part;
}
