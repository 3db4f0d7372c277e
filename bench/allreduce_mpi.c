/* SPDX-License-Identifier: MIT
 *
 * The peer of allreduce_cpu: MPI_Allreduce of two ranks, the same sizes, the same way of measuring.
 * Run by bench/allreduce under mpirun.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { kMost = 1 << 18, kSamples = 200 };

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static int batch(size_t bytes) { return bytes <= 1024 ? 50 : bytes <= 65536 ? 10 : 2; }

int main(int argc, char** argv) {
  static float in[kMost], out[kMost];
  static double times[kSamples];
  int rank, right = 1;
  cpu_set_t one;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  CPU_ZERO(&one);
  CPU_SET(rank, &one);
  sched_setaffinity(0, sizeof(one), &one);
  for (int i = 0; i < kMost; ++i) in[i] = (float)((i + 1) % 1000 * (rank + 1));
  for (size_t bytes = 8; bytes <= kMost * 4; bytes *= 2) {
    for (int sample = 0; sample < kSamples; ++sample) {
      const double start = MPI_Wtime();
      for (int i = 0; i < batch(bytes); ++i) {
        MPI_Allreduce(in, out, (int)(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      }
      times[sample] = (MPI_Wtime() - start) * 1e6 / batch(bytes);
    }
    for (size_t i = 0; i < bytes / 4; ++i) right &= out[i] == (float)((i + 1) % 1000 * 3);
    qsort(times, kSamples, sizeof(double), compare);
    if (rank == 0) printf("%zu %.3f %.3f\n", bytes, times[kSamples / 2], times[0]);
  }
  if (!right) printf("WRONG sums\n");
  MPI_Finalize();
  return !right;
}
