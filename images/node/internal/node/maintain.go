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

// How often a running node looks after itself; SIGHUP makes it look at once.
const (
	identityPeriod = time.Hour
	housePeriod    = 30 * time.Second
)

// maintain runs until the context ends, and ends it on a signal to stop or on a changed address.
func (n *Node) maintain(ctx context.Context, cancel context.CancelCauseFunc, signals <-chan os.Signal) {
	identity, house := time.NewTicker(identityPeriod), time.NewTicker(housePeriod)
	defer identity.Stop()
	defer house.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case received := <-signals:
			if received != syscall.SIGHUP {
				n.say("received %s", received)
				cancel(nil)
				return
			}
			n.renewIdentity()
			n.keepHouse(ctx, cancel)
		case <-identity.C:
			n.renewIdentity()
		case <-house.C:
			n.keepHouse(ctx, cancel)
		}
	}
}

func (n *Node) renewIdentity() {
	users, err := n.ensureIdentity(time.Now())
	if err != nil {
		n.say("certificates could not be renewed: %v", err) // The next look tries again, a third of their life is left.
	}
	for _, user := range users {
		n.say("%s restarts with its new certificate", user)
		n.supervisor.Restart(user)
	}
}

// keepHouse notices what nobody tells: a new address from the engine, and baked images that the kubelet cleaned away when
// the disk was full and that no registry could give back.
func (n *Node) keepHouse(ctx context.Context, cancel context.CancelCauseFunc) {
	if address, err := network.NodeAddress(); err == nil && address != n.Address {
		n.say("address changed from %s to %s: booting again", n.Address, address)
		cancel(errMoved)
		return
	}
	if n.cri.Ready(ctx) != nil {
		return
	}
	if err := n.importImages(func(containerd.Archive) bool { return true })(ctx); err != nil {
		n.say("images could not be restored: %s", firstLine(err.Error()))
	}
}

// Main runs the node until its end and returns the reason when it cannot go on. After a change of address the same process
// begins anew: nothing of the old address is then left anywhere.
func (n *Node) Main() error {
	err := n.Run()
	if !errors.Is(err, errMoved) {
		return err
	}
	// Only shims and pause processes are left, and they would keep the old pods' networks and cgroups.
	supervisor.KillLeftovers(2 * time.Second)
	return supervisor.ReplaceSelf()
}
