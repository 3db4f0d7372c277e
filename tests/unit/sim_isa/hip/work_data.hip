// SPDX-License-Identifier: MIT
//
// Data: constants, tables of pointers (relocations), globals, packed and unaligned access, unions,
// bit-fields, strings.
#include "hip.h"

CONSTANT_DATA u32 primes[16] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53};
CONSTANT_DATA double weights[5] = {0.5, 0.25, -1.5, 3.0, 1e-3};
GLOBAL_DATA const u16 short_table[7] = {9, 65535, 3, 17, 1000, 2, 40000};
GLOBAL_DATA u32 first[3] = {10, 20, 30}, second[3] = {7, 8, 9};
GLOBAL_DATA u32* const pointers[4] = {first, second, first + 1, second + 2};
struct Node {
  u32 value;
  const Node* next;
};
GLOBAL_DATA const Node node_c = {300, nullptr}, node_b = {200, &node_c}, node_a = {100, &node_b};
GLOBAL_DATA const Node* list_head = &node_a;
WORK(tables, 1, 5) {
  out[0] = primes[in[0] & 15] * (u64)primes[in[0] >> 4 & 15];
  out[1] = Bits(weights[in[0] % 5] * (double)short_table[in[0] % 7]);
  out[2] = *pointers[in[0] & 3] + pointers[in[0] >> 2 & 1][in[0] >> 3 & 1];
  u32 sum = 0;
  for (const Node* n = list_head; n; n = n->next) sum += n->value;
  out[3] = sum + (in[0] & 1 ? node_a : node_b).value;
  const char text[] = "a string on the stack";
  out[4] = text[in[0] % sizeof text];
}
struct __attribute__((packed)) Packed {
  u8 a;
  u32 b;
  u16 c;
  u64 d;
  u8 e;
};
struct Fields {
  u32 a : 3, b : 11, c : 18;
  i32 d : 5, e : 27;
};
union Both {
  double d;
  u32 w[2];
  u16 h[4];
};
WORK(layouts, 2, 6) {
  u8 room[16 + sizeof(Packed)];
  Packed* p = (Packed*)(room + (in[0] & 7));
  p->a = (u8)in[0];
  p->b = (u32)in[1];
  p->c = (u16)in[0];
  p->d = in[0] * 3;
  p->e = 9;
  p->b += p->c;
  out[0] = p->d + p->b;
  out[1] = p->a | p->e << 8;
  Fields f = {};
  f.a = (u32)in[0];
  f.b = (u32)in[1];
  f.c = (u32)(in[0] >> 20);
  f.d = (i32)in[1];
  f.e = (i32)(in[1] >> 3);
  out[2] = f.a + f.b * 7u + f.c * 3u;
  out[3] = (i64)f.d * f.e;
  Both both;
  both.d = MakeDouble(in[0]);
  both.h[3] ^= 0x8000;
  out[4] = Bits(both.d);
  out[5] = both.w[in[1] & 1];
}
// Unaligned loads of every width straight from global memory.
WORK(unaligned, 4, 4) {
  const u8* p = (const u8*)in + (in[0] & 7);
  u64 a;
  u32 b;
  u16 c;
  __builtin_memcpy(&a, p, 8);
  __builtin_memcpy(&b, p + 1, 4);
  __builtin_memcpy(&c, p + 3, 2);
  out[0] = a;
  out[1] = b | (u64)c << 32;
  out[2] = p[5] | (u64)(u8)(i8)p[6] << 8 | (u64)(i64)(i8)p[7] << 16;
  typedef u32 u32x4 __attribute__((ext_vector_type(4), aligned(1)));
  const u32x4 v = *(const u32x4*)(p + 1);
  out[3] = v.x ^ v.y ^ (u64)(v.z + v.w) << 32;
}
// A small interpreter: what a bytecode VM on the device does.
WORK(bytecode, 2, 1) {
  u64 stack[8] = {in[0], in[1]};
  int top = 2;
  u64 program = in[0] * 0x9e3779b97f4a7c15ul;
  for (int k = 0; k < 16; ++k, program >>= 4) {
    const u64 x = stack[top - 1], y = stack[top - 2];
    switch (program & 7) {
      case 0: if (top < 8) stack[top++] = program >> 3; break;
      case 1: if (top > 2) --top, stack[top - 1] = x + y; break;
      case 2: if (top > 2) --top, stack[top - 1] = x * y; break;
      case 3: stack[top - 1] = y, stack[top - 2] = x; break;
      case 4: stack[top - 1] = x >> 1; break;
      case 5: if (top < 8) stack[top++] = x; break;
      case 6: stack[top - 1] = x < y ? y - x : x - y; break;
      default: stack[top - 1] = ~x; break;
    }
  }
  u64 sum = 0;
  for (int k = 0; k < top; ++k) sum = sum * 31 + stack[k];
  out[0] = sum;
}
u64 static __device__ Rotate(u64 x, int n) { return x << n | x >> (64 - n); }
// SipHash-like and SHA-like mixing: long dependent chains of 32- and 64-bit rotates.
WORK(hashes, 2, 2) {
  u64 a = in[0], b = in[1], c = ~in[0], d = 0x736f6d6570736575ul;
  for (int k = 0; k < 8; ++k) {
    a += b; b = Rotate(b, 13); b ^= a; a = Rotate(a, 32);
    c += d; d = Rotate(d, 16); d ^= c;
    a += d; d = Rotate(d, 21); d ^= a;
    c += b; b = Rotate(b, 17); b ^= c; c = Rotate(c, 32);
  }
  out[0] = a ^ b ^ c ^ d;
  u32 w[16], h = 0x6a09e667, g = (u32)in[1];
  for (int k = 0; k < 16; ++k) w[k] = (u32)(in[k & 1] >> k);
  for (int k = 0; k < 32; ++k) {
    const u32 s = (w[k & 15] >> 7 | w[k & 15] << 25) ^ (w[k & 15] >> 18 | w[k & 15] << 14);
    const u32 ch = (h & g) ^ (~h & s), maj = (h & g) ^ (h & s) ^ (g & s);
    w[k & 15] += s + ch;
    h = g + maj;
    g = (h >> 6 | h << 26) + w[(k + 9) & 15];
  }
  out[1] = h | (u64)g << 32;
}
