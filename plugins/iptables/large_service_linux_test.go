// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// many are so many endpoints, each with a chain of its own, that both backends take them
// in several slices.
const many = 12_000

// noted is a restore that notes which of the given texts its input has, a line for each
// time that it runs.
func (k kernel) noted(texts ...string) (lines func() []string) {
	k.Helper()
	log := filepath.Join(k.TempDir(), "log")
	script := "input=$(cat)\nhas=\n"
	for _, text := range texts {
		script += fmt.Sprintf("case \"$input\" in *'%s'*) has=\"$has %s\";; esac\n", text, text)
	}
	script += "printf '%s\\n' \"$input\" | REAL \"$@\" || exit\necho \"restore$has\" >>" + log + "\n"
	k.instead(script)
	return func() []string {
		text, err := os.ReadFile(log)
		if err != nil {
			k.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
}

// moved is a Service with another endpoint than before.
func moved(svc sdk.Service, to uint32) sdk.Service {
	svc.Cluster = []sdk.Endpoint{{Addr: netip.AddrPortFrom(v4(to), 8080)}}
	return svc
}

// failedWith are the names that a result says are not served, and why.
func failedWith(r sdk.Result) map[sdk.Name]error {
	all := make(map[sdk.Name]error)
	for _, f := range r.Failed {
		all[f.Name] = f.Err
	}
	return all
}

// brought waits until nothing is left to be written or removed between calls.
func (k kernel) brought(p *plugin) {
	k.Helper()
	k.eventually("the rest of a large Service is written", func() bool {
		left, err := p.Unfinished(k.Context())
		if err != nil {
			k.Fatal(err)
		}
		done := false
		err = p.Beside(k.Context(), func() error { // a call would end the repair that is waited for
			done = left == 0 && p.families[0].rules.Known() && !p.families[0].rules.Pending()
			return nil
		})
		if err != nil {
			k.Fatal(err)
		}
		return done
	})
}

// wantAll is want once nothing is left to be written, and tells of few differences.
func (k kernel) wantAll(p *plugin, s sdktest.Scenario) {
	k.Helper()
	k.brought(p)
	if wrong := k.wrong(s, sdk.Active); len(wrong) > 0 {
		k.Fatalf("%d chains are not as they should be: %.2000s", len(wrong), strings.Join(wrong, "\n"))
	}
}

// A Service with very many endpoints comes in the same update as a change of another one,
// and while it is written a third one changes. Neither waits for it: the kernel has the
// one before it has anything of the large one, and the other before it has all of that.
func TestKernelNoServiceWaitsForALargeOne(t *testing.T) {
	onKernel(t, func(k kernel) {
		s := several(20)
		p := k.start()
		p.Among = 0 // all of it between calls
		k.sync(p, s.Update(1))
		k.role(p, sdk.Active)
		lines := k.noted("10.9.9.1:", "10.9.9.2:", "11.0.")

		huge := large(endpoints(many))
		s.Services[3] = moved(s.Services[3], 10<<24|9<<16|9<<8|1)
		result, err := p.Sync(k.Context(), sdk.Update{From: 1, To: 2, Set: []sdk.Service{huge, s.Services[3]}})
		if failed := failedWith(result); err != nil || len(failed) != 1 || failed[huge.Name] == nil {
			k.Fatalf("failed: %v, %v; want %s alone", failed, err, huge.Name)
		}
		var refusal *sdk.Refusal
		if why := failedWith(result)[huge.Name]; errors.As(why, &refusal) || !strings.Contains(why.Error(), "still to be written") {
			k.Errorf("it says %v", why)
		}
		s.Services[5] = moved(s.Services[5], 10<<24|9<<16|9<<8|2)
		k.sync(p, sdk.Update{From: 2, To: 3, Set: s.Services[5:6]})
		k.brought(p)

		all := lines()
		first, last := slices.IndexFunc(all, hasText("11.0.")), len(all)-1
		for last > 0 && !hasText("11.0.")(all[last]) {
			last--
		}
		one, other := slices.IndexFunc(all, hasText("10.9.9.1:")), slices.IndexFunc(all, hasText("10.9.9.2:"))
		if one < 0 || one >= first || other < 0 || other >= last {
			k.Errorf("written one after the other:\n%s", strings.Join(all, "\n"))
		}

		s.Services = append(s.Services, huge)
		k.sync(p, sdk.Update{From: 3, To: 4, Set: []sdk.Service{huge}}) // it is offered again
		k.wantAll(p, s)
		k.oneOfMany(p, s)
	})
}

func hasText(text string) func(string) bool {
	return func(line string) bool { return strings.Contains(line, text) }
}

// oneOfMany changes one endpoint of the last Service, which is large, and deletes it then.
func (k kernel) oneOfMany(p *plugin, s sdktest.Scenario) {
	k.Helper()
	huge := &s.Services[len(s.Services)-1]
	huge.Cluster = slices.Delete(slices.Clone(huge.Cluster), 77, 78)
	k.sync(p, sdk.Update{From: 4, To: 5, Set: []sdk.Service{*huge}})
	if written, most := p.families[0].rules.Stats.Last["nat"], int(10*math.Sqrt(many)); written == 0 || written > most {
		k.Errorf("of one endpoint that went %d rules are written, and may be %d", written, most)
	}
	k.wantAll(p, s)

	name := huge.Name
	s.Services = s.Services[:len(s.Services)-1]
	k.sync(p, sdk.Update{From: 5, To: 6, Delete: []sdk.Name{name}})
	k.wantAll(p, s)
}

// A process that begins anew finds a large Service that is served, and is told much else
// of it. What serves stays until that is written, and the others do not wait for it. If
// it dies half-way, the next one ends it.
func TestKernelTakesOverALargeService(t *testing.T) {
	onKernel(t, func(k kernel) {
		s := several(5)
		s.Services = append(s.Services, large(endpoints(many)))
		p := k.start()
		k.role(p, sdk.Standby) // so all of it is written at once
		k.sync(p, s.Update(1))
		k.role(p, sdk.Active)
		p.die()

		huge := &s.Services[5]
		for i := range huge.Cluster {
			huge.Cluster[i].Addr = netip.AddrPortFrom(v4(12<<24|uint32(i)), 8080)
		}
		s.Services[2] = moved(s.Services[2], 10<<24|9<<16|9<<8|1)
		for _, life := range []string{"that dies", "that lives"} {
			p = k.start()
			p.Among = 0
			result, err := p.Sync(k.Context(), s.Update(1))
			if failed := failedWith(result); err != nil || len(failed) != 1 && life == "that dies" || len(failed) == 1 && failed[huge.Name] == nil {
				k.Fatalf("a process %s: failed: %v, %v; want %s alone", life, failed, err, huge.Name)
			}
			if life == "that dies" {
				for _, got := range served(sdk.IPv4, k.tables(sdk.IPv4)) {
					if got.Name == huge.Name && len(got.Endpoints) < many/2 {
						k.Errorf("of the large Service %d endpoints are left", len(got.Endpoints))
					}
					if got.Name == s.Services[2].Name && got.Endpoints[0] != s.Services[2].Cluster[0].Addr {
						k.Errorf("%s waits: it leads to %v", got.Name, got.Endpoints)
					}
				}
				p.die()
			}
		}
		k.wantAll(p, s)
	})
}

// A line of a large Service that the kernel does not take has that Service fail, and
// what served it serves on.
func TestKernelFailsALargeService(t *testing.T) {
	onKernel(t, func(k kernel) {
		s := several(3)
		s.Services = append(s.Services, large(endpoints(fewEndpoints+20))) // no comments in any form of it
		p := k.start()
		k.sync(p, s.Update(1))
		k.role(p, sdk.Active)
		undo := k.instead(strings.ReplaceAll(refusing, "TEXT", fmt.Sprintf("--to-destination %s:8080", v4(11<<24|many-100))))
		huge := large(endpoints(many))
		result, err := p.Sync(k.Context(), sdk.Update{From: 1, To: 2, Set: []sdk.Service{huge}})
		k.brought(p)
		var refused *iptables.LineError
		if failed := failedWith(result); err != nil || len(failed) != 1 || failed[huge.Name] == nil {
			k.Fatalf("failed: %v, %v; want %s alone", failed, err, huge.Name)
		} else if p.Among > 0 && !errors.As(failed[huge.Name], &refused) && !strings.Contains(failed[huge.Name].Error(), "still to be written") {
			k.Errorf("it failed with %v", failed[huge.Name])
		}
		for _, got := range served(sdk.IPv4, k.tables(sdk.IPv4)) {
			if got.Name == huge.Name && len(got.Endpoints) < fewEndpoints+20 {
				k.Errorf("of the large Service %d endpoints are left", len(got.Endpoints))
			}
		}
		undo()
		k.sync(p, sdk.Update{From: 2, To: 3, Set: []sdk.Service{large(endpoints(fewEndpoints + 30))}})
		s.Services[3] = large(endpoints(fewEndpoints + 30))
		k.wantAll(p, s)
	})
}
