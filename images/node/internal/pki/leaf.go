package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"path/filepath"
	"slices"
	"time"

	"holdfast.dev/node/internal/atomicfile"
)

// Leaf describes a leaf certificate. The certificate and its key are in one file, <dir>/<Name>.pem: a single rename replaces
// both, so that they match after a crash.
type Leaf struct {
	Name          string
	Signer        *Authority
	CommonName    string
	Organizations []string
	SANs          []string // DNS names and IP addresses
	Server        bool
	Client        bool
}

// File returns the path of the leaf in dir.
func (l Leaf) File(dir string) string { return filepath.Join(dir, l.Name+".pem") }

// Ensure issues the leaf if RenewalReason is not empty, and returns that reason.
func (l Leaf) Ensure(dir string, now time.Time) (string, error) {
	reason := l.RenewalReason(dir, now)
	if reason == "" {
		return "", nil
	}
	return reason, l.issue(dir, now)
}

// RenewalReason returns why the leaf in dir must be issued again, or "" if it is valid.
func (l Leaf) RenewalReason(dir string, now time.Time) string {
	key, err := readKey(l.File(dir))
	if err != nil {
		return describeReadError(err)
	}
	cert, err := readCert(l.File(dir))
	if err != nil {
		return describeReadError(err)
	}
	switch {
	case !samePublicKey(cert, key):
		return "certificate does not belong to the key"
	case cert.CheckSignatureFrom(l.Signer.Certificate) != nil:
		return "signed by another authority"
	case cert.Subject.CommonName != l.CommonName || !sameSet(cert.Subject.Organization, l.Organizations):
		return "subject differs"
	case !sameSet(certSANs(cert), normalizeSANs(l.SANs)):
		return "subject alternative names differ"
	}
	return expiryReason(cert, now)
}

func (l Leaf) issue(dir string, now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, l.template(now), l.Signer.Certificate, key.Public(), l.Signer.key)
	if err != nil {
		return err
	}
	keyBlock, err := encodeKey(key)
	if err != nil {
		return err
	}
	data := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyBlock...)
	return atomicfile.Write(l.File(dir), data, 0o600)
}

func (l Leaf) template(now time.Time) *x509.Certificate {
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: l.CommonName, Organization: l.Organizations},
		NotBefore:    now.Add(-Backdate),
		NotAfter:     now.Add(LeafValidity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
	// A leaf must not outlive its CA: clients would reject it although it is not expired.
	if template.NotAfter.After(l.Signer.Certificate.NotAfter) {
		template.NotAfter = l.Signer.Certificate.NotAfter
	}
	if l.Server {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if l.Client {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	for _, san := range normalizeSANs(l.SANs) {
		if ip := net.ParseIP(san); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, san)
		}
	}
	return template
}

func certSANs(cert *x509.Certificate) []string {
	sans := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		sans = append(sans, ip.String())
	}
	return sans
}

// normalizeSANs formats IP addresses canonically and removes duplicates, so that "::1" equals "0:0::1".
func normalizeSANs(sans []string) []string {
	var normal []string
	for _, san := range sans {
		if ip := net.ParseIP(san); ip != nil {
			san = ip.String()
		}
		if !slices.Contains(normal, san) {
			normal = append(normal, san)
		}
	}
	return normal
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
