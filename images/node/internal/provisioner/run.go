package provisioner

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"
)

// Options are the flags of the provisioner.
type Options struct {
	Kubeconfig string
	Node       string
	Directory  string
	Health     string
}

// Main runs the provisioner until SIGTERM and returns its exit code; args[0] is the program.
func Main(args []string) int {
	var options Options
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.StringVar(&options.Kubeconfig, "kubeconfig", "", "kubeconfig of the provisioner")
	flags.StringVar(&options.Node, "node-name", "", "node whose volumes this process provisions")
	flags.StringVar(&options.Directory, "directory", "", "parent directory of the volumes")
	flags.StringVar(&options.Health, "healthz-bind-address", "", "address of the health endpoint")
	if err := flags.Parse(args[1:]); err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, options); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", args[0], err)
		return 1
	}
	return 0
}

func run(ctx context.Context, options Options) error {
	config, err := clientcmd.BuildConfigFromFlags("", options.Kubeconfig)
	if err != nil {
		return err
	}
	// The API server is on the same node and limits clients with priority and fairness.
	config.QPS, config.Burst = 100, 200
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", options.Health)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	claims := factory.Core().V1().PersistentVolumeClaims().Informer()
	volumes := factory.Core().V1().PersistentVolumes().Informer()
	classes := factory.Storage().V1().StorageClasses().Informer()
	nodes := factory.Core().V1().Nodes()
	hasNodes := nodes.Informer().HasSynced
	selector := nodeSelector{client: client, node: options.Node, nodes: nodes.Lister(), classes: factory.Storage().V1().StorageClasses().Lister()}
	provisioner := controller.NewProvisionController(
		klog.FromContext(ctx), client, Name, Directories{Node: options.Node, Parent: options.Directory},
		controller.ClaimsInformer(claims), controller.VolumesInformer(volumes), controller.ClassesInformer(classes),
		controller.NodesLister(nodes.Lister()),
		controller.LeaderElection(false),
		// A full disk or a stopped API server ends at some point: retry without an end, and soon.
		controller.FailedProvisionThreshold(0), controller.FailedDeleteThreshold(0),
		controller.RateLimiter(workqueue.NewItemExponentialFailureRateLimiter(200*time.Millisecond, 30*time.Second)),
	)
	if _, err := claims.AddEventHandler(selector.handler(ctx)); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	go serveHealth(listener, func() bool {
		return claims.HasSynced() && volumes.HasSynced() && classes.HasSynced() && hasNodes()
	})
	factory.WaitForCacheSync(ctx.Done())
	provisioner.Run(ctx)
	return nil
}

// serveHealth answers 200 as soon as the provisioner has all objects that it needs.
func serveHealth(listener net.Listener, hasSynced func() bool) {
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !hasSynced() {
			http.Error(w, "the caches have not synced", http.StatusServiceUnavailable)
		}
	})}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		klog.ErrorS(err, "The health endpoint ended")
	}
}
