// Command holdfast-node is a multi-call binary with etcd, the Kubernetes components and holdfast's built-in applets.
// The program name selects the applet; if it is not the name of an applet, the first argument does.
package main

import (
	"os"

	"holdfast.dev/node/internal/applet"
)

func main() {
	applets := applet.Builtin()
	for name, run := range components() {
		applets[name] = run
	}
	os.Exit(applet.Dispatch(applets, os.Args))
}
