// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/binaries"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/plane"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// installed looks up the plugins of this machine by the host's settings.
type installed struct{ Settings }

// found returns the binary of a mode. Err is fs.ErrNotExist if there is none.
func (in installed) found(mode string) launch.Found {
	for _, f := range binaries.Discover(in.Now()) {
		if f.Name == mode {
			return f
		}
	}
	return launch.Found{Name: mode, Err: fmt.Errorf("binary of plugin %s: %w", mode, fs.ErrNotExist)}
}

// available reports whether a mode has a plugin: a binary, or an address. Whether a plugin listens
// at an address turns out when we connect.
func (in installed) available(mode string) bool {
	return in.Now().Plugins[mode].Address != "" || in.found(mode).Err == nil
}

// exists reports whether a mode has a plugin, even one that cannot run: it can be repaired
// while the host waits.
func (in installed) exists(mode string) bool {
	return in.available(mode) || !errors.Is(in.found(mode).Err, fs.ErrNotExist)
}

// check asks a mode's plugin whether it can run on this node with its options in h.
func (in installed) check(ctx context.Context, h *config.Host, mode string) (admin.Check, error) {
	s := h.Plugins[mode]
	ctx, cancel := context.WithTimeout(ctx, binaries.AskLimit)
	defer cancel()
	if s.Address == "" {
		return binaries.Check(ctx, in.found(mode), s)
	}
	remote, err := in.attach(ctx, s.Address)
	if err != nil {
		return admin.Check{}, err
	}
	defer remote.Close()
	return binaries.Decode[admin.Check](remote.Preflight(ctx, s.Options))
}

// attach connects to the plugin at an address. If the folder of its socket exists, the plugin
// may be starting right now, so attach retries. In a pod it also retries without the folder:
// the plugin creates the folder, and there is a container for each address.
func (in installed) attach(ctx context.Context, address string) (*wire.Remote, error) {
	inPod := os.Getenv("KUBERNETES_SERVICE_HOST") != "" // as in every pod
	target, err := wire.At(address)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(startLimit); ; {
		remote, err := wire.Attach(ctx, target)
		_, away := os.Stat(filepath.Dir(target.Address))
		if err == nil || target.Network != "unix" || away != nil && !inPod || time.Now().After(end) {
			return remote, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-time.After(busyInterval):
		}
	}
}

// startLimit limits the wait for a plugin at an address: first until it listens, then until it
// has read the role that the kernel shows.
const startLimit = 10 * time.Second

// observed returns the facts for a node without facts from a previous host. It asks the plugins which roles they show:
// the Active mode serves, and modes with other roles were draining when the previous host was replaced. After the
// Active mode serves again, the host swaps from it to the wanted mode, so no connection is lost. It asks only plugins
// at an address, because only they run before the host.
func (in installed) observed(ctx context.Context, facts plane.Facts, wanted string) plane.Facts {
	ctx, cancel := context.WithTimeout(ctx, binaries.AskLimit)
	defer cancel()
	var mu sync.Mutex // guards found
	found := make(map[string]sdk.Role)
	var all sync.WaitGroup
	for mode, plugin := range in.Now().Plugins {
		if plugin.Address == "" {
			continue
		}
		all.Go(func() {
			role, err := in.shown(ctx, mode)
			if err != nil {
				in.Log.Info("plugin did not report its role", "plugin", mode, "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			found[mode] = role
		})
	}
	all.Wait()
	seen := plane.Observed(wanted, found)
	facts.Served, facts.Left = seen.Served, seen.Left
	return facts
}

// shown returns the role that a plugin at an address shows; zero if it cannot tell. The plugin
// reads the role after a session has begun.
func (in installed) shown(ctx context.Context, mode string) (sdk.Role, error) {
	plugin := in.Now().Plugins[mode]
	remote, err := in.attach(ctx, plugin.Address)
	if err != nil {
		return 0, err
	}
	defer remote.Close()
	if _, err := remote.Configure(ctx, sdk.Setup{Options: plugin.Options, StateDir: plane.PluginDir(in.Begun.StateDir, mode)}); err != nil {
		return 0, err
	}
	for end := time.Now().Add(startLimit); ; {
		v, err := remote.Vitals(ctx)
		if err != nil || v.Shown != 0 || time.Now().After(end) {
			return cmp.Or(v.Shown, v.Role), err // Role is set if the process served the previous host
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(busyInterval):
		}
	}
}

// plugin returns the plugin of a mode. If its binary is missing, plugin reports that and
// returns a plugin that fails to start, so that the host waits for it.
func (in installed) plugin(mode string) launch.Plugin {
	s := in.Now()
	if !launch.ValidName(mode) {
		return launch.Plugin{Name: mode} // its start fails, and the host retries it
	}
	level := in.Begun.Logging.Level
	if level == "trace" {
		level = "debug" // the lowest level that plugins have
	}
	p := launch.Plugin{
		Name:      mode,
		Path:      filepath.Join(binaries.Dirs(in.Begun)[0], launch.Prefix+mode),
		SHA256:    s.Plugins[mode].SHA256,
		Address:   s.Plugins[mode].Address,
		Debug:     s.Plugins[mode].Debug,
		StateDir:  plane.PluginDir(in.Begun.StateDir, mode),
		SocketDir: socketDir(in.Begun.StateDir),
		Env:       []string{wire.LevelEnv + "=" + level},
	}
	if adj := in.Begun.OOMScoreAdj; adj != 0 && in.protectFromOOM(adj) {
		p.OOMScoreAdj = &adj
	}
	if p.Address != "" {
		return p
	}
	if f := in.found(mode); f.Path != "" {
		p.Path = f.Path
	} else {
		in.Reports.Report(report.Event{Warning: true, Reason: report.PluginDown, Object: mode, Message: binaries.Missing(s, mode)})
	}
	return p
}

// protectFromOOM sets the host's oom_score_adj, and reports whether the kernel allowed it.
func (in installed) protectFromOOM(adj int) bool {
	err := os.WriteFile("/proc/self/oom_score_adj", fmt.Append(nil, adj), 0)
	if err != nil {
		in.Log.Info("oomScoreAdj not set", "err", err)
	}
	return err == nil
}

// socketDir returns the directory for sockets below stateDir, or "" if the path of a socket
// would be too long: the kernel allows 107 bytes.
func socketDir(stateDir string) string {
	if len(stateDir) > 50 {
		return ""
	}
	return filepath.Join(stateDir, "sockets")
}

const surveyInterval = time.Minute

// survey looks for rules that serve without being updated, until ctx ends.
func (set *Set) survey(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var next time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			next = set.surveyIfDue(ctx, now, next)
		}
	}
}

// surveyIfDue asks each plugin's binary what it would clean up, if the survey is due and the dataplane of the current
// mode does not serve. It returns when the next survey is due.
func (set *Set) surveyIfDue(ctx context.Context, now, next time.Time) time.Time {
	main := set.serving()
	if set.serves(main) {
		set.unattended.Store(nil)
		return time.Time{}
	}
	if now.Before(next) || main.shownStatus().isComing() {
		return next
	}
	found := set.leftovers(ctx)
	set.unattended.Store(&found)
	return now.Add(surveyInterval)
}

// Unattended returns, by mode, the rules in the kernel that nothing updates: those that serve while the current mode does
// not, and those that may be left of modes which no swap removes.
func (set *Set) Unattended() []string {
	if found := set.unattended.Load(); found != nil {
		return *found
	}
	set.mu.Lock()
	defer set.mu.Unlock()
	var all []string
	for _, mode := range set.state.Facts.Left {
		waits, there := set.startable[mode]
		switch refused := set.state.Facts.Refused; {
		case set.instance(func(i plane.Instance) bool { return i.Mode == mode }) != nil || !there:
		case !waits:
			all = append(all, mode+" may have some, and its plugin is not installed")
		case refused != nil:
			all = append(all, mode+" may have some, which are removed once the swap to "+refused.Mode+" succeeds, or pointsman mode reset gives it up")
		}
	}
	return all
}

// leftovers returns what each mode's plugin would clean up.
func (in installed) leftovers(ctx context.Context) []string {
	var all []string
	for _, f := range binaries.Discover(in.Now()) {
		if f.Err != nil {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, binaries.AskLimit)
		left, err := binaries.WouldRemove(limited, f.Path, in.Now().Plugins[f.Name].SHA256, "--kube-proxy")
		cancel()
		if left = slices.DeleteFunc(left, binaries.IsKept); err == nil && len(left) > 0 {
			all = append(all, fmt.Sprintf("%s: %s%s", f.Name, left[0], phrase.AndMore(len(left)-1)))
		}
	}
	return all
}
