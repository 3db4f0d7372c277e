// SPDX-License-Identifier: MIT

//go:build race

package mainarch_test

const raceDetector = true
