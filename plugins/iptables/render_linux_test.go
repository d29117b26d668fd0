// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"math/rand/v2"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
)

// Whatever is strange about a Service, iptables takes its rules: those that fuzzing
// starts with, and as many that nobody chose.
func TestKernelTestsWhatIsStrange(t *testing.T) {
	onKernel(t, func(k kernel) {
		all := append([]strange{}, strangers...)
		random := rand.New(rand.NewPCG(7, 8))
		for range 30 {
			all = append(all, randomStranger(random))
		}
		for _, s := range all {
			for family, b := range s.scripts() {
				tool, err := iptables.Open(k.Context(), family, k.backend)
				if err != nil {
					k.Fatal(err)
				}
				if err := tool.Test(k.Context(), b.plan(nil, nil).script()); err != nil {
					k.Errorf("%+v: %v", s, err)
				}
			}
		}
	})
}

func randomStranger(random *rand.Rand) strange {
	text := func() string {
		letters := []rune("ab-_.:/\\\"'` \n\t$!#*юя\x00+0")
		var s []rune
		for range random.IntN(40) {
			s = append(s, letters[random.IntN(len(letters))])
		}
		return string(s)
	}
	return strange{text(), text(), text(), text(), uint16(random.Uint32()), random.Int64N(1 << 34), uint8(random.IntN(33)), uint8(random.Uint32())}
}
