// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk/wire"
)

// TestClockJumps connects host and plugin whatever their clocks said when each made its certificate, and
// what they say now: a clock may be set back by a day, or ahead by decades.
func TestClockJumps(t *testing.T) {
	cert, key, err := newKeys()
	if err != nil {
		t.Fatal(err)
	}
	for _, began := range []time.Time{time.Unix(100, 0), time.Now().AddDate(0, 0, 1), time.Now().AddDate(60, 0, 0)} {
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), DNSNames: []string{serverName}, IsCA: true, BasicConstraintsValid: true, // as go-plugin makes it
			NotBefore: began.Add(-30 * time.Second), NotAfter: began.AddDate(30, 0, 0),
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
		if err != nil {
			t.Fatal(err)
		}
		hosts := x509.NewCertPool()
		hosts.AppendCertsFromPEM(cert)
		trust, err := wire.Target{Cert: cert, Key: key, Peer: der}.TLS()
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", filepath.Join(shortDir(t), "s"))
		if err != nil {
			t.Fatal(err)
		}
		here, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		there, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		plugin := make(chan error, 1)
		go func() { // ends with the handshake
			plugin <- tls.Server(there, &tls.Config{
				Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}, MinVersion: tls.VersionTLS12,
				ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: hosts, Time: func() time.Time { return began },
			}).Handshake()
		}()
		host := tls.Client(here, trust).Handshake()
		if err := errors.Join(host, <-plugin); err != nil {
			t.Errorf("a plugin that began at %s: %v", began, err)
		}
		_, _, _ = here.Close(), there.Close(), l.Close()
	}
}
