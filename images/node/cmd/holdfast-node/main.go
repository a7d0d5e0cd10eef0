// Command holdfast-node is everything that a node runs, in one file: Kubernetes' components and holdfast's own applets.
// The name it is called by, or else its first argument, says which.
package main

import (
	"os"

	"holdfast.dev/node/internal/applet"
)

func main() {
	all := applet.Own()
	for name, run := range components() {
		all[name] = run
	}
	os.Exit(applet.Dispatch(all, os.Args))
}
