package main

import (
	"context"
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
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	switch os.Args[1] {
	case "etcd":
		etcdmain.Main(os.Args[1:])
	case "a":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "b":
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	case "c":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	case "d":
		os.Exit(cli.Run(kubelet.NewKubeletCommand(context.Background())))
	case "e":
		os.Exit(cli.Run(proxy.NewProxyCommand()))
	case "f":
		c := kubectl.NewDefaultKubectlCommand()
		kubectlutil.CheckErr(cli.RunNoErrOutput(c))
	}
	_ = cobra.Command{}
}
