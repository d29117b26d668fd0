// SPDX-License-Identifier: Apache-2.0

package breakage

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// A set is one of nf_tables, or a map, as nft lists it.
type set struct {
	Name string
	Elem []any
}

// elements takes in those of a table, by their sets, and its base chains. Rules are not taken
// in: some are made with the first Service that needs them, and stay. Nor are elements that
// packets make.
func (d dump) elements(table, text string) error {
	var all struct {
		Nftables []struct {
			Set, Map *set
			Chain    *struct{ Name, Hook string }
		}
	}
	text = text[max(0, strings.IndexByte(text, '{')):] // behind warnings
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return fmt.Errorf("nft says %s: %w", text, err)
	}
	for _, o := range all.Nftables {
		if o.Chain != nil && o.Chain.Hook != "" {
			d[table+o.Chain.Name] = []string{o.Chain.Hook}
		}
		for _, s := range []*set{o.Set, o.Map} {
			if s != nil && len(s.Elem) > 0 && !strings.Contains(s.Name, "sticky") {
				d[table+s.Name] = s.texts()
			}
		}
	}
	return nil
}

// anyNumber is one that a Service with affinity has.
var anyNumber = regexp.MustCompile(`"0:[0-9a-f]+"`)

// texts are the elements of a set, in order. Which slot an endpoint has is chance, and so is
// which number a Service has.
func (s *set) texts() (all []string) {
	for _, e := range s.Elem {
		if pair, is := e.([]any); is && strings.HasSuffix(s.Name, "endpoints") {
			if key, is := pair[0].(map[string]any); is {
				concat := key["concat"].([]any)
				key["concat"] = concat[:len(concat)-1]
			}
		}
		text, _ := json.Marshal(e) // of what was JSON
		all = append(all, anyNumber.ReplaceAllString(string(text), "ANY"))
	}
	slices.Sort(all)
	return all
}

// marked waits, in the mode that keeps KUBE-MARK-MASQ beside everything else, until that is done.
func (n *node) marked() {
	n.Helper()
	if n.mode != "nftables" {
		return
	}
	n.until("KUBE-MARK-MASQ is there", long, func() error {
		rules := n.dump()
		for _, family := range []string{"iptables", "ip6tables"} {
			if rules[family+" nat KUBE-MARK-MASQ"] == nil {
				return fmt.Errorf("%s has none", family)
			}
		}
		return nil
	})
}

// rulesetFlushed has another program flush all of nf_tables: the table is left out, as a
// process owns it, and no call fails.
func rulesetFlushed(n *node) {
	n.settle()
	before := n.dump()
	n.must("nft", "flush ruleset")
	if text := before.differs(n.dump()); text != "" {
		n.Errorf("another program's flush took away\n%s", text)
	}
}

// tableDeleted has another program delete the table while no process owns it. Calls fail until
// the next process has made it anew.
func tableDeleted(n *node) {
	n.settle()
	n.marked()
	before := n.dump()
	n.write("plugins/"+plugin(n.mode), "#!/bin/sh\nexit 3\n")
	n.must("chmod", "755", n.path("plugins/"+plugin(n.mode)))
	n.kill(n.mode, syscall.SIGKILL)
	n.shows(soon, warning("W001", ""))
	n.cut()
	n.must("nft", "delete table ip pointsman")
	n.install(plugin(n.mode), "plugins/"+plugin(n.mode))
	n.within(long, "all is as it was", func() error {
		if text := before.differs(n.dump()); text != "" {
			return errors.New(text)
		}
		return nil
	})
}
