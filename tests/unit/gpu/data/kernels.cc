// SPDX-License-Identifier: MIT
//
// Compiled for GPUs; what the tests of the code-object loader load. Each definition is there for one
// thing that a loader must handle.
#define KERNEL extern "C" __attribute__((amdgpu_kernel, visibility("protected")))
#define LDS __attribute__((address_space(3)))

// A relocation: the address of one object inside another.
extern "C" {
__attribute__((visibility("protected"))) int answer = 42;
__attribute__((visibility("protected"))) int* pointer_to_answer = &answer;
}

KERNEL void store_one(int* out) { *out = 1; }

KERNEL void store_answer(int* out) { *out = *pointer_to_answer; }

KERNEL void with_lds(int* out, int i) {
  static LDS int shared[1024] __attribute__((loader_uninitialized));
  shared[i & 1023] = i;
  __builtin_amdgcn_s_barrier();
  *out = shared[(i + 1) & 1023];
}

KERNEL void with_scratch(int* out, int i) {
  volatile int local[16];
  for (int k = 0; k < 16; ++k) local[k] = k * i;
  *out = local[i & 15];
}

#ifdef WITH_UNDEFINED
extern "C" __attribute__((visibility("default"))) int not_defined_anywhere;
KERNEL void uses_undefined(int* out) { *out = not_defined_anywhere; }
#endif
