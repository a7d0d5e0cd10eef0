package node

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"holdfast.dev/node/internal/containerd"
	"holdfast.dev/node/internal/network"
	"holdfast.dev/node/internal/supervisor"
)

// Periods of the maintenance of a running node; SIGHUP starts it immediately.
const (
	renewalPeriod = time.Hour
	checkPeriod   = 30 * time.Second
)

// maintain runs periodic checks until the context ends. It cancels the context on a termination signal or a changed address.
func (n *Node) maintain(ctx context.Context, cancel context.CancelCauseFunc, signals <-chan os.Signal) {
	renewal, checks := time.NewTicker(renewalPeriod), time.NewTicker(checkPeriod)
	defer renewal.Stop()
	defer checks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case received := <-signals:
			if received != syscall.SIGHUP {
				n.logf("received %s", received)
				cancel(nil)
				return
			}
			n.renewCertificates()
			n.runPeriodicChecks(ctx, cancel)
		case <-renewal.C:
			n.renewCertificates()
		case <-checks.C:
			n.runPeriodicChecks(ctx, cancel)
		}
	}
}

func (n *Node) renewCertificates() {
	components, err := n.ensureCertificates(time.Now())
	if err != nil {
		// The next period retries; a third of the validity is left for that.
		n.logf("certificates: renewal failed: %v", err)
	}
	for _, name := range components {
		n.logf("%s: restarting with a new certificate", name)
		n.supervisor.Restart(name)
	}
}

// runPeriodicChecks detects two changes that cause no event. The container engine may assign a new address. The kubelet may
// delete embedded images when the disk is full, and no registry has them.
func (n *Node) runPeriodicChecks(ctx context.Context, cancel context.CancelCauseFunc) {
	if address, err := network.NodeAddress(); err == nil && address != n.Address {
		n.logf("address changed from %s to %s; restarting", n.Address, address)
		cancel(errAddressChanged)
		return
	}
	if n.cri.Ready(ctx) != nil {
		return
	}
	if err := n.importImages(func(containerd.Archive) bool { return true })(ctx); err != nil {
		n.logf("embedded images: import failed: %s", firstLine(err.Error()))
	}
}

// Main runs the node until it stops, and returns an error if it failed. After a change of the address it executes the program
// again, so that no state depends on the old address.
func (n *Node) Main() error {
	err := n.Run()
	if !errors.Is(err, errAddressChanged) {
		return err
	}
	// Shims and pause processes still run, and keep the networks and cgroups of the old pods in use.
	supervisor.KillRemainingProcesses(2 * time.Second)
	return supervisor.Reexec()
}
