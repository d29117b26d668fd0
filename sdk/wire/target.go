// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"path/filepath"
	"strings"
)

// A Target is where a plugin listens, and by what it and its host know each other. It
// holds the host's key: keep it where only the host can read (0600).
type Target struct {
	Network string `json:"network"` // "unix"; "tcp" on Windows
	Address string `json:"address"`
	Nonce   string `json:"nonce,omitempty"` // Hello.Nonce of the process that is meant; empty: not known yet
	Cert    []byte `json:"cert,omitempty"`  // the host's certificate, PEM; none for a plugin that listens for itself
	Key     []byte `json:"key,omitempty"`   // its key, PEM
	Peer    []byte `json:"peer,omitempty"`  // the plugin's certificate, DER
}

// At returns the Target of a plugin that was started with --listen and the same address:
// "unix:///run/pointsman/ipvs.sock".
func At(address string) (Target, error) {
	path, err := socketPath(address)
	if err != nil {
		return Target{}, err
	}
	return Target{Network: "unix", Address: path}, nil
}

// String returns the address alone, without the key.
func (t Target) String() string { return t.Network + "://" + t.Address }

// PID returns the process behind a unix socket, which must be this user's or root's. Zero: the
// kernel has no name for it here, as for a process of another PID namespace.
func (t Target) PID(ctx context.Context) (int, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, t.Network, t.Address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if t.Network != "unix" {
		return 0, nil
	}
	if err := trusted(conn); err != nil {
		return 0, err
	}
	p, err := peerOf(conn)
	return p.pid, err
}

// serverName is what both certificates are for; go-plugin's is.
const serverName = "localhost"

// TLS returns the host's side of a connection. Peer is the only certificate that it accepts;
// without one, as before the plugin has told its own, any is.
func (t Target) TLS() (*tls.Config, error) {
	pair, err := tls.X509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("the host's key pair: %w", err)
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{pair},
		ServerName:   serverName,
		MinVersion:   tls.VersionTLS12,
	}
	if t.Peer == nil {
		return config, nil
	}
	parsed, err := x509.ParseCertificate(t.Peer)
	if err != nil {
		return nil, fmt.Errorf("the plugin's certificate: %w", err)
	}
	config.RootCAs = x509.NewCertPool()
	config.RootCAs.AddCert(parsed)
	return config, nil
}

// socketPath returns the path in an address "unix:///path".
func socketPath(address string) (string, error) {
	path, ok := strings.CutPrefix(address, "unix://")
	switch {
	case !ok || !filepath.IsAbs(path):
		return "", fmt.Errorf("address %q: want unix:///absolute/path", address)
	case len(path) > MaxSocketPath:
		return "", fmt.Errorf("address %q: the path has %d bytes, and a socket's may have %d", address, len(path), MaxSocketPath)
	}
	return path, nil
}

// MaxSocketPath is how many bytes the kernel has room for in a socket's address.
const MaxSocketPath = 107
