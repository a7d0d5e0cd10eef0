// Package component knows how each component of the node is called: flags and configuration files, as pure functions of the
// node's settings. It starts nothing.
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

// Ports on which the node listens; all but the API's and the kubelet's are on loopback.
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

// Node is everything that the components' command lines depend on.
type Node struct {
	layout.Layout
	settings.Settings
	Address netip.Addr
}

func (n Node) authority(name string) string { return filepath.Join(n.PKI(), name+".crt") }
func (n Node) key(name string) string       { return filepath.Join(n.PKI(), name+".key") }
func (n Node) pair(name string) string      { return filepath.Join(n.PKI(), name+".pem") }

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
		"--cert-file=" + n.pair("etcd"), "--key-file=" + n.pair("etcd"),
		"--trusted-ca-file=" + n.authority("etcd-ca"), "--client-cert-auth",
		"--peer-cert-file=" + n.pair("etcd"), "--peer-key-file=" + n.pair("etcd"),
		"--peer-trusted-ca-file=" + n.authority("etcd-ca"), "--peer-client-cert-auth",
		// A single member elects itself after one election timeout: the default of a second would be a third of the boot.
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
		"--client-ca-file=" + n.authority("ca"),
		"--tls-cert-file=" + n.pair("apiserver"), "--tls-private-key-file=" + n.pair("apiserver"),
		"--etcd-servers=" + EtcdURL,
		"--etcd-cafile=" + n.authority("etcd-ca"),
		"--etcd-certfile=" + n.pair("apiserver-etcd-client"), "--etcd-keyfile=" + n.pair("apiserver-etcd-client"),
		"--kubelet-certificate-authority=" + n.authority("ca"),
		"--kubelet-client-certificate=" + n.pair("apiserver-kubelet-client"),
		"--kubelet-client-key=" + n.pair("apiserver-kubelet-client"),
		"--kubelet-preferred-address-types=InternalIP,Hostname",
		"--proxy-client-cert-file=" + n.pair("front-proxy-client"), "--proxy-client-key-file=" + n.pair("front-proxy-client"),
		"--requestheader-client-ca-file=" + n.authority("front-proxy-ca"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--service-account-issuer=https://kubernetes.default.svc." + settings.ClusterDomain,
		"--service-account-key-file=" + n.key("service-account"),
		"--service-account-signing-key-file=" + n.key("service-account"),
		"--service-cluster-ip-range=" + n.ServiceCIDR.String(),
		"--profiling=false",
		// One member on the same machine: nobody needs time to notice that this one is leaving.
		"--shutdown-delay-duration=0s",
	}
}

func (n Node) controllerManager() []string {
	config := n.Kubeconfig("controller-manager")
	return []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1",
		// Without these it would make a key of its own at each start, which takes longer than the rest of it.
		"--tls-cert-file=" + n.pair("controller-manager"), "--tls-private-key-file=" + n.pair("controller-manager"),
		"--client-ca-file=" + n.authority("ca"),
		"--requestheader-client-ca-file=" + n.authority("front-proxy-ca"),
		"--cluster-cidr=" + n.PodCIDR.String(),
		"--service-cluster-ip-range=" + n.ServiceCIDR.String(),
		// The one node has the whole pod range; a node object left over from another name must not hold it.
		"--allocate-node-cidrs=false",
		"--cluster-signing-cert-file=" + n.authority("ca"), "--cluster-signing-key-file=" + n.key("ca"),
		"--root-ca-file=" + n.authority("ca"),
		"--service-account-private-key-file=" + n.key("service-account"),
		"--use-service-account-credentials=true",
		"--leader-elect=false",
		"--profiling=false",
		// The API server is on the same machine and has its own priority and fairness: the default of 20 a second only queues bursts.
		"--kube-api-qps=100", "--kube-api-burst=200",
	}
}

func (n Node) scheduler() []string {
	config := n.Kubeconfig("scheduler")
	return []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1",
		"--tls-cert-file=" + n.pair("scheduler"), "--tls-private-key-file=" + n.pair("scheduler"),
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
		// One node has few rules to write: a new Service need not wait for the default of a second.
		"--iptables-min-sync-period=100ms",
		// These belong to the host's kernel and cannot be written from here: zero leaves them alone.
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
