package pki

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func authority(t *testing.T, dir string, now time.Time) (*Authority, string) {
	t.Helper()
	ca, reason, err := EnsureAuthority(dir, "ca", "test-ca", now)
	if err != nil {
		t.Fatal(err)
	}
	return ca, reason
}

func server(ca *Authority, sans ...string) Leaf {
	return Leaf{Name: "server", Signer: ca, CommonName: "server", SANs: sans, Server: true}
}

func TestAuthorityIsCreatedOnce(t *testing.T) {
	dir := t.TempDir()
	if _, reason := authority(t, dir, start); reason != "key missing" {
		t.Errorf("first: %q", reason)
	}
	before, _ := os.ReadFile(filepath.Join(dir, "ca.key"))
	if _, reason := authority(t, dir, start.Add(time.Hour)); reason != "" {
		t.Errorf("second: %q", reason)
	}
	after, _ := os.ReadFile(filepath.Join(dir, "ca.key"))
	if string(before) != string(after) {
		t.Error("the key was replaced")
	}
}

func TestDamagedAuthorityCertificateIsReissuedWithSameKey(t *testing.T) {
	dir := t.TempDir()
	ca, _ := authority(t, dir, start)
	leaf := server(ca, "localhost")
	if _, err := leaf.Ensure(dir, start); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(ca.CertFile(), 100); err != nil {
		t.Fatal(err)
	}
	reissued, reason := authority(t, dir, start)
	if reason != "certificate unreadable" {
		t.Errorf("reason %q", reason)
	}
	leaf.Signer = reissued
	if reason := leaf.RenewalReason(dir, start); reason != "" {
		t.Errorf("old leaf: %q", reason)
	}
}

func TestExpiringAuthorityIsRenewed(t *testing.T) {
	dir := t.TempDir()
	authority(t, dir, start)
	_, reason := authority(t, dir, start.Add(8*365*24*time.Hour))
	if !strings.HasPrefix(reason, "expires in") {
		t.Errorf("reason %q", reason)
	}
}

func TestLeafVerifiesAndFileIsPrivate(t *testing.T) {
	dir := t.TempDir()
	ca, _ := authority(t, dir, start)
	leaf := server(ca, "localhost", "127.0.0.1")
	if reason, err := leaf.Ensure(dir, start); reason != "missing" || err != nil {
		t.Fatalf("%q %v", reason, err)
	}
	pair, err := tls.LoadX509KeyPair(leaf.File(dir), leaf.File(dir))
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := x509.ParseCertificate(pair.Certificate[0])
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate)
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: "127.0.0.1", CurrentTime: start}); err != nil {
		t.Error(err)
	}
	if info, _ := os.Stat(leaf.File(dir)); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}

func TestRenewalReason(t *testing.T) {
	dir := t.TempDir()
	ca, _ := authority(t, dir, start)
	good := server(ca, "localhost", "10.0.0.2")
	if _, err := good.Ensure(dir, start); err != nil {
		t.Fatal(err)
	}
	other, _, err := EnsureAuthority(t.TempDir(), "ca", "test-ca", start)
	if err != nil {
		t.Fatal(err)
	}
	day := 24 * time.Hour
	cases := []struct {
		name   string
		leaf   Leaf
		now    time.Time
		prefix string
	}{
		{"fresh", good, start, ""},
		{"order and duplicates of names", server(ca, "10.0.0.2", "localhost", "localhost"), start, ""},
		{"less than a third of validity left", good, start.Add(250 * day), "expires in"},
		{"more than a third of validity left", good, start.Add(240 * day), ""},
		{"after a long stop", good, start.Add(400 * day), "expired"},
		{"clock set back", good, start.Add(-day), "not yet valid"},
		{"another address", server(ca, "localhost", "10.0.0.3"), start, "subject alternative names differ"},
		{"missing name", server(ca, "localhost"), start, "subject alternative names differ"},
		{"another authority", server(other, "localhost", "10.0.0.2"), start, "signed by another"},
		{"another subject", Leaf{Name: "server", Signer: ca, CommonName: "x"}, start, "subject differs"},
	}
	for _, c := range cases {
		reason := c.leaf.RenewalReason(dir, c.now)
		if (c.prefix == "") != (reason == "") || !strings.HasPrefix(reason, c.prefix) {
			t.Errorf("%s: %q", c.name, reason)
		}
	}
}

func TestDamagedLeafIsReissued(t *testing.T) {
	dir := t.TempDir()
	ca, _ := authority(t, dir, start)
	leaf := server(ca, "localhost")
	if _, err := leaf.Ensure(dir, start); err != nil {
		t.Fatal(err)
	}
	content, _ := os.ReadFile(leaf.File(dir))
	for _, size := range []int{0, 1, len(content) / 2, len(content) - 40} {
		if err := os.WriteFile(leaf.File(dir), content[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		if reason, err := leaf.Ensure(dir, start); reason != "unreadable" || err != nil {
			t.Errorf("truncated to %d bytes: %q %v", size, reason, err)
		}
		if reason := leaf.RenewalReason(dir, start); reason != "" {
			t.Errorf("after reissue: %q", reason)
		}
	}
}

func TestEnsureKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sa.key")
	for i, want := range []bool{true, false} {
		created, err := EnsureKey(path)
		if err != nil || created != want {
			t.Errorf("call %d: %v %v", i, created, err)
		}
	}
}
