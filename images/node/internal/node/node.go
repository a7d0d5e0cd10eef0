// Package node is the boot, the life and the stop of one node: it joins the other packages and decides the order.
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
	board      *status.Board
	reaper     *supervisor.Reaper
	supervisor *supervisor.Supervisor
	cri        *cri.Client
	api        *kubeapi.Client
	etcd       *kubeapi.Client
}

// New prepares a node without touching anything.
func New(l layout.Layout, s settings.Settings) *Node {
	start := time.Now()
	return &Node{
		Node: component.Node{Layout: l, Settings: s}, start: start,
		board: status.NewBoard(start),
	}
}

// errMoved ends a life of the node whose address changed: it boots again with the new one.
var errMoved = errors.New("the node's address changed")

// Run boots the node and keeps it until a signal (nil) or until it cannot go on (the reason).
func (n *Node) Run() error {
	n.reaper = supervisor.NewReaper()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	if err := n.boot(ctx); err != nil {
		return err
	}
	n.observe(ctx)
	go n.maintain(ctx, cancel, signals)
	err := n.supervisor.Run(ctx)
	if err == nil && errors.Is(context.Cause(ctx), errMoved) {
		err = errMoved
	}
	n.shutDown()
	return err
}

// boot does everything that must be right before the first process starts.
func (n *Node) boot(ctx context.Context) error {
	if err := checkWatches(takeWatch, neededWatches); err != nil {
		return err
	}
	if err := n.prepareSystem(ctx); err != nil {
		return err
	}
	var err error
	if n.Address, err = network.NodeAddress(); err != nil {
		return err
	}
	n.say("node %s at %s", n.NodeName, n.Address)
	if err := status.Serve(ctx, n.StatusSocket(), n.board); err != nil {
		return err
	}
	if _, err := n.ensureIdentity(time.Now()); err != nil {
		return err
	}
	if err := n.writeConfigs(); err != nil {
		return err
	}
	if err := n.connect(); err != nil {
		return err
	}
	n.supervisor, err = supervisor.New(n.reaper, n.Logs(), n.changed, n.units())
	return err
}

func (n *Node) connect() error {
	pki := func(name string) string { return filepath.Join(n.PKI(), name) }
	n.api = kubeapi.New(component.APIURL, pki("ca.crt"), pki("admin.pem"))
	n.etcd = kubeapi.New(component.EtcdURL, pki("etcd-ca.crt"), pki("apiserver-etcd-client.pem"))
	var err error
	n.cri, err = cri.New(n.ContainerdSocket())
	return err
}

// shutDown stops everything within the ten seconds that engines give: the graces of all stages add up to less.
func (n *Node) shutDown() {
	begun := time.Now()
	n.say("stopping")
	n.supervisor.Stop(n.stages())
	n.say("stopped in %.1f s", time.Since(begun).Seconds())
}

// stopPods lets the pods' processes end by themselves, for a few seconds; what is left then dies with PID 1.
func (n *Node) stopPods() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := n.cri.StopAll(ctx, 2*time.Second); err != nil {
		n.say("pods were not all stopped: %s", firstLine(err.Error()))
	}
}

func (n *Node) changed(change supervisor.Change) {
	n.report(change.Unit, string(change.State), change.Detail)
}

// report puts a state on the board, and in a short line on the container's log.
func (n *Node) report(name, state, detail string) {
	entry, changed := n.board.Set(name, state, detail)
	if !changed || state == string(supervisor.Waiting) || state == string(supervisor.Starting) && detail == "" {
		return
	}
	if detail != "" {
		detail = ": " + firstLine(detail)
	}
	n.say("%s %s%s", entry.Component, entry.State, detail)
}

func (n *Node) say(format string, args ...any) {
	fmt.Printf("[%8.3f] %s\n", time.Since(n.start).Seconds(), fmt.Sprintf(format, args...))
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
