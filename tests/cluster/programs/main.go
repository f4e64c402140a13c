// The programs of a Kubernetes node and its control plane, unmodified, and a container runtime that is a fake, as one program: they share
// most of their packages, so that one link and one file do for all six. The first argument says which one to be.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // their own main packages import these two
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"devherd/tests/cluster/programs/fakeruntime"
)

var programs = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"fake-runtime":            func() { exit(fakeruntime.Run(os.Args[1:])) },
	"kube-apiserver":          func() { run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() { run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() { run(scheduler.NewSchedulerCommand()) },
	"kubelet":                 func() { run(kubelet.NewKubeletCommand(context.Background())) },
}

func main() {
	if len(os.Args) > 1 {
		if program, known := programs[os.Args[1]]; known {
			os.Args = os.Args[1:]
			program()
			return
		}
	}
	fmt.Fprintln(os.Stderr, "usage: programs etcd|fake-runtime|kube-apiserver|kube-controller-manager|kube-scheduler|kubelet ARGS...")
	os.Exit(2)
}

func run(command *cobra.Command) { os.Exit(cli.Run(command)) }

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "fake-runtime:", err)
		os.Exit(1)
	}
}
