// SPDX-License-Identifier: MIT

package mainarch_test

import (
	"testing"

	"mainarch.invalid/go/mainarch/internal/cgocost"
)

// What Go's own way into C costs: nothing, and nothing with the arguments of a step.
func BenchmarkCgoEmpty(b *testing.B) {
	for i := 0; i < b.N; i++ {
		cgocost.Empty()
	}
}

func BenchmarkCgoStep(b *testing.B) {
	for i := 0; i < b.N; i++ {
		cgocost.Step()
	}
}

// A step of an engine with nothing to do.
func BenchmarkStep(b *testing.B) {
	s := open(b)
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if worked, err := s.engine.Step(background); worked || err != nil {
			b.Fatal(worked, err)
		}
	}
}
