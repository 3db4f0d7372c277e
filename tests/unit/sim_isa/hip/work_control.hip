// SPDX-License-Identifier: MIT
//
// Control flow and calls: switch tables, divergent loops, recursion, function pointers, virtual
// functions, structures by value, variable-length stack arrays.
#include "hip.h"

WORK(switch_table, 2, 3) {
  u64 x = in[1];
  switch (in[0] % 13) {
    case 0: x += 7; break;
    case 1: x ^= x << 3; break;
    case 2: x *= 0x9e3779b97f4a7c15ul; break;
    case 3: x = x / 3; [[fallthrough]];
    case 4: x -= 11; break;
    case 5: x = ~x; break;
    case 6: x = x >> 7 | x << 57; break;
    case 7: return (void)(out[0] = 42, out[1] = x, out[2] = 0);
    case 8: x = __builtin_popcountl(x); break;
    case 9: x &= 0xff00ff; break;
    case 11: x = -x; break;
    default: x = 1; break;
  }
  out[0] = x;
  static const char* const kNames[] = {"alpha", "beta", "gamma", "delta"};
  const char* name = kNames[in[0] & 3];
  u64 sum = 0;
  while (*name) sum = sum * 31 + *name++;
  out[1] = sum;
  out[2] = i;
}
WORK(divergent_loops, 1, 4) {
  u64 x = in[0] | 1, steps = 0;
  while (x != 1 && steps < 300) {
    x = x & 1 ? (x & 0xffffff) * 3 + 1 : x >> 1;
    ++steps;
  }
  out[0] = steps;
  u32 sum = 0;
  for (u32 a = 0; a < (in[0] & 31); ++a) {
    for (u32 b = a;; ++b) {
      if (b * a > 90 || b > 40) break;
      if ((a ^ b) & 4) continue;
      sum += a * b;
    }
    if (sum > 5000) goto done;
  }
  sum += 100000;
done:
  out[1] = sum;
  u64 a = in[0] >> 20 | 1, b = in[0] & 0xfffff | 1;
  while (b) {
    const u64 t = a % b;
    a = b;
    b = t;
  }
  out[2] = a;
  u32 bits = (u32)in[0], count = 0;
  do {
    bits &= bits - 1;
    ++count;
  } while (bits && count < 20);
  out[3] = count;
}
__device__ __noinline__ u64 Fibonacci(u32 n) { return n < 2 ? n : Fibonacci(n - 1) + Fibonacci(n - 2); }
__device__ __noinline__ u64 Ackermann(u32 m, u32 n) {
  return m == 0 ? n + 1 : n == 0 ? Ackermann(m - 1, 1) : Ackermann(m - 1, Ackermann(m, n - 1));
}
WORK(recursion, 1, 2) {
  out[0] = Fibonacci(in[0] % 12);
  out[1] = Ackermann(in[0] % 3, in[0] / 3 % 4);
}
struct Big {
  u64 a[6];
  float f;
  i8 c;
};
__device__ __noinline__ Big Mix(Big x, u64 k, float f) {
  for (int j = 0; j < 6; ++j) x.a[j] = x.a[(j + 1) % 6] * k + j;
  x.f = x.f * 2 + f;
  x.c = (i8)(x.c + (i8)k);
  return x;
}
WORK(structures_by_value, 2, 4) {
  Big b = {};
  for (int j = 0; j < 6; ++j) b.a[j] = in[0] + j * in[1];
  b.f = (float)(in[0] & 255);
  b.c = (i8)in[1];
  b = Mix(Mix(b, in[1] | 1, 3), 5, 0.5f);
  u64 sum = 0;
  for (int j = 0; j < 6; ++j) sum ^= b.a[j] << j;
  out[0] = sum;
  out[1] = Bits(b.f);
  out[2] = (u8)b.c;
  out[3] = b.a[in[0] % 6];
}
typedef u64 (*Operation)(u64, u64);
__device__ __noinline__ u64 OpAdd(u64 a, u64 b) { return a + b; }
__device__ __noinline__ u64 OpXor(u64 a, u64 b) { return a ^ b; }
__device__ __noinline__ u64 OpMul(u64 a, u64 b) { return a * b; }
__device__ __noinline__ u64 OpDiv(u64 a, u64 b) { return a / (b | 1); }
GLOBAL_DATA Operation operations[] = {OpAdd, OpXor, OpMul, OpDiv};
WORK(function_pointers, 2, 2) {
  out[0] = operations[in[0] & 3](in[0], in[1]);
  Operation f = in[1] & 1 ? OpMul : OpAdd;
  out[1] = f(in[1], operations[in[1] >> 1 & 3](in[1], 9));
}
#if defined(__HIP__)
extern "C" __device__ void __cxa_pure_virtual() { __builtin_trap(); }
#endif
struct Shape {
  __device__ virtual u64 Area() const = 0;
  __device__ virtual u64 Twice() const { return 2 * Area(); }
};
struct Square : Shape {
  u64 side;
  __device__ explicit Square(u64 s) : side(s) {}
  __device__ u64 Area() const override { return side * side; }
};
struct Box : Shape {
  u64 w, h;
  __device__ Box(u64 a, u64 b) : w(a), h(b) {}
  __device__ u64 Area() const override { return w * h; }
  __device__ u64 Twice() const override { return w * h + w; }
};
__device__ __noinline__ u64 Measure(const Shape& s) { return s.Area() + s.Twice(); }
WORK(virtual_functions, 2, 1) {
  Square s(in[0] & 0xffff);
  Box b(in[1] & 0xffff, in[0] >> 48);
  const Shape* shape = in[0] & 1 ? static_cast<const Shape*>(&s) : &b;
  out[0] = Measure(*shape) + Measure(b);
}
template <class T, int N> struct Stack {
  T items[N];
  int size = 0;
  __device__ void Push(T x) { if (size < N) items[size++] = x; }
  __device__ T Pop() { return size ? items[--size] : T(0); }
};
WORK(private_arrays, 2, 4) {
  u32 table[40];
  for (int k = 0; k < 40; ++k) table[k] = k * k + (u32)in[0];
  for (int k = 0; k < 40; ++k) {
    const int j = (in[1] >> (k & 31)) % 40;
    const u32 t = table[k];
    table[k] = table[j];
    table[j] = t;
  }
  u32 sum = 0;
  for (int k = 0; k < 40; ++k) sum = sum * 17 + table[k];
  out[0] = sum;
  Stack<u16, 16> stack;
  for (int k = 0; k < 20; ++k) stack.Push((u16)(in[0] >> k));
  u64 popped = 0;
  for (u32 k = 0; k < (in[1] & 15); ++k) popped = popped * 3 + stack.Pop();
  out[1] = popped;
  u8 bytes[32];
  __builtin_memset(bytes, (int)in[0] & 255, 32);
  __builtin_memcpy(bytes + 3, in, 16);
  bytes[in[1] & 31] ^= 0x55;
  u64 word;
  __builtin_memcpy(&word, bytes + (in[0] & 15), 8);
  out[2] = word;
  double numbers[8];
  for (int k = 0; k < 8; ++k) numbers[k] = (double)(i32)(in[0] >> k);
  out[3] = Bits(numbers[in[1] & 7] * numbers[in[1] >> 3 & 7]);
}
WORK(variable_stack, 1, 1) {
  const int n = 4 + (int)(in[0] & 15);
  u32* room = (u32*)__builtin_alloca(n * sizeof(u32));
  for (int k = 0; k < n; ++k) room[k] = (u32)(in[0] >> (k & 31)) + k;
  u64 sum = 0;
  for (int k = n; k-- > 0;) sum = sum * 5 + room[k];
  out[0] = sum;
}
