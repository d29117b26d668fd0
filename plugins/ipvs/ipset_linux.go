// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	kernelset "github.com/pointsman/pointsman/plugins/internal/ipset"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// ipset implements setKeeper: by netlink for few members, and by the program ipset for many.
type ipset struct {
	hold *os.File // inherited by the program, so that the writer's lock lasts until the program ends
}

// Hold sets the file that the program inherits.
func (i *ipset) Hold(file *os.File) { i.hold = file }

func (i *ipset) Sets(ctx context.Context) (map[sdk.Family]setsOf, error) {
	out, err := i.run(ctx, "", "save")
	if err != nil {
		return nil, err
	}
	return readSets(out)
}

func (i *ipset) Restore(ctx context.Context, lines string) error {
	_, err := i.run(ctx, lines, "restore", "-exist")
	return err
}

// run runs the program. If ctx ended, the error says so.
func (i *ipset) run(ctx context.Context, stdin string, args ...string) ([]byte, error) {
	var out, answers bytes.Buffer
	cmd := iptables.Command(ctx, i.hold, "ipset", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &answers
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return nil, fmt.Errorf("ipset %s: %w: %s", args[0], err, strings.TrimSpace(answers.String()))
	}
	return out.Bytes(), nil
}

// kernelEntry converts an entry and its note to the netlink form.
func kernelEntry(e entry, n note) kernelset.Entry {
	form := sets[e.set].form
	m := kernelset.Entry{Addr: e.addr, Port: e.port, HasPort: form != formAddr, Comment: n.comment, Mark: n.mark}
	if e.protocol != 0 {
		m.Protocol = uint8(protocolNumber(e.protocol))
	}
	if e.from.IsValid() {
		m.Second = e.from.Addr()
	}
	if form == formSources {
		m.Bits = e.from.Bits()
	}
	return m
}

// Add adds an entry, or changes its note.
func (i *ipset) Add(e entry, n note) error {
	if err := kernelset.Change(nl.IPSET_CMD_ADD, e.set.name(e.family), kernelEntry(e, n)); err != nil {
		return fmt.Errorf("add %s to %s: %w", e, e.set.name(e.family), err)
	}
	return nil
}

// Remove removes an entry, if it exists.
func (i *ipset) Remove(e entry) error {
	if err := kernelset.Change(nl.IPSET_CMD_DEL, e.set.name(e.family), kernelEntry(e, note{})); err != nil && !errors.Is(err, nl.IPSetError(nl.IPSET_ERR_EXIST)) {
		return fmt.Errorf("remove %s from %s: %w", e, e.set.name(e.family), err)
	}
	return nil
}

// Count returns the number of members of a set. It lists the set without its members, because the number is in
// the header.
func (i *ipset) Count(s set, f sdk.Family) (int, error) {
	const withoutEntries = 1 << 2 // IPSET_FLAG_LIST_HEADER
	r := kernelset.Request(nl.IPSET_CMD_LIST, s.name(f))
	r.AddData(&nl.Uint32Attribute{Type: nl.IPSET_ATTR_FLAGS | unix.NLA_F_NET_BYTEORDER, Value: withoutEntries})
	messages, err := r.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return 0, fmt.Errorf("count the entries of %s: %w", s.name(f), err)
	}
	count := 0
	for _, message := range messages { // to the end: nl.ParseAttributes blocks until all attributes are read
		for a := range nl.ParseAttributes(message[nl.SizeofNfgenmsg:]) {
			if a.Type != nl.IPSET_ATTR_DATA|nl.NLA_F_NESTED {
				continue
			}
			for b := range nl.ParseAttributes(a.Value) {
				if b.Type == nl.IPSET_ATTR_ELEMENTS|nl.NLA_F_NET_BYTEORDER {
					count = int(b.Uint32())
				}
			}
		}
	}
	return count, nil
}
