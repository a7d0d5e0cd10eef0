// Package node boots, runs and stops one node. It combines the other packages and defines the start and stop order.
package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"holdfast.dev/node/internal/component"
	"holdfast.dev/node/internal/cri"
	"holdfast.dev/node/internal/kubeapi"
	"holdfast.dev/node/internal/layout"
	"holdfast.dev/node/internal/network"
	"holdfast.dev/node/internal/settings"
	"holdfast.dev/node/internal/status"
	"holdfast.dev/node/internal/supervisor"
)

// Node is one running node.
type Node struct {
	component.Node
	start      time.Time
	tracker    *status.Tracker
	reaper     *supervisor.Reaper
	supervisor *supervisor.Supervisor
	cri        *cri.Client
	api        *kubeapi.Client
	etcd       *kubeapi.Client
}

// New returns a node that is not started; it has no side effects.
func New(l layout.Layout, s settings.Settings) *Node {
	start := time.Now()
	return &Node{
		Node: component.Node{Layout: l, Settings: s}, start: start,
		tracker: status.NewTracker(start),
	}
}

// errAddressChanged is the reason of a stop after which Main starts the node again with its new address.
var errAddressChanged = errors.New("the node's address changed")

// Run boots the node and runs it. It returns nil after a termination signal, else the error that stopped the node.
func (n *Node) Run() error {
	n.reaper = supervisor.NewReaper()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	if err := n.boot(ctx); err != nil {
		return err
	}
	n.watchReadiness(ctx)
	go n.maintain(ctx, cancel, signals)
	err := n.supervisor.Run(ctx)
	if err == nil && errors.Is(context.Cause(ctx), errAddressChanged) {
		err = errAddressChanged
	}
	n.shutdown()
	return err
}

// boot prepares everything that the first process needs.
func (n *Node) boot(ctx context.Context) error {
	if err := checkInotifyInstances(newInotifyInstance, requiredInotifyInstances); err != nil {
		return err
	}
	if err := n.prepareSystem(ctx); err != nil {
		return err
	}
	var err error
	if n.Address, err = network.NodeAddress(); err != nil {
		return err
	}
	n.logf("node %s, address %s", n.NodeName, n.Address)
	if err := status.Serve(ctx, n.StatusSocket(), n.tracker); err != nil {
		return err
	}
	if _, err := n.ensureCertificates(time.Now()); err != nil {
		return err
	}
	if err := n.writeConfigs(); err != nil {
		return err
	}
	if err := n.createClients(); err != nil {
		return err
	}
	n.supervisor, err = supervisor.New(n.reaper, n.Logs(), n.onUnitChange, n.units())
	return err
}

func (n *Node) createClients() error {
	pki := func(name string) string { return filepath.Join(n.PKI(), name) }
	n.api = kubeapi.New(component.APIURL, pki("ca.crt"), pki("admin.pem"))
	n.etcd = kubeapi.New(component.EtcdURL, pki("etcd-ca.crt"), pki("apiserver-etcd-client.pem"))
	var err error
	n.cri, err = cri.New(n.ContainerdSocket())
	return err
}

// shutdown stops all units. The grace periods of all stages add up to less than ten seconds, the default stop timeout of
// container engines.
func (n *Node) shutdown() {
	start := time.Now()
	n.logf("stopping")
	n.supervisor.Stop(n.stopStages())
	n.logf("stopped in %.1f s", time.Since(start).Seconds())
}

// stopPods stops all containers with a short grace period. The kernel kills processes that still run when PID 1 exits.
func (n *Node) stopPods() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := n.cri.StopAll(ctx, 2*time.Second); err != nil {
		n.logf("pods: not all containers stopped: %s", firstLine(err.Error()))
	}
}

func (n *Node) onUnitChange(change supervisor.Change) {
	n.report(change.Unit, string(change.State), change.Detail)
}

// report stores a state in the tracker and logs it, except for units that wait or start normally.
func (n *Node) report(name, state, detail string) {
	entry, changed := n.tracker.Set(name, state, detail)
	if !changed || state == string(supervisor.Waiting) || state == string(supervisor.Starting) && detail == "" {
		return
	}
	if detail != "" {
		detail = ": " + firstLine(detail)
	}
	n.logf("%s %s%s", entry.Component, entry.State, detail)
}

func (n *Node) logf(format string, args ...any) {
	fmt.Printf("[%8.3f] %s\n", time.Since(n.start).Seconds(), fmt.Sprintf(format, args...))
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
