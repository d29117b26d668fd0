// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/sdk"
)

// Whatever is strange about a Service, iptables takes its rules: those that fuzzing
// starts with, those that it found, and as many at random.
func TestKernelTestsWhatIsStrange(t *testing.T) {
	onKernel(t, func(k kernel) {
		all := append(found(k.T), strangers...)
		random := rand.New(rand.NewPCG(7, 8))
		for range 30 {
			all = append(all, randomStranger(random))
		}
		tools := make(map[sdk.Family]iptables.Tool)
		for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
			tool, err := iptables.Open(k.Context(), family, k.backend)
			if err != nil {
				k.Fatal(err)
			}
			shared := new(iptables.Script) // legacy's program looks in the kernel for what rules lead to
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

// found is what fuzzing kept, each a file of a line for its kind and one for each value.
func found(t *testing.T) []strange {
	t.Helper()
	files, err := filepath.Glob("testdata/fuzz/FuzzRender/*")
	if err != nil || len(files) == 0 {
		t.Fatal("fuzzing kept nothing: ", err)
	}
	var all []strange
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		if len(lines) != 9 {
			t.Fatalf("%s has %d lines", file, len(lines))
		}
		var s strange
		for i, into := range []any{&s.namespace, &s.service, &s.port, &s.iface, &s.number, &s.affinity, &s.bits, &s.shape} {
			if err := parseValue(lines[i+1], into); err != nil {
				t.Fatalf("%s: %s: %v", file, lines[i+1], err)
			}
		}
		all = append(all, s)
	}
	return all
}

// parseValue reads a value as fuzzing writes it, such as byte('\x01'), into what into
// points to.
func parseValue(line string, into any) error {
	_, value, _ := strings.Cut(strings.TrimSuffix(line, ")"), "(")
	var err error
	switch into := into.(type) {
	case *string:
		*into, err = strconv.Unquote(value)
	case *uint16:
		_, err = fmt.Sscan(value, into)
	case *int64:
		_, err = fmt.Sscan(value, into)
	case *uint8:
		var letter rune
		letter, _, _, err = strconv.UnquoteChar(strings.Trim(value, "'"), '\'')
		*into = uint8(letter)
	}
	return err
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
