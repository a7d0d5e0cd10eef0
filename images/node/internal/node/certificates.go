package node

import (
	"path/filepath"
	"slices"
	"time"

	"holdfast.dev/node/internal/component"
	"holdfast.dev/node/internal/kubeconfig"
	"holdfast.dev/node/internal/pki"
	"holdfast.dev/node/internal/settings"
)

// credential is a leaf certificate and the components that use it, which must restart when it changes.
type credential struct {
	pki.Leaf
	components []string
}

// authorities are the three CAs. The cluster CA signs every approved CertificateSigningRequest. Separate CAs ensure that such a
// certificate gives no access to etcd or to the aggregation layer.
type authorities struct{ cluster, etcd, frontProxy *pki.Authority }

// ensureCertificates validates all keys and certificates, replaces invalid ones, and returns the components that must restart.
func (n *Node) ensureCertificates(now time.Time) ([]string, error) {
	var components []string
	ca, changed, err := n.ensureAuthorities(now)
	if err != nil {
		return nil, err
	}
	if changed {
		components = append(components, component.Etcd, component.APIServer, component.ControllerManager, component.Scheduler, component.Kubelet, component.Proxy, component.Provisioner)
	}
	if created, err := pki.EnsureKey(filepath.Join(n.PKI(), "service-account.key")); err != nil {
		return nil, err
	} else if created {
		n.logf("service account key created")
		components = append(components, component.APIServer, component.ControllerManager)
	}
	for _, leaf := range n.credentials(ca) {
		reason, err := leaf.Ensure(n.PKI(), now)
		if err != nil {
			return nil, err
		}
		if reason != "" {
			if reason != "missing" {
				n.logf("certificate %s renewed: %s", leaf.Name, reason)
			}
			components = append(components, leaf.components...)
		}
	}
	slices.Sort(components)
	return slices.Compact(components), n.writeKubeconfigs()
}

func (n *Node) ensureAuthorities(now time.Time) (authorities, bool, error) {
	var all authorities
	changed := false
	for _, a := range []struct {
		name, commonName string
		target           **pki.Authority
	}{
		{"ca", "holdfast-ca", &all.cluster},
		{"etcd-ca", "holdfast-etcd-ca", &all.etcd},
		{"front-proxy-ca", "holdfast-front-proxy-ca", &all.frontProxy},
	} {
		authority, reason, err := pki.EnsureAuthority(n.PKI(), a.name, a.commonName, now)
		if err != nil {
			return all, false, err
		}
		*a.target = authority
		if reason != "" {
			n.logf("CA %s issued: %s", a.name, reason)
			changed = true
		}
	}
	return all, changed, nil
}

func (n *Node) credentials(ca authorities) []credential {
	local := []string{"localhost", "127.0.0.1"}
	nodeUser := "system:node:" + n.NodeName
	client := func(name, commonName, group string, components ...string) credential {
		leaf := pki.Leaf{Name: name, Signer: ca.cluster, CommonName: commonName, Client: true}
		if group != "" {
			leaf.Organizations = []string{group}
		}
		return credential{leaf, components}
	}
	// clientAndServer returns a certificate that the component also uses to serve its health endpoint.
	clientAndServer := func(name, commonName, componentName string) credential {
		c := client(name, commonName, "", componentName)
		c.SANs, c.Server = local, true
		return c
	}
	return []credential{
		{pki.Leaf{Name: "etcd", Signer: ca.etcd, CommonName: "etcd", SANs: local, Server: true, Client: true}, []string{component.Etcd}},
		{pki.Leaf{Name: "apiserver-etcd-client", Signer: ca.etcd, CommonName: "kube-apiserver", Client: true}, []string{component.APIServer}},
		{pki.Leaf{Name: "front-proxy-client", Signer: ca.frontProxy, CommonName: "front-proxy-client", Client: true}, []string{component.APIServer}},
		{pki.Leaf{Name: "apiserver", Signer: ca.cluster, CommonName: "kube-apiserver", SANs: n.apiSANs(), Server: true}, []string{component.APIServer}},
		client("apiserver-kubelet-client", "kube-apiserver-kubelet-client", "", component.APIServer),
		{pki.Leaf{Name: "kubelet-server", Signer: ca.cluster, CommonName: nodeUser, Organizations: []string{"system:nodes"},
			SANs: append([]string{n.NodeName, n.Address.String()}, local...), Server: true}, []string{component.Kubelet}},
		client("kubelet", nodeUser, "system:nodes", component.Kubelet),
		clientAndServer("controller-manager", "system:kube-controller-manager", component.ControllerManager),
		clientAndServer("scheduler", "system:kube-scheduler", component.Scheduler),
		client("proxy", "system:kube-proxy", "", component.Proxy),
		client("provisioner", "holdfast:storage-provisioner", "", component.Provisioner),
		client("admin", "holdfast-admin", "system:masters"),
	}
}

func (n *Node) apiSANs() []string {
	sans := []string{
		"localhost", "127.0.0.1", "::1", n.NodeName, n.Address.String(), n.APIServiceIP().String(),
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + settings.ClusterDomain,
	}
	return append(sans, n.APISANs...)
}

func (n *Node) writeKubeconfigs() error {
	for _, name := range []string{"controller-manager", "scheduler", "kubelet", "proxy", "provisioner", "admin"} {
		user := kubeconfig.User{
			Name: name, Server: component.APIURL,
			CAFile: filepath.Join(n.PKI(), "ca.crt"), CertFile: filepath.Join(n.PKI(), name+".pem"),
			Embed: name == "admin", // Clients outside the node use it.
		}
		if _, err := user.Write(n.Kubeconfig(name)); err != nil {
			return err
		}
	}
	return nil
}
