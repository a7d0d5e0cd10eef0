// Package pki issues and renews the node's certificates. It does not depend on the Kubernetes components.
//
// The node validates the files at each boot and periodically. It logs and replaces certificates that are damaged, do not match
// their key, have another issuer, have wrong names, or expire soon.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"holdfast.dev/node/internal/atomicfile"
)

// Validity periods. Backdate tolerates a clock that is set back by less than this duration.
const (
	AuthorityValidity = 10 * 365 * 24 * time.Hour
	LeafValidity      = 365 * 24 * time.Hour
	Backdate          = time.Hour
)

// Authority is a CA with the files <Dir>/<Name>.crt and <Dir>/<Name>.key.
type Authority struct {
	Dir         string
	Name        string
	Certificate *x509.Certificate
	key         crypto.Signer
}

// CertFile returns the path of the CA certificate.
func (a *Authority) CertFile() string { return filepath.Join(a.Dir, a.Name+".crt") }

// KeyFile returns the path of the private key.
func (a *Authority) KeyFile() string { return filepath.Join(a.Dir, a.Name+".key") }

// EnsureAuthority loads a CA and creates missing files. It never replaces a readable key: a new certificate with the same key
// and subject verifies all leaf certificates of the old one. The returned reason is empty if it wrote nothing.
func EnsureAuthority(dir, name, commonName string, now time.Time) (*Authority, string, error) {
	a := &Authority{Dir: dir, Name: name}
	key, err := readKey(a.KeyFile())
	reason := ""
	if err != nil {
		reason = "key " + describeReadError(err)
		if key, err = writeKey(a.KeyFile()); err != nil {
			return nil, "", err
		}
	}
	a.key = key
	if reason == "" {
		a.Certificate, reason = readAuthorityCert(a.CertFile(), key, now)
	}
	if reason == "" {
		return a, "", nil
	}
	return a, reason, a.issue(commonName, now)
}

func readAuthorityCert(path string, key crypto.Signer, now time.Time) (*x509.Certificate, string) {
	cert, err := readCert(path)
	switch {
	case err != nil:
		return nil, "certificate " + describeReadError(err)
	case !cert.IsCA || !samePublicKey(cert, key):
		return nil, "certificate does not belong to the key"
	}
	return cert, expiryReason(cert, now)
}

func (a *Authority) issue(commonName string, now time.Time) error {
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             now.Add(-Backdate),
		NotAfter:              now.Add(AuthorityValidity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		return err
	}
	if a.Certificate, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	return atomicfile.Write(a.CertFile(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

// EnsureKey creates a private key at path if the file does not contain a readable one. It reports whether it created one.
func EnsureKey(path string) (bool, error) {
	if _, err := readKey(path); err == nil {
		return false, nil
	}
	_, err := writeKey(path)
	return true, err
}

func writeKey(path string) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return key, atomicfile.Write(path, block, 0o600)
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func readKey(path string) (crypto.Signer, error) {
	der, err := readPEMBlock(path, "EC PRIVATE KEY")
	if err != nil {
		return nil, err
	}
	return x509.ParseECPrivateKey(der)
}

func readCert(path string) (*x509.Certificate, error) {
	der, err := readPEMBlock(path, "CERTIFICATE")
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func readPEMBlock(path, kind string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return nil, fmt.Errorf("no PEM block %s", kind)
		}
		if block.Type == kind {
			return block.Bytes, nil
		}
	}
}

func describeReadError(err error) string {
	if errors.Is(err, os.ErrNotExist) {
		return "missing"
	}
	return "unreadable"
}

func samePublicKey(cert *x509.Certificate, key crypto.Signer) bool {
	public, ok := cert.PublicKey.(*ecdsa.PublicKey)
	return ok && public.Equal(key.Public())
}

// expiryReason returns why a certificate must be renewed: it is not valid now, or less than a third of its validity is left.
func expiryReason(cert *x509.Certificate, now time.Time) string {
	switch left := cert.NotAfter.Sub(now); {
	case now.Before(cert.NotBefore):
		return "not yet valid (the clock was set back)"
	case left <= 0:
		return "expired"
	case left < cert.NotAfter.Sub(cert.NotBefore)/3:
		return fmt.Sprintf("expires in %d days", int(left.Hours()/24))
	}
	return ""
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // Cannot happen: the random source of a running kernel does not fail.
	}
	return n.Add(n, big.NewInt(1))
}
