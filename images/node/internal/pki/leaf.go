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

// Leaf describes one certificate that the node wants to have. Certificate and key share the file <dir>/<Name>.pem: one rename
// replaces both, so that no crash can leave a key beside another key's certificate.
type Leaf struct {
	Name          string
	Signer        *Authority
	CommonName    string
	Organizations []string
	SANs          []string // DNS names and IP addresses alike
	Server        bool
	Client        bool
}

// File is where the leaf lives in dir.
func (l Leaf) File(dir string) string { return filepath.Join(dir, l.Name+".pem") }

// Ensure makes the leaf when the one on disk is not good, and returns the reason, which is empty when it was.
func (l Leaf) Ensure(dir string, now time.Time) (string, error) {
	reason := l.Fault(dir, now)
	if reason == "" {
		return "", nil
	}
	return reason, l.issue(dir, now)
}

// Fault says why the leaf on disk must be made anew; empty when it need not.
func (l Leaf) Fault(dir string, now time.Time) string {
	key, err := readKey(l.File(dir))
	if err != nil {
		return describe(err)
	}
	cert, err := readCert(l.File(dir))
	if err != nil {
		return describe(err)
	}
	switch {
	case !samePublicKey(cert, key):
		return "certificate does not belong to the key"
	case cert.CheckSignatureFrom(l.Signer.Certificate) != nil:
		return "signed by another authority"
	case cert.Subject.CommonName != l.CommonName || !sameSet(cert.Subject.Organization, l.Organizations):
		return "subject differs"
	case !sameSet(certSANs(cert), normalSANs(l.SANs)):
		return "names differ"
	}
	return ageReason(cert, now)
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
		NotAfter:     now.Add(LeafLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
	// A leaf that outlives its authority would look good and verify nowhere.
	if template.NotAfter.After(l.Signer.Certificate.NotAfter) {
		template.NotAfter = l.Signer.Certificate.NotAfter
	}
	if l.Server {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if l.Client {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	for _, san := range normalSANs(l.SANs) {
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

// normalSANs writes addresses one way and drops duplicates, so that "::1" and "0:0::1" do not look like a change.
func normalSANs(sans []string) []string {
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
