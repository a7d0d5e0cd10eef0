// Package pki makes and renews the node's certificates. It knows X.509 and files; it does not know Kubernetes' components.
//
// What is on disk is judged on every boot and periodically after: a file that is torn, belongs to another key, was signed by
// another authority, names the wrong addresses or is near its end is made anew, and the reason is told.
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

// Lifetimes; Backdate forgives a clock that is stepped back a little.
const (
	AuthorityLife = 10 * 365 * 24 * time.Hour
	LeafLife      = 365 * 24 * time.Hour
	Backdate      = time.Hour
)

// Authority is a certificate authority whose files are <Dir>/<Name>.crt and <Dir>/<Name>.key.
type Authority struct {
	Dir         string
	Name        string
	Certificate *x509.Certificate
	key         crypto.Signer
}

// CertFile is the public half, for whoever verifies.
func (a *Authority) CertFile() string { return filepath.Join(a.Dir, a.Name+".crt") }

// KeyFile is the private half.
func (a *Authority) KeyFile() string { return filepath.Join(a.Dir, a.Name+".key") }

// EnsureAuthority loads an authority, making what is missing. A readable key is never replaced: with the same key and subject
// a new certificate verifies everything that the old one did, so that a lost or ageing certificate costs nothing.
// The reason is empty when nothing was written.
func EnsureAuthority(dir, name, commonName string, now time.Time) (*Authority, string, error) {
	a := &Authority{Dir: dir, Name: name}
	key, err := readKey(a.KeyFile())
	reason := ""
	if err != nil {
		reason = "key " + describe(err)
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
		return nil, "certificate " + describe(err)
	case !cert.IsCA || !samePublicKey(cert, key):
		return nil, "certificate does not belong to the key"
	}
	return cert, ageReason(cert, now)
}

func (a *Authority) issue(commonName string, now time.Time) error {
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             now.Add(-Backdate),
		NotAfter:              now.Add(AuthorityLife),
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

// EnsureKey makes sure that path holds a readable private key and says whether it had to be made.
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
	der, err := readBlock(path, "EC PRIVATE KEY")
	if err != nil {
		return nil, err
	}
	return x509.ParseECPrivateKey(der)
}

func readCert(path string) (*x509.Certificate, error) {
	der, err := readBlock(path, "CERTIFICATE")
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func readBlock(path, kind string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return nil, fmt.Errorf("no %s in it", kind)
		}
		if block.Type == kind {
			return block.Bytes, nil
		}
	}
}

func describe(err error) string {
	if errors.Is(err, os.ErrNotExist) {
		return "missing"
	}
	return "unreadable"
}

func samePublicKey(cert *x509.Certificate, key crypto.Signer) bool {
	public, ok := cert.PublicKey.(*ecdsa.PublicKey)
	return ok && public.Equal(key.Public())
}

// ageReason is empty while more than a third of the certificate's life is left.
func ageReason(cert *x509.Certificate, now time.Time) string {
	switch left := cert.NotAfter.Sub(now); {
	case now.Before(cert.NotBefore):
		return "not valid yet (the clock was set back)"
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
		panic(err) // The kernel's random source does not fail on a running system.
	}
	return n.Add(n, big.NewInt(1))
}
