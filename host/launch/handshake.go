// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-plugin"

	"github.com/pointsman/pointsman/sdk/wire"
)

// A handshake is the one line that a plugin prints to stdout:
// core|major|network|address|protocol|certificate.
type handshake struct {
	major       uint32
	certificate []byte // DER
}

// parseHandshake reads what we need of the line; go-plugin reads the rest. It is
// false for a line that is something else.
func parseHandshake(line string) (handshake, bool) {
	parts := strings.Split(strings.TrimSpace(line), "|")
	if len(parts) < 5 || parts[0] != strconv.Itoa(plugin.CoreProtocolVersion) {
		return handshake{}, false
	}
	major, err := strconv.ParseUint(parts[1], 10, 32)
	if err != nil {
		return handshake{}, false
	}
	h := handshake{major: uint32(major)}
	if len(parts) > 5 {
		h.certificate, _ = base64.RawStdEncoding.DecodeString(parts[5]) // checked where it is used
	}
	return h, true
}

func (h handshake) speaksOurs() bool { return slices.Contains(wire.Majors(), h.major) }

// certified reports why the certificate cannot be used, if so.
func (h handshake) certified() error {
	if len(h.certificate) == 0 {
		return fmt.Errorf("it answered without a certificate, so it cannot be told from another: build it with wire.Serve")
	}
	if _, err := x509.ParseCertificate(h.certificate); err != nil {
		return fmt.Errorf("it answered with a certificate that is none: %w", err)
	}
	return nil
}

// serverName is what the certificates of both ends are for, as go-plugin wants it.
const serverName = "localhost"

// The host's certificate holds whatever the clock says, which may jump by decades on a machine without a
// battery. Only this host knows the key, which is of no use after the process it was made for.
var (
	notBefore = time.Unix(0, 0)
	notAfter  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC) // as RFC 5280 writes that there is no end
)

// newKeys makes the host's half of one launch's mutual TLS, as PEM.
func newKeys() (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: serverName, Organization: []string{"Pointsman"}},
		DNSNames:              []string{serverName},
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		NotBefore:             notBefore,
		NotAfter:              notAfter,
		IsCA:                  true, // the plugin takes it as the authority for itself
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	key = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})
	return cert, key, nil
}
