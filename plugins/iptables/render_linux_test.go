// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/sdk"
)

// iptables accepts the rules of Services with unusual values: those of the seeds of FuzzRender, and random ones.
func TestKernelAcceptsUnusualValues(t *testing.T) {
	onKernel(t, func(k kernel) {
		all := slices.Clone(fuzzSeeds)
		random := rand.New(rand.NewPCG(7, 8))
		for range 30 {
			all = append(all, randomInput(random))
		}
		tools := make(map[sdk.Family]iptables.Tool)
		for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
			tool, err := iptables.Open(k.Context(), family, k.backend)
			if err != nil {
				k.Fatal(err)
			}
			shared := new(iptables.Script) // the legacy program looks in the kernel for the target of a jump
			iptables.Block{Table: "nat", Whole: masquerade.Chains(14)}.Write(shared, tool.Backend)
			if err := tool.Restore(k.Context(), shared); err != nil {
				k.Fatal(err)
			}
			tools[family] = tool
		}
		for _, s := range all {
			for family, b := range s.scripts(k) {
				tool := tools[family]
				if err := tool.Test(k.Context(), b.fake.Last); err != nil {
					k.Errorf("%+v: %v", s, err)
				}
			}
		}
	})
}

func randomInput(random *rand.Rand) fuzzInput {
	text := func() string {
		letters := []rune("ab-_.:/\\\"'` \n\t$!#*юя\x00+0")
		var s []rune
		for range random.IntN(40) {
			s = append(s, letters[random.IntN(len(letters))])
		}
		return string(s)
	}
	return fuzzInput{text(), text(), text(), text(), uint16(random.Uint32()), random.Int64N(1 << 34), uint8(random.IntN(33)), uint8(random.Uint32())}
}
