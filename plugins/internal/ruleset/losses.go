// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"log/slog"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// Losses are what other processes remove from nft's tables, for both families, while this
// process is the writer. Legacy's kernel tells nothing. One goroutine at a time uses them.
type Losses struct {
	Log  *slog.Logger
	Ours func(iptables.ID) bool // as in Config

	monitor *Monitor // nil: nothing is heard
	heard   map[sdk.Family][]iptables.Commit
}

// Hold begins to hear what is removed from the tables of tool when there is a lock, and ends
// it when there is none.
func (l *Losses) Hold(tool iptables.Tool) {
	switch {
	case tool.Hold == nil:
		l.monitor.Close()
		l.monitor = nil
		return
	case tool.Backend != iptables.NFT || l.monitor != nil:
		return
	}
	var err error
	l.monitor, err = Listen(func(g iptables.Gone) bool { return Matters(g, l.Ours) })
	if err != nil {
		l.Log.Warn("cannot listen to changes of the tables", "err", err)
	}
	l.heard = make(map[sdk.Family][]iptables.Commit)
}

// Take is what was heard since it was last asked for a family.
func (l *Losses) Take(of sdk.Family) []iptables.Commit {
	if commits := l.monitor.Take(); len(commits) > 0 {
		for _, f := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
			l.heard[f] = append(l.heard[f], commits...)
		}
	}
	mine := l.heard[of]
	delete(l.heard, of)
	return mine
}

// Started and Ended are told of each program that writes for this process, so that it is not
// heard.
func (l *Losses) Started(pid int) { l.monitor.Started(pid) }
func (l *Losses) Ended()          { l.monitor.Ended() }
