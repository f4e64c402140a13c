// Helm and kubectl, unmodified, and a check by the Prometheus operator's own types, as one program: they share most of their packages. The
// first argument says which one to be.
package main

import (
	"fmt"
	"os"

	helm "helm.sh/helm/v4/pkg/cmd"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
)

var programs = map[string]func() error{
	"helm":             runHelm,
	"kubectl":          func() error { return cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()) },
	"check-monitoring": checkMonitoring,
}

func main() {
	if len(os.Args) > 1 {
		if program, known := programs[os.Args[1]]; known {
			os.Args = os.Args[1:]
			if err := program(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	fmt.Fprintln(os.Stderr, "usage: programs helm|kubectl|check-monitoring ARGS...")
	os.Exit(2)
}

func runHelm() error {
	command, err := helm.NewRootCmd(os.Stdout, os.Args[1:], helm.SetupLogging)
	if err != nil {
		return err
	}
	command.SilenceErrors = true
	return command.Execute()
}
