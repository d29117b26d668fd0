// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A follow is a Follower with its file.
type follow struct {
	t    *testing.T
	path string
	*Follower
}

func newFollow(t *testing.T, path string) *follow {
	return &follow{t: t, path: path, Follower: Follow(mustLoad(t, path, nil), nil)}
}

func (f *follow) write(text string) {
	f.t.Helper()
	must(f.t, os.WriteFile(f.path, []byte(text), 0o644))
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// looks returns the results of several looks as text.
func (f *follow) looks() string {
	f.t.Helper()
	var all []string
	for range 4 {
		c, ok := f.Look(false)
		if !ok {
			continue
		}
		if c.Err != nil {
			all = append(all, "refused: "+strings.ReplaceAll(c.Err.Error(), filepath.Dir(f.path)+string(filepath.Separator), ""))
			continue
		}
		all = append(all, fmt.Sprintf("applied %v pending %v", c.Applied, c.Pending))
	}
	return strings.Join(all, "; ")
}

func (f *follow) want(want string, period time.Duration, stale bool) {
	f.t.Helper()
	if got := f.looks(); got != want {
		f.t.Errorf("got %q, want %q", got, want)
	}
	if got := f.Host().SyncPeriod.Duration; got != period {
		f.t.Errorf("syncPeriod is %s, want %s", got, period)
	}
	if err := f.State().Err; (err != nil) != stale {
		f.t.Errorf("the error is %v", err)
	}
}

func TestFollow(t *testing.T) {
	good := head + "syncPeriod: 10s\n"
	better := head + "syncPeriod: 20s\n"
	for _, tc := range []struct {
		name string
		play func(f *follow)
	}{
		{"nothing happens", func(f *follow) {
			f.want("", 10*time.Second, false)
		}},
		{"a live field", func(f *follow) {
			f.write(better)
			f.want("applied [syncPeriod] pending []", 20*time.Second, false)
			f.want("", 20*time.Second, false)
		}},
		{"a comment and another spelling", func(f *follow) {
			f.write(head + "syncPeriod: 10000ms # a remark\nplugins: {}\n")
			f.want("applied [] pending []", 10*time.Second, false)
		}},
		{"fields that need a restart", func(f *follow) {
			f.write(better + "mode: ipvs\nplugins: {ipvs: {options: {scheduler: lc}}}\nlogging: {level: debug, format: json}\n")
			f.want("applied [logging.level mode plugins.ipvs.options syncPeriod] pending [logging.format]", 20*time.Second, false)
			if h := f.Host(); h.Mode != "ipvs" || h.Logging.Format != "text" || h.Logging.Level != "debug" || len(h.Plugins) != 1 {
				f.t.Errorf("the settings are %s", mustJSON(f.t, h))
			}
			f.write(better) // ipvs is in use now
			f.want("applied [logging.level mode plugins.ipvs.options] pending []", 20*time.Second, false)
		}},
		{"options of the plugin in use", func(f *follow) {
			f.write(better + "plugins: {iptables: {options: {localhostNodePorts: false}}}\n")
			f.want("applied [plugins.iptables.options syncPeriod] pending []", 20*time.Second, false)
			if got := string(f.Host().Plugins["iptables"].Options); got != `{"localhostNodePorts":false}` {
				f.t.Errorf("the options are %s", got)
			}
			f.write(better + "plugins: {iptables: {address: \"unix:///run/a.sock\", options: {localhostNodePorts: true}}}\n")
			f.want("applied [] pending [plugins.iptables.address plugins.iptables.options]", 20*time.Second, false)
			if got := f.Host().Plugins["iptables"]; string(got.Options) != `{"localhostNodePorts":false}` || got.Address != "" {
				f.t.Errorf("the plugin is %+v", got)
			}
			f.write(better)
			f.want("applied [plugins.iptables.options] pending []", 20*time.Second, false)
		}},
		{"options that the plugin refuses", func(f *follow) {
			f.Check = func(wanted *Host) error {
				if len(wanted.Plugins) > 0 {
					return errors.New("too deep")
				}
				return nil
			}
			f.write(better + "plugins: {iptables: {options: {depth: 2}}}\n")
			f.want("refused: too deep", 10*time.Second, true)
			f.write(better)
			f.want("applied [syncPeriod] pending []", 20*time.Second, false)
		}},
		{"options of the modes for auto", func(f *follow) {
			f.write(better + "mode: auto\n")
			f.want("applied [mode syncPeriod] pending []", 20*time.Second, false)
			f.write(better + "mode: auto\nplugins: {ipvs: {options: {scheduler: lc}}, nftables: {options: {protect: never}}}\n")
			f.want("applied [plugins.ipvs.options plugins.nftables.options] pending []", 20*time.Second, false)
		}},
		{"a file with an error, then with another one, then a valid file", func(f *follow) {
			f.write(head + "syncPeriode: 20s\n")
			f.want(`refused: host.yaml: syncPeriode: unknown field; try: pointsman config defaults, which prints every field`, 10*time.Second, true)
			since := f.State().Since
			f.write(head + "syncPeriode: 30s\n")
			f.want(`refused: host.yaml: syncPeriode: unknown field; try: pointsman config defaults, which prints every field`, 10*time.Second, true)
			if got := f.State().Since; got != since {
				f.t.Errorf("the error began at %s, want %s", got, since)
			}
			f.want("", 10*time.Second, true)
			f.write(better)
			f.want("applied [syncPeriod] pending []", 20*time.Second, false)
		}},
		{"an empty file", func(f *follow) {
			must(f.t, os.Truncate(f.path, 0))
			f.want("refused: host.yaml: has apiVersion \"\" and kind \"\"; try: apiVersion: pointsman.dev/v1alpha1 and kind: HostConfig, as pointsman config defaults prints", 10*time.Second, true)
		}},
		{"deleted and restored", func(f *follow) {
			must(f.t, os.Remove(f.path))
			f.want("refused: read config: stat host.yaml: no such file or directory", 10*time.Second, true)
			f.write(good)
			f.want("applied [] pending []", 10*time.Second, false)
		}},
		{"replaced by a folder", func(f *follow) {
			must(f.t, os.Remove(f.path), os.Mkdir(f.path, 0o755))
			f.want("refused: read config: host.yaml is not a regular file", 10*time.Second, true)
		}},
		{"an editor in the middle of writing", func(f *follow) {
			f.write(better[:len(better)-4]) // syncPeriod: 20 → and nothing after it
			if c, ok := f.Look(false); ok {
				f.t.Errorf("half of a file: %+v", c)
			}
			f.write(better)
			f.want("applied [syncPeriod] pending []", 20*time.Second, false)
		}},
		{"the symlink of a ConfigMap's volume, which may point nowhere for a moment", func(f *follow) {
			dir := filepath.Dir(f.path)
			point := func(to string) {
				must(f.t, os.Symlink(to, filepath.Join(dir, "..tmp")), os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
			}
			must(f.t, os.Mkdir(filepath.Join(dir, "..v1"), 0o755), os.Mkdir(filepath.Join(dir, "..v2"), 0o755), os.Rename(f.path, filepath.Join(dir, "..v1/host.yaml")),
				os.WriteFile(filepath.Join(dir, "..v2/host.yaml"), []byte(better), 0o644), os.Symlink("..data/host.yaml", f.path))
			point("..v2")
			f.want("applied [syncPeriod] pending []", 20*time.Second, false)
			point("..nowhere")
			f.want("refused: read config: stat host.yaml: no such file or directory", 20*time.Second, true)
			point("..v1")
			f.want("applied [syncPeriod] pending []", 10*time.Second, false)
		}},
		{"replaced by rename", func(f *follow) {
			other := f.path + ".new"
			must(f.t, os.WriteFile(other, []byte(better), 0o644), os.Rename(other, f.path))
			f.want("applied [syncPeriod] pending []", 20*time.Second, false)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "host.yaml")
			must(t, os.WriteFile(path, []byte(good), 0o644))
			tc.play(newFollow(t, path))
		})
	}
}

// TestRun checks that reload reports the first look, also if nothing has changed, and that Run looks by itself.
func TestRun(t *testing.T) {
	f := newFollow(t, write(t, "syncPeriod: 10s\n"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	changes, reload := make(chan State), make(chan os.Signal)
	ended := make(chan struct{})
	go func() { defer close(ended); f.Run(ctx, time.Hour, reload, func(c State) { changes <- c }) }()
	for _, tc := range []struct{ body, want string }{
		{"syncPeriod: 10s\n", "[] <nil>"},
		{"syncPeriod: 20s\n", "[syncPeriod] <nil>"},
		{"syncPeriode: 20s\n", "[] " + f.path + ": syncPeriode: unknown field; try: pointsman config defaults, which prints every field"},
		{"syncPeriode: 20s\n", "[] " + f.path + ": syncPeriode: unknown field; try: pointsman config defaults, which prints every field"},
		{"syncPeriod: 20s\n", "[] <nil>"},
	} {
		f.write(head + tc.body)
		reload <- os.Interrupt
		select {
		case c := <-changes:
			if got := fmt.Sprint(c.Applied, " ", c.Err); got != tc.want {
				t.Errorf("%q: got %s, want %s", tc.body, got, tc.want)
			}
		case <-ctx.Done():
			t.Fatalf("%q: reload reports nothing", tc.body)
		}
	}
	cancel()
	<-ended

	f.write(head + "syncPeriod: 30s\n")
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f.Run(ctx, time.Millisecond, nil, func(c State) {
		if c.Host.SyncPeriod.Duration == 30*time.Second {
			cancel()
		}
	})
	if ctx.Err() != context.Canceled {
		t.Error("without reload the change was not reported")
	}
}

// TestFollowWithoutFile checks that a reload changes nothing if there is no file.
func TestFollowWithoutFile(t *testing.T) {
	h := mustLoad(t, "", nil)
	for _, asked := range []bool{false, true} {
		if c, ok := Follow(h, nil).Look(asked); ok != asked || mustJSON(t, c.Host) != mustJSON(t, h) || c.Applied != nil || c.Pending != nil || c.Err != nil {
			t.Errorf("asked: %t: got %+v", asked, c)
		}
	}
}

// TestFollowKeepsFlags checks that a flag overrides changes of the file.
func TestFollowKeepsFlags(t *testing.T) {
	flags := flagSet(t, "--log-level=trace")
	path := write(t, "logging: {level: info}\n")
	f := Follow(mustLoad(t, path, flags), flags)
	must(t, os.WriteFile(path, []byte(head+"logging: {level: error}\nsyncPeriod: 20s\n"), 0o644))
	f.Look(false)
	if c, ok := f.Look(false); !ok || fmt.Sprint(c.Applied) != "[syncPeriod]" || c.Host.Logging.Level != "trace" {
		t.Errorf("applied %v, %v", c.Applied, ok)
	}
}
