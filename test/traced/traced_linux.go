// SPDX-License-Identifier: Apache-2.0

// Package traced finds out what programs write: by their system calls, and by the generation of nf_tables, which grows
// with each committed batch. It must not change the program under test. Start reading at Written.
package traced

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// these are the system calls that create, change or remove a file, a table of iptables-legacy or a module. The first of
// them may also only read.
const these = "open,openat,openat2,setsockopt,creat,mkdir,mkdirat,mknod,mknodat,unlink,unlinkat,rmdir,rename,renameat,renameat2," +
	"link,linkat,symlink,symlinkat,truncate,ftruncate,chmod,fchmod,fchmodat,chown,fchown,fchownat,lchown,setxattr,lsetxattr,fsetxattr," +
	"mount,umount2,init_module,finit_module,delete_module"

var (
	call   = regexp.MustCompile(`^\d+ +(\w+)\(`)
	either = regexp.MustCompile(`^(open|openat|openat2|setsockopt)$`)
	writes = regexp.MustCompile(`O_CREAT|O_TRUNC|O_WRONLY|O_RDWR|SO_SET_REPLACE|SO_SET_ADD_COUNTERS`)
)

// Need skips a test if the program that traces is missing.
func Need(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("needs strace: apt-get install strace")
	}
}

// Written runs cmd in the network namespace of this thread, and returns the system calls by which it, or what it
// started, tried to write. dir is a folder for the trace. How cmd ended is in its ProcessState.
func Written(dir string, cmd *exec.Cmd) ([]string, error) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		return nil, err
	}
	trace := filepath.Join(dir, "trace")
	cmd.Args = append([]string{strace, "-f", "-qq", "-s", "200", "-o", trace, "-e", "trace=" + these, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = strace
	before, err := generation()
	if err != nil {
		return nil, err
	}
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		return nil, err
	}
	after, err := generation()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(trace)
	if err == nil && len(text) == 0 {
		err = errors.New("strace has seen nothing")
	}
	var written []string
	for line := range strings.Lines(string(text)) {
		name := call.FindStringSubmatch(line)
		if name == nil || strings.Contains(line, `"/dev/null"`) || either.MatchString(name[1]) && !writes.MatchString(line) {
			continue
		}
		written = append(written, strings.TrimSpace(line))
	}
	if after != before {
		written = append(written, fmt.Sprintf("%d batches of nf_tables", after-before))
	}
	return written, err
}

// generation returns the number of batches that the kernel has committed in this thread's network namespace.
func generation() (uint32, error) {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC})
	answers, err := request.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil || len(answers) != 1 {
		return 0, fmt.Errorf("ask for the generation of nf_tables: %d answers, %w", len(answers), err)
	}
	attributes, err := nl.ParseRouteAttr(answers[0][nl.SizeofNfgenmsg:])
	for _, a := range attributes {
		if a.Attr.Type&nl.NLA_TYPE_MASK == unix.NFTA_GEN_ID && len(a.Value) == 4 {
			return binary.BigEndian.Uint32(a.Value), nil
		}
	}
	return 0, errors.Join(errors.New("the kernel names no generation of nf_tables"), err)
}
