// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/launch"
)

// plugins installs scripts as the binaries of modes, and returns settings that find only these.
func plugins(t *testing.T, scripts map[string]string) *config.Host {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell: the plugins here are scripts")
	}
	dir := t.TempDir()
	for mode, cases := range scripts {
		text := "#!/bin/sh\ncase \"$*\" in\n" + cases + "\n*) echo no such verb >&2; exit 64;;\nesac\n"
		if err := os.WriteFile(filepath.Join(dir, launch.Prefix+mode), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return &config.Host{PluginDirs: []string{dir}}
}

// TestVerbIsEnded: if a plugin's binary does not answer in time, the error says so.
func TestVerbIsEnded(t *testing.T) {
	h := plugins(t, map[string]string{"slow": "*) exec sleep 600;;"})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := Run(ctx, filepath.Join(h.PluginDirs[0], launch.Prefix+"slow"), "", "check")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "killed before it answered") {
		t.Errorf("found %v", err)
	}
}

// TestLeftOfKubeProxy lists what the plugins would remove, without what the mode takes over, what
// all modes share, and what rules of other programs refer to.
func TestLeftOfKubeProxy(t *testing.T) {
	removes := func(flags string, items ...string) string {
		return fmt.Sprintf("'cleanup --dry-run -o json%s') echo '{\"removed\":[%s]}';;", flags, `"`+strings.Join(items, `","`)+`"`)
	}
	const chain, keep, masq, device = "iptables-nft: chain KUBE-SERVICES", "iptables-nft: keep chain KUBE-FORWARD", "iptables-nft: chain KUBE-MARK-MASQ", "device kube-ipvs0"
	h := plugins(t, map[string]string{
		"taker": removes("", chain),
		"other": removes(" --kube-proxy", device, chain, keep, masq),
		"third": removes(" --kube-proxy", device),
		"mute":  "",
	})
	l := LeftOfKubeProxy(t.Context(), h, "taker")
	if !slices.Equal(l.Removable, []string{device}) || !slices.Equal(l.Kept, []string{keep}) {
		t.Errorf("%+v", l)
	}
	if len(l.Unknown) != 1 || !strings.Contains(l.Unknown[0], "mute did not say what it would clean up of kube-proxy") {
		t.Errorf("not known: %q", l.Unknown)
	}
	l = LeftOfKubeProxy(t.Context(), h, "mute")
	if len(l.Removable)+len(l.Kept) > 0 || len(l.Unknown) == 0 || !strings.Contains(l.Unknown[0], "mute did not say what it would take over from kube-proxy") {
		t.Errorf("for a mode that does not report what it takes over: %+v", l)
	}
}

// TestLeftOfIPVS: nothing of kube-proxy's ipvs mode is left over if mode ipvs takes it over, and its own chains
// keep nothing. In mode iptables, the objects of IPVS are left over. The items are those that the plugins name on
// a node where kube-proxy v1.37.2 serves in ipvs mode.
func TestLeftOfIPVS(t *testing.T) {
	const (
		services  = "iptables-legacy: remove nat KUBE-SERVICES"
		balancer  = "iptables-legacy: remove nat KUBE-LOAD-BALANCER"
		device    = "device kube-ipvs0 with 2 addresses"
		postroute = "ipv4 legacy: remove nat KUBE-POSTROUTING"
		kept      = "ipv4 legacy: keep nat KUBE-MARK-MASQ and KUBE-POSTROUTING: a rule of KUBE-LOAD-BALANCER leads to KUBE-MARK-MASQ"
		foreign   = "ipv4 legacy: keep nat KUBE-MARK-MASQ and KUBE-POSTROUTING: a rule of CNI-DN-1 leads to KUBE-MARK-MASQ"
	)
	byIPVS := []string{device, services, balancer, postroute}
	for _, c := range []struct {
		why                           string
		named, taken, removable, kept []string
	}{
		{"ipvs", []string{services, kept, services, kept}, byIPVS, nil, nil},
		{"iptables", byIPVS, []string{services, kept}, []string{device, balancer}, nil},
		{"userspace", append([]string{services, kept}, byIPVS...), nil, []string{device, balancer, services}, nil},
		{"ipvs, beside portmap", []string{services, foreign}, byIPVS, nil, []string{foreign}},
	} {
		l := Leftovers{Removable: slices.Clone(c.named)}
		l.classify(c.taken)
		if !slices.Equal(l.Removable, c.removable) || !slices.Equal(l.Kept, c.kept) {
			t.Errorf("mode %s: left over is %q, and kept %q", c.why, l.Removable, l.Kept)
		}
	}
}
