// SPDX-License-Identifier: MIT
//
// Of the decoder's kernels those that only this chip has: none. Its matrix units take MXFP4 and MXFP8 as bf16.
#ifndef MAINARCH_KERNELS_GFX942_SCALED_PRODUCTS_H_
#define MAINARCH_KERNELS_GFX942_SCALED_PRODUCTS_H_
#endif  // MAINARCH_KERNELS_GFX942_SCALED_PRODUCTS_H_
