// Helm and kubectl, unmodified, as one program: they share most of their packages. The first argument says which one to be.
package main

import (
	"fmt"
	"log/slog"
	"os"

	helm "helm.sh/helm/v4/pkg/cmd"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
)

func main() {
	program := ""
	if len(os.Args) > 1 {
		program = os.Args[1]
		os.Args = os.Args[1:]
	}
	switch program {
	case "helm":
		runHelm()
	case "kubectl":
		os.Exit(cli.Run(kubectl.NewDefaultKubectlCommand()))
	default:
		fmt.Fprintln(os.Stderr, "usage: programs helm|kubectl ARGS...")
		os.Exit(2)
	}
}

func runHelm() {
	command, err := helm.NewRootCmd(os.Stdout, os.Args[1:], helm.SetupLogging)
	if err == nil {
		err = command.Execute()
	}
	if err != nil {
		slog.Error(err.Error())
		os.Exit(1)
	}
}
