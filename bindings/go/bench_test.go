// SPDX-License-Identifier: MIT

package mainarch_test

import (
	"testing"

	"mainarch.invalid/go/mainarch/internal/cgocost"
)

// What Go's own way into C costs.
func BenchmarkCgoEmpty(b *testing.B) {
	for i := 0; i < b.N; i++ {
		cgocost.Empty()
	}
}

// A step of an engine with nothing to do, bare.
func BenchmarkCgoStep(b *testing.B) {
	engine, err := cgocost.Open(checkpoint())
	ok(b, err)
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if engine.Step() != 1 {
			b.Fatal("it worked")
		}
	}
}

// The same through this package.
func BenchmarkStep(b *testing.B) {
	s := open(b)
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if worked, err := s.engine.Step(background); worked || err != nil {
			b.Fatal(worked, err)
		}
	}
}
