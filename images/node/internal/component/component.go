// Package component returns the command lines and configuration files of the node's components, as pure functions of the
// node's settings. It starts no process.
package component

import (
	"net/netip"
	"path/filepath"
	"strconv"

	"holdfast.dev/node/internal/layout"
	"holdfast.dev/node/internal/settings"
)

// Names of the processes.
const (
	Etcd              = "etcd"
	Containerd        = "containerd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubelet           = "kubelet"
	Proxy             = "kube-proxy"
	Provisioner       = "storage-provisioner"
)

// Ports and URLs of the components. Only the API server and the kubelet listen on addresses other than loopback.
const (
	APIPort              = 6443
	APIURL               = "https://127.0.0.1:6443"
	EtcdURL              = "https://127.0.0.1:2379"
	peerURL              = "https://127.0.0.1:2380"
	ControllerManagerURL = "https://127.0.0.1:10257"
	SchedulerURL         = "https://127.0.0.1:10259"
	ProxyURL             = "http://127.0.0.1:10256"
	KubeletURL           = "http://127.0.0.1:10248"
	provisionerHealth    = "127.0.0.1:10260"
	ProvisionerURL       = "http://" + provisionerHealth
)

// Node contains all inputs of the components' command lines.
type Node struct {
	layout.Layout
	settings.Settings
	Address netip.Addr
}

func (n Node) caFile(name string) string  { return filepath.Join(n.PKI(), name+".crt") }
func (n Node) keyFile(name string) string { return filepath.Join(n.PKI(), name+".key") }
func (n Node) pemFile(name string) string { return filepath.Join(n.PKI(), name+".pem") }

// Args returns a component's command line; the first element is the program.
func (n Node) Args(name string) []string {
	flags := map[string]func() []string{
		Etcd: n.etcd, Containerd: n.containerd, APIServer: n.apiServer, ControllerManager: n.controllerManager,
		Scheduler: n.scheduler, Kubelet: n.kubelet, Proxy: n.proxy, Provisioner: n.provisioner,
	}[name]
	return append([]string{"/usr/bin/" + name}, flags()...)
}

func (n Node) etcd() []string {
	return []string{
		"--name=holdfast",
		"--data-dir=" + n.Layout.Etcd(),
		"--listen-client-urls=" + EtcdURL, "--advertise-client-urls=" + EtcdURL,
		"--listen-peer-urls=" + peerURL, "--initial-advertise-peer-urls=" + peerURL,
		"--initial-cluster=holdfast=" + peerURL,
		"--cert-file=" + n.pemFile("etcd"), "--key-file=" + n.pemFile("etcd"),
		"--trusted-ca-file=" + n.caFile("etcd-ca"), "--client-cert-auth",
		"--peer-cert-file=" + n.pemFile("etcd"), "--peer-key-file=" + n.pemFile("etcd"),
		"--peer-trusted-ca-file=" + n.caFile("etcd-ca"), "--peer-client-cert-auth",
		// A single member elects itself after one election timeout. The default of one second is a third of the boot time.
		"--heartbeat-interval=50", "--election-timeout=250",
		"--logger=zap", "--log-level=warn",
	}
}

func (n Node) containerd() []string {
	return []string{"--config", n.Config("containerd.toml"), "--log-level", "warn"}
}

func (n Node) apiServer() []string {
	return []string{
		"--advertise-address=" + n.Address.String(),
		"--secure-port=" + strconv.Itoa(APIPort),
		"--allow-privileged=true",
		"--anonymous-auth=false",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--client-ca-file=" + n.caFile("ca"),
		"--tls-cert-file=" + n.pemFile("apiserver"), "--tls-private-key-file=" + n.pemFile("apiserver"),
		"--etcd-servers=" + EtcdURL,
		"--etcd-cafile=" + n.caFile("etcd-ca"),
		"--etcd-certfile=" + n.pemFile("apiserver-etcd-client"), "--etcd-keyfile=" + n.pemFile("apiserver-etcd-client"),
		"--kubelet-certificate-authority=" + n.caFile("ca"),
		"--kubelet-client-certificate=" + n.pemFile("apiserver-kubelet-client"),
		"--kubelet-client-key=" + n.pemFile("apiserver-kubelet-client"),
		"--kubelet-preferred-address-types=InternalIP,Hostname",
		"--proxy-client-cert-file=" + n.pemFile("front-proxy-client"), "--proxy-client-key-file=" + n.pemFile("front-proxy-client"),
		"--requestheader-client-ca-file=" + n.caFile("front-proxy-ca"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--service-account-issuer=https://kubernetes.default.svc." + settings.ClusterDomain,
		"--service-account-key-file=" + n.keyFile("service-account"),
		"--service-account-signing-key-file=" + n.keyFile("service-account"),
		"--service-cluster-ip-range=" + n.ServiceCIDR.String(),
		"--profiling=false",
		// No load balancer has to observe that this API server shuts down.
		"--shutdown-delay-duration=0s",
	}
}

func (n Node) controllerManager() []string {
	config := n.Kubeconfig("controller-manager")
	return []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1",
		// Without these flags, it generates a key at each start, which takes longer than the rest of its start.
		"--tls-cert-file=" + n.pemFile("controller-manager"), "--tls-private-key-file=" + n.pemFile("controller-manager"),
		"--client-ca-file=" + n.caFile("ca"),
		"--requestheader-client-ca-file=" + n.caFile("front-proxy-ca"),
		"--cluster-cidr=" + n.PodCIDR.String(),
		"--service-cluster-ip-range=" + n.ServiceCIDR.String(),
		// The node uses the whole pod CIDR. A stale Node object must not hold a part of it.
		"--allocate-node-cidrs=false",
		"--cluster-signing-cert-file=" + n.caFile("ca"), "--cluster-signing-key-file=" + n.keyFile("ca"),
		"--root-ca-file=" + n.caFile("ca"),
		"--service-account-private-key-file=" + n.keyFile("service-account"),
		"--use-service-account-credentials=true",
		"--leader-elect=false",
		"--profiling=false",
		// The API server is on the same node and limits clients with priority and fairness. The default of 20 requests per
		// second would only delay bursts.
		"--kube-api-qps=100", "--kube-api-burst=200",
	}
}

func (n Node) scheduler() []string {
	config := n.Kubeconfig("scheduler")
	return []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1",
		"--tls-cert-file=" + n.pemFile("scheduler"), "--tls-private-key-file=" + n.pemFile("scheduler"),
		"--leader-elect=false",
		"--profiling=false",
	}
}

func (n Node) kubelet() []string {
	return []string{
		"--config=" + n.Config("kubelet.yaml"),
		"--kubeconfig=" + n.Kubeconfig("kubelet"),
		"--hostname-override=" + n.NodeName,
		"--node-ip=" + n.Address.String(),
		"--root-dir=" + n.Layout.Kubelet(),
		"--cert-dir=" + n.PKI(),
		"--node-labels=holdfast.dev/role=server",
	}
}

func (n Node) proxy() []string {
	return []string{
		"--kubeconfig=" + n.Kubeconfig("proxy"),
		"--hostname-override=" + n.NodeName,
		"--cluster-cidr=" + n.PodCIDR.String(),
		"--proxy-mode=iptables",
		"--nodeport-addresses=primary",
		"--metrics-bind-address=127.0.0.1:10249",
		"--healthz-bind-address=127.0.0.1:10256",
		// One node has few rules, so frequent syncs are cheap. With the default, a new Service can wait for one second.
		"--iptables-min-sync-period=100ms",
		// These sysctls belong to the host and are read-only in the container; with zero, kube-proxy does not write them.
		"--conntrack-max-per-core=0",
		"--conntrack-tcp-timeout-established=0s",
		"--conntrack-tcp-timeout-close-wait=0s",
	}
}

func (n Node) provisioner() []string {
	return []string{
		"--kubeconfig=" + n.Kubeconfig("provisioner"),
		"--node-name=" + n.NodeName,
		"--directory=" + n.LocalPath(),
		"--healthz-bind-address=" + provisionerHealth,
	}
}
