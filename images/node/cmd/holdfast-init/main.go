// Command holdfast-init is holdfast-node without Kubernetes: PID 1, the health check and the waiter are small processes, which
// matters for the one that lives as long as the node and for the one that is started every few seconds.
// Any other applet is handed to the large binary, so that both answer to the same command line.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"holdfast.dev/node/internal/applet"
)

const large = "/usr/lib/holdfast/holdfast-node"

func main() {
	own := applet.Own()
	args := os.Args
	_, byName := own[filepath.Base(args[0])]
	_, byArgument := own[append(args, "", "")[1]]
	if !byName && !byArgument && len(args) > 1 {
		err := syscall.Exec(large, args, os.Environ())
		fmt.Fprintf(os.Stderr, "%s: %v\n", large, err)
		os.Exit(applet.ExitFailed)
	}
	os.Exit(applet.Dispatch(own, args))
}
