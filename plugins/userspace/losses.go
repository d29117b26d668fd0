// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"log/slog"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/sdk"
)

// losses are what other processes remove from nft's tables, for both families, while this
// process is the writer. Legacy's kernel tells nothing. The frame's semaphore guards it.
type losses struct {
	log     *slog.Logger
	nft     bool
	monitor *ruleset.Monitor // nil: nothing is heard
	heard   map[sdk.Family][]iptables.Commit
}

// listen begins to hear.
func (l *losses) listen() {
	if !l.nft || l.monitor != nil {
		return
	}
	var err error
	l.monitor, err = ruleset.Listen(func(g iptables.Gone) bool { return ruleset.Matters(g, isOurs) })
	if err != nil {
		l.log.Warn("cannot hear who changes the tables", "err", err)
	}
	l.heard = make(map[sdk.Family][]iptables.Commit)
}

// ignore ends it.
func (l *losses) ignore() {
	l.monitor.Close()
	l.monitor = nil
}

// take is what was heard since it was last asked for a family.
func (l *losses) take(of sdk.Family) []iptables.Commit {
	if commits := l.monitor.Take(); len(commits) > 0 {
		for _, f := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
			l.heard[f] = append(l.heard[f], commits...)
		}
	}
	mine := l.heard[of]
	delete(l.heard, of)
	return mine
}

// started and ended are told of each program that writes for us, so that it is not heard.
func (l *losses) started(pid int) { l.monitor.Started(pid) }
func (l *losses) ended()          { l.monitor.Ended() }
