// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/test/field"
)

// Every change that another program makes to the table is repaired, if other programs can change it at all.
func TestKernelRepairs(t *testing.T) {
	g := field.Testbed(t)
	onKernel(t, func(k kernel) {
		s := k.place(g, sticking)
		s.Services[0].Affinity = 0
		p, _ := k.active(g, s)
		right := k.text()
		harms := []string{
			"flush ruleset",
			"delete table ip pointsman",
			"delete table ip6 pointsman",
			"flush chain ip pointsman service",
			"flush chain ip pointsman nat-prerouting; delete chain ip pointsman nat-prerouting",
			"add chain ip pointsman theirs; add rule ip pointsman pre jump theirs",
			"insert rule ip pointsman far drop",
			"flush set ip pointsman frontends",
			"flush map ip pointsman endpoints",
			"delete element ip pointsman of-4 { 172.30.0.41 . tcp . 80 }",
			"add element ip pointsman of-1 { 172.30.0.41 . tcp . 80 }",
			"add set ip pointsman theirs { type ipv4_addr; }",
			"add element ip pointsman own { 192.0.2.99 }",
			"delete element ip pointsman of-4 { 172.30.0.41 . tcp . 80 } ; add element ip pointsman of-4 { 172.30.0.99 . tcp . 80 }",
		}
		if k.protect == "auto" {
			for _, harm := range harms {
				if err := exec.Command("nft", harm).Run(); err == nil && harm != "flush ruleset" {
					k.Errorf("nft %s: the table is not protected", harm)
				}
				if now := k.text(); now != right {
					k.Errorf("nft %s: the table has changed", harm)
				}
			}
			if repaired := p.Report().Repaired; repaired > 0 {
				k.Errorf("Report has %d repairs", repaired)
			}
			return
		}
		var all []field.Harm
		for _, harm := range harms {
			all = append(all, field.Harm{What: harm, Command: "nft '" + harm + "'"})
		}
		field.Repairs(k.T, p, func() error {
			if now := k.text(); now != right {
				return fmt.Errorf("the table is\n%s\nand was\n%s", now, right)
			}
			return nil
		}, all...)
	})
}

// text returns the words of our tables as nft lists them. They are sorted, because nft lists a set or chain that was
// created again at another place.
func (k kernel) text() string {
	k.Helper()
	var all []string
	for _, of := range []string{"ip", "ip6"} {
		out, err := exec.Command("nft", "-s", "list", "table", of, table).CombinedOutput()
		if err != nil {
			return string(out)
		}
		all = append(all, string(out))
	}
	words := strings.Fields(strings.ReplaceAll(strings.Join(all, " "), ",", " "))
	slices.Sort(words)
	return strings.Join(words, " ")
}
