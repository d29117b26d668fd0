// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/pointsman/pointsman/sdk"
)

// ipset are the sets, by netlink where there are few entries, and by the program
// where there are many.
type ipset struct {
	handle *netlink.Handle
	hold   *os.File // handed to the program: the writer's lock lasts until it is done
}

// Hold has the program keep a file open.
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

func (i *ipset) Add(e entry, n note) error {
	if !plain(n) {
		return i.Restore(context.Background(), e.command(n)+"\n")
	}
	m := member(e)
	m.Comment, m.Replace = n.comment, true
	return i.handle.IpsetAdd(e.set.in(e.family), m)
}

func (i *ipset) Remove(e entry) error {
	m := member(e)
	m.Replace = true // no error when it is gone
	return i.handle.IpsetDel(e.set.in(e.family), m)
}

func (i *ipset) Has(e entry) (bool, error) { return i.handle.IpsetTest(e.set.in(e.family), member(e)) }

// member is e in the library's words. An entry that is only a port has no address.
func member(e entry) *netlink.IPSetEntry {
	m := &netlink.IPSetEntry{IP: net.IP(e.addr.AsSlice())}
	if sets[e.set].form != formAddr {
		protocol, port := uint8(number(e.protocol)), e.port
		m.Protocol, m.Port = &protocol, &port
	}
	if e.from.IsValid() {
		m.IP2 = net.IP(e.from.Addr().AsSlice())
		if sets[e.set].form == formSources {
			m.CIDR2 = uint8(e.from.Bits())
		}
	}
	return m
}

// run runs the program in a process group of its own. When ctx ends the group is
// killed and reaped.
func (i *ipset) run(ctx context.Context, stdin string, args ...string) ([]byte, error) {
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, "ipset", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &said
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 500 * time.Millisecond
	if i.hold != nil {
		cmd.ExtraFiles = []*os.File{i.hold}
	}
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return nil, fmt.Errorf("ipset %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return out.Bytes(), nil
}
