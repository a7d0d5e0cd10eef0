package main

import (
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // version metric
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"holdfast.dev/node/internal/applet"
	"holdfast.dev/node/internal/provisioner"
)

func components() map[string]applet.Func {
	return map[string]applet.Func{
		"etcd":                    runEtcd,
		"kubectl":                 runKubectl,
		"kube-apiserver":          command(func() *cobra.Command { return apiserver.NewAPIServerCommand() }),
		"kube-controller-manager": command(func() *cobra.Command { return controllermanager.NewControllerManagerCommand() }),
		"kube-scheduler":          command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
		"kubelet":                 command(func() *cobra.Command { return newKubeletCommand() }),
		"kube-proxy":              command(func() *cobra.Command { return proxy.NewProxyCommand() }),
		"storage-provisioner":     provisioner.Main,
	}
}

// command builds the component only when it runs: each component registers global flags and metrics, which could conflict.
func command(build func() *cobra.Command) applet.Func {
	return func(args []string) int {
		os.Args = args // Some components read os.Args in addition to the arguments from cobra.
		return cli.Run(build())
	}
}

func runEtcd(args []string) int {
	// Parts of etcd parse their flags from os.Args.
	os.Args = args
	etcdmain.Main(args)
	return 0
}

func runKubectl(args []string) int {
	os.Args = args
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}
