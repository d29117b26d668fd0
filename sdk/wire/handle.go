// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A Handle is all that it takes to reach a plugin again, from another process
// too. It holds the key to it: keep it where only the host can read (0600).
type Handle struct {
	Network string `json:"network"` // "unix"; "tcp" on Windows
	Address string `json:"address"`
	PID     int    `json:"pid,omitempty"`   // zero: not known, as of a plugin that listens in another container
	Start   uint64 `json:"start,omitempty"` // the process's StartTime
	Nonce   string `json:"nonce,omitempty"` // the process's own name for itself; empty: not known yet
	Cert    []byte `json:"cert,omitempty"`  // the host's certificate, PEM; none for a plugin that listens for itself
	Key     []byte `json:"key,omitempty"`   // its key, PEM
	Peer    []byte `json:"peer,omitempty"`  // the plugin's certificate, DER
	Dir     string `json:"dir,omitempty"`   // made for the socket, and removed with the process

	// By these the process is known before it gets a signal.
	Launch string `json:"launch,omitempty"` // of its Mark
	NetNS  string `json:"netns,omitempty"`  // its network namespace, as /proc names it
	Exe    string `json:"exe,omitempty"`    // device and inode of what it executes
}

// String leaves the key out.
func (h Handle) String() string {
	s := h.Network + "://" + h.Address
	if h.PID != 0 {
		s += fmt.Sprintf(" (pid %d)", h.PID)
	}
	return s
}

// At is the Handle of a plugin that was started by hand or by another supervisor,
// with --listen and the same address: "unix:///run/pointsman/ipvs.sock".
func At(address string) (Handle, error) {
	path, err := socketPath(address)
	if err != nil {
		return Handle{}, err
	}
	return Handle{Network: "unix", Address: path}, nil
}

// socketPath is the path in an address "unix:///path".
func socketPath(address string) (string, error) {
	path, ok := strings.CutPrefix(address, "unix://")
	switch {
	case !ok || !filepath.IsAbs(path):
		return "", fmt.Errorf("address %q: want unix:///absolute/path", address)
	case len(path) > maxSocketPath:
		return "", fmt.Errorf("address %q: the path has %d bytes, and a socket's may have %d", address, len(path), maxSocketPath)
	}
	return path, nil
}

// maxSocketPath is what the kernel has room for in a socket's address.
const maxSocketPath = 107

// SweepSockets removes from dir, a Command's SocketDir, what was made for the sockets of
// plugins that have ended. Where something listens, nothing is removed.
func SweepSockets(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, "plugin-dir*", "plugin*")) // go-plugin's names; the pattern is none that fails
	listens := make(map[string]bool)
	for _, socket := range left {
		if conn, err := net.DialTimeout("unix", socket, time.Second); err == nil {
			_ = conn.Close()
			listens[filepath.Dir(socket)] = true
		}
	}
	made, _ := filepath.Glob(filepath.Join(dir, "plugin-dir*"))
	for _, m := range made {
		if !listens[m] {
			Handle{Dir: m}.sweep()
		}
	}
}

// sweep removes what was made for the plugin's socket. A plugin that was killed
// leaves it behind.
func (h Handle) sweep() {
	if strings.HasPrefix(filepath.Base(h.Dir), "plugin-dir") { // go-plugin's name for it
		_ = os.RemoveAll(h.Dir) // a leftover does no harm
	}
}
